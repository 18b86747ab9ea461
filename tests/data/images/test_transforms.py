import numpy as np
import pytest
import torch
from PIL import Image

import unseen.core.torchvision_operators  # noqa: F401  (before torchvision)

# isort: split
from torchvision.transforms import v2

from unseen.data.images import crops, transforms
from unseen.data.images.decode import SafeImageFile

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class Fixed:
    """A generator whose every draw is the given share of the way from low to high."""

    def __init__(self, fraction: float) -> None:
        self.fraction = fraction

    def uniform(self, low, high, size):
        return np.full(size, low + self.fraction * (high - low))


def noise(width: int, height: int, seed: int = 0) -> Image.Image:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3))
    return Image.fromarray(pixels.astype(np.uint8))


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize("name", sorted(set(transforms.NAMES) - {"adv", "horde"}))
def test_red_lands_in_the_red_channel(name):
    for transform in transforms.named(name, 32, MEAN, STD):
        image = transform(Image.new("RGB", (50, 40), (255, 0, 0)), rng())
        assert image.shape == (3, 32, 32)
        assert image.dtype == torch.float32
        expected = [(1 - 0.485) / 0.229, -0.456 / 0.224, -0.406 / 0.225]
        for channel, value in zip(image, expected, strict=True):
            torch.testing.assert_close(channel, torch.full((32, 32), value))


LEVEL = 1.001 / 255 / min(STD)  # one of 255 grey levels, after normalisation


def evaluated(image: Image.Image, *steps) -> torch.Tensor:
    """torchvision's own pipeline."""
    to_tensor = (v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD))
    return torch.as_tensor(v2.Compose([*steps, *to_tensor])(image))


def near(ours: torch.Tensor, usual: torch.Tensor, fraction: float = 0.3) -> bool:
    """Nowhere more than a grey level apart, and mostly equal: intermediate rounding differs."""
    difference = (ours - usual).abs()
    return bool(difference.max() <= LEVEL and (difference > 1e-4).float().mean() < fraction)


LANCZOS = v2.InterpolationMode.LANCZOS
EVALUATION = {
    "base": (224, [v2.Resize(256), v2.CenterCrop(224)]),
    "thesis": (224, [v2.Resize(256), v2.CenterCrop(224)]),
    "red": (224, [v2.Resize(256), v2.CenterCrop(224)]),
    "adv": (224, [v2.Resize(256), v2.CenterCrop(224)]),
    "big": (256, [v2.Resize(256), v2.CenterCrop(256)]),
    "vo_hays": (224, [v2.Resize(224), v2.CenterCrop(224)]),
    "horde": (256, [v2.Resize((293, 293), LANCZOS), v2.CenterCrop(256)]),
}


@pytest.mark.parametrize("shape", [(300, 200), (200, 301), (100, 90), (256, 256), (301, 333)])
@pytest.mark.parametrize("name", sorted(EVALUATION))
def test_evaluation_is_the_usual_pipeline(name, shape):
    size, steps = EVALUATION[name]
    _, evaluation = transforms.named(name, size, MEAN, STD)
    image = noise(*shape)
    assert near(evaluation(image), evaluated(image, *steps))


def test_sources_and_sizes_by_name():
    for source, name in transforms.SOURCES.items():
        assert transforms.named(source, 64, MEAN, STD) == transforms.named(name, 64, MEAN, STD)
    assert transforms.usual_size("big", 224) == transforms.usual_size("horde", 224) == 256
    assert transforms.usual_size("revisit", 224) == transforms.usual_size("vo_hays", 224) == 224


@pytest.mark.parametrize("name", ["base", "thesis", "big"])
@pytest.mark.parametrize("seed", range(5))
def test_training_crop_equals_torchvisions(name, seed):
    training, _ = transforms.named(name, 96, MEAN, STD)
    image = noise(300, 200)
    left, top, right, bottom = training.crop(300, 200, rng(seed)).box

    def crop(pixels):
        return v2.functional.resized_crop(pixels, top, left, bottom - top, right - left, [96, 96])

    usual = evaluated(image, crop)
    ours = training(image, rng(seed))
    assert near(ours, usual) or near(ours, usual.flip(2))


@pytest.mark.parametrize("name", ["red", "vo_hays"])
def test_short_side_then_a_crop_anywhere(name):
    training, _ = transforms.named(name, 112, MEAN, STD)
    lows, highs = {"red": (128, 128), "vo_hays": (112, 123)}[name]
    image, shorts, places = noise(300, 200), [], []
    for seed in range(60):
        crop = training.crop(300, 200, rng(seed))
        assert crop.box == (0, 0, 300, 200)
        assert crop.size[0] == int(crop.size[1] * 1.5)
        left, top, right, bottom = crop.window
        assert (right - left, bottom - top) == (112, 112)
        assert left >= 0
        assert top >= 0
        assert right <= crop.size[0]
        assert bottom <= crop.size[1]
        shorts.append(crop.size[1])
        places.append(left / (crop.size[0] - 112))
        if seed < 5:
            window = [v2.Resize(crop.size[1]), lambda i, w=crop.window: i.crop(w)]
            usual, ours = evaluated(image, *window), training(image, rng(seed))
            assert near(ours, usual) or near(ours, usual.flip(2))
    assert lows <= min(shorts) <= lows + 1
    assert highs - 1 <= max(shorts) <= highs
    assert 0.35 < np.mean(places) < 0.65
    assert min(places) < 0.1
    assert max(places) > 0.9


