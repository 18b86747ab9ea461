"""What images are normalised by: the run's values, or the data set's own transform; it is printed
wherever a run is."""

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn.functional import normalize

import unseen
from unseen.api import named
from unseen.cli import run_display
from unseen.config import schema as configs
from unseen.config.resolve import NORMALISATION, NOT_BY_RUN, resolve
from unseen.core import custom_components
from unseen.data.in_memory.user_data import as_dataset
from unseen.runs.prepare import prepare
from unseen.runs.trained_run import Trained

pytestmark = pytest.mark.usefixtures("narrow_network")

LABELS = np.repeat(np.arange(12), 4).tolist()
QUICK = {"epochs": 1, "metrics": ["recall@1"], "progress": False}


class Folder:
    """As torchvision's ImageFolder: samples, targets, a transform of its own."""

    def __init__(self, root: Path, transform: Any = None) -> None:
        self.transform, self.target_transform, self.targets = transform, None, LABELS
        self.samples = [(str(root / f"{n}.png"), label) for n, label in enumerate(LABELS)]
        for n, (path, label) in enumerate(self.samples):
            pixels = np.random.default_rng(n).integers(0, 60, (20, 18, 3), dtype=np.uint8)
            Image.fromarray(pixels + np.uint8(15 * label)).save(path)

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        path, label = self.samples[index]
        image: Any = Image.open(path)
        return self.transform(image) if self.transform else image, label


def tensor(image: Image.Image) -> Tensor:
    """Values that no network expects."""
    pixels = np.asarray(image.resize((16, 16)), dtype=np.float32)
    return torch.from_numpy(7 * pixels / 60 - 40).permute(2, 0, 1)


def said_everywhere(run: unseen.Run, data: Any, words: str) -> None:
    """In Python, on the page, and in the terminal before a training."""
    assert f"{NORMALISATION}: {words}" in str(run)
    page = run.report().read_text()
    assert NORMALISATION in page
    assert words in page
    config = configs.make(configs.load(run.path / "config.toml"))
    with run_display.console.capture() as said:
        run_display.print_data_notes(prepare(config, dataset=as_dataset(data)))
    assert words in " ".join(said.get().split())


def test_a_transform_of_its_own_makes_what_the_network_gets(tmp_path: Path) -> None:
    data = Folder(tmp_path, tensor)
    run = unseen.fit(data, out=tmp_path / "run", **QUICK)
    stored = np.load(run.path / "embeddings" / "test.npz")
    images = torch.stack([data[index][0] for index in stored["indices"]])
    with torch.no_grad():
        expected = normalize(Trained.open(run.path).network.eval()(images).embeddings)
    got = normalize(torch.from_numpy(stored["embeddings"]).float())
    torch.testing.assert_close(got, expected, atol=2e-3, rtol=0)
    said_everywhere(run, data, NOT_BY_RUN)


def test_images_of_a_transform_get_the_values_of_the_run(tmp_path: Path) -> None:
    data = as_dataset(Folder(tmp_path, lambda image: image.rotate(90)))
    _, reasons = resolve(configs.make({}), data)
    [why] = [reason.why for reason in reasons if reason.key == NORMALISATION]
    assert why.startswith("mean 0.5 0.5 0.5, std 0.5 0.5 0.5")
    assert why.endswith("(of small_conv)")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("transform", "base"),
        ("image_size", 32),
        ("training_sizes", [16, 24]),
        ("smallest_crop", 0.5),
        ("time_budget", 3),
    ],
)
def test_a_key_that_would_change_the_tensors_is_refused(
    key: str, value: Any, tmp_path: Path
) -> None:
    config = configs.make(configs.override({}, [f"{key}={value}"]))
    with pytest.raises(
        ValueError, match=f"own transform makes tensors of 16 x 16: leave {key} out"
    ):
        resolve(config, as_dataset(Folder(tmp_path, tensor)))


class Own(nn.Module):
    """A network of one's own with the values of its published weights."""

    pretrained_cfg: ClassVar[dict[str, Any]] = {"mean": (0.4, 0.5, 0.6), "std": (0.1, 0.2, 0.3)}

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, 8, 3)

    def forward(self, images: Tensor) -> Tensor:
        return self.layer(images).mean(dim=(2, 3))


@pytest.mark.parametrize("transform", [None, tensor])
def test_the_values_of_a_network_of_ones_own_hold_unless_the_data_make_tensors(
    transform: Any, tmp_path: Path
) -> None:
    words, objects = named({"network": Own()})
    with custom_components.known_objects(objects):
        config = configs.make(configs.override({}, [f"network={words['network']}"]))
        _, reasons = resolve(config, as_dataset(Folder(tmp_path, transform)))
    [why] = [reason.why for reason in reasons if reason.key == NORMALISATION]
    assert why.startswith(NOT_BY_RUN if transform else "mean 0.4 0.5 0.6, std 0.1 0.2 0.3")
    assert transform or why.endswith("(the pretrained_cfg of Own)")
