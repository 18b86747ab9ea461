"""Objects of other libraries become data sets with the labels and images they hold."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from PIL import Image

from unseen.core.contracts import Dataset, FeatureDataset
from unseen.data.in_memory.user_data import as_dataset, as_image

LABELS = ["owl", "jay", "owl", "tit", "jay", "wren"]
CODES = [1, 0, 1, 2, 0, 3]


def images() -> list[Image.Image]:
    rng = np.random.default_rng(0)
    return [Image.fromarray(rng.integers(0, 256, (9, 7, 3), dtype=np.uint8)) for _ in LABELS]


def check(data: Any) -> None:
    made = as_dataset(data)
    assert isinstance(made, Dataset)
    assert made.labels.tolist() == CODES
    assert list(made.label_names) == ["jay", "owl", "tit", "wren"]
    for index, image in enumerate(images()):
        assert np.array_equal(np.asarray(made.image(index)), np.asarray(image))
    assert made.describe()["classes"] == 4


def test_a_list_of_files(tmp_path: Path) -> None:
    paths = []
    for number, image in enumerate(images()):
        paths.append(tmp_path / f"{number}.png")
        image.save(paths[-1])
    check(list(zip(paths, LABELS, strict=True)))
    folder = SimpleNamespace(
        samples=[(str(path), code) for path, code in zip(paths, CODES, strict=True)],
        classes=["jay", "owl", "tit", "wren"],
        __len__=lambda: 6,
        __getitem__=None,
    )
    check(type("ImageFolder", (), vars(folder))())
    with pytest.raises(FileNotFoundError, match="1 files are not there"):
        as_dataset([(tmp_path / "no.png", "owl")])


def test_a_map_style_data_set_of_images_arrays_or_tensors() -> None:
    shown = images()
    arrays = [np.asarray(image) for image in shown]
    tensors = [torch.from_numpy(array.copy()).permute(2, 0, 1) for array in arrays]
    for items in (shown, arrays, tensors, [tensor.float() / 255 for tensor in tensors]):
        check(list(zip(items, LABELS, strict=True)))


def test_labels_are_read_from_targets_without_touching_items() -> None:
    class Lazy:
        targets = torch.tensor(CODES)
        classes = ("jay", "owl", "tit", "wren")
        touched = 0

        def __len__(self) -> int:
            return len(CODES)

        def __getitem__(self, index: int) -> tuple[Image.Image, int]:
            self.touched += 1
            return images()[index], CODES[index]

    data = Lazy()
    made = as_dataset(data)
    assert (made.labels.tolist(), data.touched) == (CODES, 0)


def test_columns_of_hugging_face_by_their_types() -> None:
    shown = images()

    class Columns:
        column_names = ("id", "image", "label")
        features: ClassVar[dict[str, Any]] = {
            "id": type("Value", (), {})(),
            "image": type("Image", (), {})(),
            "label": type("ClassLabel", (), {"names": ["jay", "owl", "tit", "wren"]})(),
        }

        def __len__(self) -> int:
            return len(CODES)

        def __getitem__(self, key: int | str) -> Any:
            if key == "label":
                return CODES
            return {"id": key, "image": shown[int(key)], "label": CODES[int(key)]}

    check(Columns())


def test_two_arrays() -> None:
    features = np.random.default_rng(0).normal(size=(6, 5)).astype(np.float32)
    made = as_dataset((features, LABELS))
    assert isinstance(made, FeatureDataset)
    assert made.labels.tolist() == CODES
    check((np.stack([np.asarray(image) for image in images()]), LABELS))
    with pytest.raises(ValueError, match="6 items and 5 labels"):
        as_dataset((features, LABELS[:5]))


def test_content_and_labels_change_the_fingerprint() -> None:
    features = np.arange(30.0).reshape(6, 5)
    first = as_dataset((features, LABELS)).fingerprint()
    assert first == as_dataset((features.copy(), LABELS)).fingerprint()
    assert first != as_dataset((features + 1, LABELS)).fingerprint()
    assert first != as_dataset((features, [*LABELS[:5], "owlet"])).fingerprint()
    shown = images()
    first = as_dataset(list(zip(shown, LABELS, strict=True))).fingerprint()
    shown[3] = shown[3].rotate(180)
    assert first != as_dataset(list(zip(shown, LABELS, strict=True))).fingerprint()


@pytest.mark.parametrize("given", [7, "no list", object()])
def test_what_is_no_data_is_refused(given: Any) -> None:
    with pytest.raises((ValueError, FileNotFoundError)):
        as_dataset(given)


def test_normalized_tensors_are_refused_with_advice() -> None:
    message = r"got float32 \[3, 8, 9\] from -2 to 2.5. Leave normalising to the run"
    with pytest.raises(ValueError, match=message):
        as_image(torch.linspace(-2, 2.5, 3 * 8 * 9).view(3, 8, 9))