def test_horde_sets_the_longer_side_and_pads_with_black():
    training, _ = transforms.named("horde", 100, (0, 0, 0), (1, 1, 1))
    image = Image.new("RGB", (300, 150), "white")
    longer, lefts = [], []
    for seed in range(100):
        crop = training.crop(300, 150, rng(seed))
        longer.append(crop.size[0])
        assert abs(crop.size[1] - crop.size[0] / 2) <= 1
        white = training(image, rng(seed))[0] > 0.5
        assert int(white.sum()) == min(100, crop.size[0]) * min(100, crop.size[1])
        if crop.size[0] < 100:
            lefts.append(-crop.window[0] / (100 - crop.size[0]))
    assert 80 <= min(longer) < 90
    assert 170 < max(longer) <= 180
    assert len(lefts) > 10
    assert min(lefts) < 0.3
    assert max(lefts) > 0.7


def test_horde_resizes_with_lanczos():
    training, _ = transforms.named("horde", 64, MEAN, STD)
    image = noise(120, 90)
    crop = training.crop(120, 90, rng(0))
    assert crop.size[1] >= 64  # seed 0: no padding
    usual = evaluated(image, v2.Resize(crop.size[::-1], LANCZOS), lambda i: i.crop(crop.window))
    ours = training(image, rng(0))
    assert near(ours, usual) or near(ours, usual.flip(2))


def test_adv_shifts_colors_as_color_jitter_does():
    training, _ = transforms.named("adv", 16, (0, 0, 0), (1, 1, 1))
    plain = Image.new("RGB", (20, 20), (150, 100, 60))
    ours = torch.stack([training(plain, rng(seed))[:, 0, 0] for seed in range(600)])
    torch.manual_seed(0)
    steps = v2.Compose([v2.RandomGrayscale(0.2), v2.ColorJitter(0.2, 0.2, 0.2, 0.2)])
    usual = torch.stack([torch.tensor(steps(plain).getpixel((0, 0))) / 255 for _ in range(600)])
    grey = (ours.amax(dim=1) - ours.amin(dim=1)) < 0.01
    their_grey = (usual.amax(dim=1) - usual.amin(dim=1)) < 0.01
    assert abs(grey.float().mean() - their_grey.float().mean()) < 0.07
    for ours_part, usual_part in (
        (ours[grey], usual[their_grey]),
        (ours[~grey], usual[~their_grey]),
    ):
        assert (ours_part.mean(dim=0) - usual_part.mean(dim=0)).abs().max() < 0.02
        assert (ours_part.std(dim=0) - usual_part.std(dim=0)).abs().max() < 0.02


@pytest.mark.parametrize("name", sorted(set(transforms.NAMES) - {"small"}))
def test_a_waiting_jpeg_gives_the_same_image(tmp_path, name):
    """Decoded at a cheap scale, if the crop allows; a real photograph's smoothness is assumed."""
    x, y = np.meshgrid(np.linspace(0, 6, 1600), np.linspace(0, 5, 1200))
    waves = np.stack([np.sin(x + y), np.cos(2 * x - y), np.sin(3 * y)], axis=-1)
    path = tmp_path / "waves.jpg"
    Image.fromarray((127 + 100 * waves).astype(np.uint8)).save(path, quality=95)
    whole = Image.open(path)
    whole.load()
    for transform in transforms.named(name, 224, MEAN, STD):
        for seed in range(4):
            with SafeImageFile(path) as waiting:
                ours = transform(waiting, rng(seed))
            difference = (ours - transform(whole, rng(seed))).abs() * 255 * 0.225
            assert difference.mean() < 1.0  # of 255 levels
            assert difference.max() < 16


def test_base_training_crops_are_those_of_the_definition():
    training, _ = transforms.named("base", 224, MEAN, STD)
    boxes = np.array([training.crop(400, 300, rng(seed)).box for seed in range(4000)])
    left, top, width, height = *boxes.T[:2], boxes.T[2] - boxes.T[0], boxes.T[3] - boxes.T[1]
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


