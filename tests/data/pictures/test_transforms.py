import numpy as np
import pytest
import torch
from PIL import Image

import unseen.torchvision_operators  # noqa: F401  (before torchvision)

# isort: split
from torchvision.transforms import v2

from unseen.data.pictures import transforms

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class Fixed:
    """A generator whose every draw is the given share of the way from low to high."""

    def __init__(self, share: float) -> None:
        self.share = share

    def uniform(self, low, high, size):
        return np.full(size, low + self.share * (high - low))


def noise(width: int, height: int, seed: int = 0) -> Image.Image:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3))
    return Image.fromarray(pixels.astype(np.uint8))


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize("name", ["base", "small"])
def test_red_lands_in_the_red_channel(name):
    for transform in transforms.named(name, 32, MEAN, STD):
        image = transform(Image.new("RGB", (50, 40), (255, 0, 0)), rng())
        assert image.shape == (3, 32, 32)
        assert image.dtype == torch.float32
        expected = [(1 - 0.485) / 0.229, -0.456 / 0.224, -0.406 / 0.225]
        for channel, value in zip(image, expected, strict=True):
            torch.testing.assert_close(channel, torch.full((32, 32), value))


@pytest.mark.parametrize("shape", [(300, 200), (200, 300), (100, 90), (256, 256)])
def test_base_evaluation_is_the_usual_pipeline(shape):
    usual = v2.Compose(
        [
            v2.Resize(256),
            v2.CenterCrop(224),
            v2.ToImage(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(MEAN, STD),
        ]
    )
    _, evaluation = transforms.named("base", 224, MEAN, STD)
    picture = noise(*shape)
    torch.testing.assert_close(
        evaluation(picture), torch.as_tensor(usual(picture)), atol=1e-5, rtol=1e-5
    )
    assert evaluation.short_side == 256


def test_base_training_crops_are_those_of_the_definition():
    boxes = np.array([transforms._random_box(400, 300, rng(seed)) for seed in range(4000)])
    left, top, width, height = boxes.T
    assert (left >= 0).all()
    assert (top >= 0).all()
    assert (left + width <= 400).all()
    assert (top + height <= 300).all()
    area, ratio = width * height / 120000, width / height
    assert area.min() > 0.079
    assert area.max() > 0.95
    assert ratio.min() > 0.74
    assert ratio.max() < 1.35
    # torchvision's crop has the same distribution
    theirs = v2.RandomResizedCrop(224)
    torch.manual_seed(0)
    drawn = [theirs.make_params([Image.new("L", (400, 300))]) for _ in range(4000)]
    their_area = np.array([d["height"] * d["width"] / 120000 for d in drawn])
    their_left = np.array([d["left"] for d in drawn])
    assert abs(area.mean() - their_area.mean()) < 0.02
    assert abs(np.median(area) - np.median(their_area)) < 0.03
    assert abs(left.mean() - their_left.mean()) < 6


@pytest.mark.parametrize("shape", [(1000, 10), (10, 1000), (1, 1), (2, 700)])
def test_base_training_takes_extreme_shapes(shape):
    training, evaluation = transforms.named("base", 16, MEAN, STD)
    for seed in range(20):
        assert training(noise(*shape), rng(seed)).shape == (3, 16, 16)
    assert evaluation(noise(*shape)).shape == (3, 16, 16)


def test_where_no_crop_fits_the_largest_one_in_the_middle_is_taken():
    assert transforms._random_box(1000, 10, rng()) == (493, 0, 13, 10)
    assert transforms._random_box(10, 1000, rng()) == (0, 493, 10, 13)


def test_base_training_mirrors_half_of_the_time():
    ramp = Image.fromarray(np.tile(np.arange(0, 240, dtype=np.uint8), (240, 1))).convert("RGB")
    training, _ = transforms.named("base", 32, MEAN, STD)
    images = [training(ramp, rng(seed))[0] for seed in range(400)]
    mirrored = [bool(image[:, 0].mean() > image[:, -1].mean()) for image in images]
    assert 0.42 < np.mean(mirrored) < 0.58


def test_base_training_never_enlarges_a_reduced_picture():
    training, _ = transforms.named("base", 224, MEAN, STD)
    side = training.short_side
    for seed in range(500):
        _, _, width, height = transforms._random_box(side, side, rng(seed))
        assert min(width, height) >= 223


@pytest.mark.parametrize("name", ["base", "small"])
def test_only_the_generator_decides(name):
    training, evaluation = transforms.named(name, 24, MEAN, STD)
    picture = noise(40, 40)
    state = torch.get_rng_state()
    first = training(picture, rng(3))
    torch.rand(5)
    assert torch.equal(first, training(picture, rng(3)))
    assert not torch.equal(first, training(picture, rng(4)))
    torch.set_rng_state(state)
    training(picture, rng(3))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(evaluation(picture), evaluation(picture))


def test_small_without_movement_is_the_plain_picture():
    training, evaluation = transforms.named("small", 40, MEAN, STD)
    picture = noise(40, 40)
    plain = (
        torch.from_numpy(np.array(picture)).permute(2, 0, 1) / 255
        - torch.tensor(MEAN)[:, None, None]
    )
    plain = plain / torch.tensor(STD)[:, None, None]
    torch.testing.assert_close(evaluation(picture), plain, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(training(picture, Fixed(0.5)), plain, atol=1e-3, rtol=1e-3)


def sample(pixels: np.ndarray, x: float, y: float) -> float:
    """Bilinear, edges repeated, one pixel at a time."""
    size = len(pixels)
    x, y = min(max(x, 0), size - 1), min(max(y, 0), size - 1)
    x0, y0 = int(x), int(y)
    x1, y1 = min(x0 + 1, size - 1), min(y0 + 1, size - 1)
    upper = pixels[y0, x0] * (1 - (x - x0)) + pixels[y0, x1] * (x - x0)
    lower = pixels[y1, x0] * (1 - (x - x0)) + pixels[y1, x1] * (x - x0)
    return upper * (1 - (y - y0)) + lower * (y - y0)


@pytest.mark.parametrize("seed", range(3))
def test_small_training_equals_a_loop(seed):
    size = 20
    training, _ = transforms.named("small", size, (0, 0, 0), (1, 1, 1))
    pixels = np.random.default_rng(9).integers(0, 256, (size, size)).astype(np.uint8)
    turn, zoom, across, down = np.random.default_rng(seed).uniform(-1, 1, 4)
    angle, zoom = np.radians(8) * turn, 1 + 0.1 * zoom
    expected = np.zeros((size, size))
    for row in range(size):
        for column in range(size):
            x, y = column - (size - 1) / 2, row - (size - 1) / 2
            from_x = zoom * (np.cos(angle) * x - np.sin(angle) * y) + 0.08 * size * across
            from_y = zoom * (np.sin(angle) * x + np.cos(angle) * y) + 0.08 * size * down
            middle = (size - 1) / 2
            expected[row, column] = sample(pixels.astype(float), from_x + middle, from_y + middle)
    image = training(Image.fromarray(pixels).convert("RGB"), np.random.default_rng(seed))
    for channel in image:
        np.testing.assert_allclose(channel.numpy(), expected / 255, atol=2e-4)


def test_small_never_mirrors():
    ramp = Image.fromarray(np.tile(np.arange(0, 240, 6, dtype=np.uint8), (40, 1))).convert("RGB")
    training, _ = transforms.named("small", 40, MEAN, STD)
    for seed in range(100):
        image = training(ramp, rng(seed))[0]
        assert image[:, 0].mean() < image[:, -1].mean()


@pytest.mark.parametrize("size", [24, 40, 64])
def test_many_at_once_equal_one_by_one(size):
    training, evaluation = transforms.named("small", size, MEAN, STD)
    grey = torch.from_numpy(np.random.default_rng(1).integers(0, 256, (6, 40, 40)).astype(np.uint8))
    pictures = [Image.fromarray(g.numpy()).convert("RGB") for g in grey]
    many = training.on_pixels(grey[:, None], [rng(k) for k in range(6)])
    ones = torch.stack([training(p, rng(k)) for k, p in enumerate(pictures)])
    torch.testing.assert_close(many, ones, atol=1e-4, rtol=1e-4)
    many = evaluation.on_pixels(grey[:, None])
    torch.testing.assert_close(many, torch.stack([evaluation(p) for p in pictures]))


def test_small_squeezes_what_is_not_square():
    _, evaluation = transforms.named("small", 16, MEAN, STD)
    assert evaluation(noise(50, 20)).shape == (3, 16, 16)


def test_unknown_name_lists_the_known():
    with pytest.raises(ValueError, match="one of base, small, got 'bsae'"):
        transforms.named("bsae", 32, MEAN, STD)


@pytest.mark.parametrize(
    ("size", "mean", "std", "word"),
    [(0, MEAN, STD, "size"), (8, (0.5,), STD, "mean"), (8, MEAN, (1, 0, 1), "std")],
)
def test_bad_values_are_named(size, mean, std, word):
    with pytest.raises(ValueError, match=word):
        transforms.named("small", size, mean, std)