@pytest.mark.parametrize("shape", [(1000, 10), (10, 1000), (1, 1), (2, 700), (60_000, 1)])
@pytest.mark.parametrize("name", sorted(transforms.NAMES))
def test_extreme_shapes(name, shape):
    training, evaluation = transforms.named(name, 16, MEAN, STD)
    for seed in range(5):
        assert training(noise(*shape), rng(seed)).shape == (3, 16, 16)
    assert evaluation(noise(*shape)).shape == (3, 16, 16)


def test_where_no_crop_fits_the_largest_one_in_the_middle_is_taken():
    training, _ = transforms.named("base", 16, MEAN, STD)
    assert training.crop(1000, 10, rng()).box == (493, 0, 506, 10)
    assert training.crop(10, 1000, rng()).box == (0, 493, 10, 506)


def test_base_training_mirrors_half_of_the_time():
    ramp = Image.fromarray(np.tile(np.arange(0, 240, dtype=np.uint8), (240, 1))).convert("RGB")
    training, _ = transforms.named("base", 32, MEAN, STD)
    images = [training(ramp, rng(seed))[0] for seed in range(400)]
    mirrored = [bool(image[:, 0].mean() > image[:, -1].mean()) for image in images]
    assert 0.42 < np.mean(mirrored) < 0.58


def test_of_a_long_image_only_the_window_is_resized():
    image = crops.Loaded(
        np.tile(np.arange(4000, dtype=np.uint16)[None, :, None] // 16, (4, 1, 3)).astype(np.uint8)
    )
    request = []

    class Noting(crops.Loaded):
        def pixels(self, box=None, size=None):
            request.append((box, size))
            return image.pixels(box, size)

    crop = crops.Crop((0, 0, 4000, 4), (64_000, 64), (31_968, 0, 32_032, 64))
    cut = crops.cut(Noting(image.pixels()), crop)
    [(box, size)] = request
    assert box[2] - box[0] < 30
    assert size[0] < 500
    assert cut.shape == (64, 64, 3)
    assert abs(int(cut[32, 0, 0]) - 1998 // 16) <= 1


@pytest.mark.parametrize("name", sorted(transforms.NAMES))
def test_only_the_generator_decides(name):
    training, evaluation = transforms.named(name, 24, MEAN, STD)
    image = noise(40, 40)
    state = torch.get_rng_state()
    first = training(image, rng(3))
    torch.rand(5)
    assert torch.equal(first, training(image, rng(3)))
    assert not torch.equal(first, training(image, rng(4)))
    torch.set_rng_state(state)
    training(image, rng(3))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(evaluation(image), evaluation(image))


def test_small_without_movement_is_the_plain_image():
    training, evaluation = transforms.named("small", 40, MEAN, STD)
    image = noise(40, 40)
    plain = (
        torch.from_numpy(np.array(image)).permute(2, 0, 1) / 255 - torch.tensor(MEAN)[:, None, None]
    )
    plain = plain / torch.tensor(STD)[:, None, None]
    torch.testing.assert_close(evaluation(image), plain, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(training(image, Fixed(0.5)), plain, atol=1e-3, rtol=1e-3)


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
    images = [Image.fromarray(g.numpy()).convert("RGB") for g in grey]
    many = training.on_pixels(grey[:, None], [rng(k) for k in range(6)])
    ones = torch.stack([training(p, rng(k)) for k, p in enumerate(images)])
    torch.testing.assert_close(many, ones, atol=1e-4, rtol=1e-4)
    many = evaluation.on_pixels(grey[:, None])
    torch.testing.assert_close(many, torch.stack([evaluation(p) for p in images]))


def test_small_squeezes_what_is_not_square():
    _, evaluation = transforms.named("small", 16, MEAN, STD)
    assert evaluation(noise(50, 20)).shape == (3, 16, 16)


def test_unknown_name_lists_the_known():
    with pytest.raises(ValueError, match=r"one of adv, base, .*vo_hays, got 'bsae'"):
        transforms.named("bsae", 32, MEAN, STD)


@pytest.mark.parametrize(
    ("size", "mean", "std", "word"),
    [(0, MEAN, STD, "size"), (8, (0.5,), STD, "mean"), (8, MEAN, (1, 0, 1), "std")],
)
def test_bad_values_are_named(size, mean, std, word):
    with pytest.raises(ValueError, match=word):
        transforms.named("small", size, mean, std)


def test_the_smallest_crop_bounds_the_area_that_training_shows() -> None:
    half = (0.5, 0.5, 0.5)
    gentle, _ = transforms.named("base", 32, half, half, smallest_crop=0.5)
    assert isinstance(gentle, transforms.RandomArea)
    crops = [gentle.crop(200, 200, np.random.default_rng(seed)) for seed in range(200)]
    areas = [(c.box[2] - c.box[0]) * (c.box[3] - c.box[1]) / 200**2 for c in crops]
    assert 0.49 < min(areas) < 0.55
    with pytest.raises(ValueError, match="smallest_crop is a value of the transforms base, big"):
        transforms.named("red", 32, half, half, smallest_crop=0.5)
