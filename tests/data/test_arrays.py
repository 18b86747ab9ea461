"""Features as data: columns mean what they say, wrong files are named, a head trains on them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from unseen.config import build
from unseen.config import schema as configs
from unseen.config.resolve import resolve
from unseen.config.schema import Config
from unseen.core.contracts import FeatureDataset, annotations_of
from unseen.data.arrays import Arrays
from unseen.data.images.loader import evaluation_batches
from unseen.runs.prepare import prepare
from unseen.runs.run import train_and_evaluate

CLASSES, EACH, SIZE = 12, 6, 10


def arrays(seed: int = 0, **more: Any) -> dict[str, Any]:
    """Classes around centres; float16, as a file of features often is."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(CLASSES), EACH)
    features = rng.normal(size=(CLASSES, SIZE))[labels] + 0.3 * rng.normal(size=(72, SIZE))
    return {"features": features.astype(np.float16), "labels": labels.astype(np.uint8)} | more


@pytest.fixture
def file(tmp_path: Path) -> Path:
    np.savez(tmp_path / "birds.npz", **arrays())
    return tmp_path / "birds.npz"


def saved(folder: Path, **held: Any) -> Path:
    np.savez(folder / "other.npz", **held)
    return folder / "other.npz"


def test_rows_come_as_they_are(file: Path) -> None:
    dataset = Arrays(file)
    assert isinstance(dataset, FeatureDataset)
    assert dataset.name == "birds"
    assert len(dataset) == CLASSES * EACH
    items = np.array([70, 3, 3, 9])
    (batch,) = evaluation_batches(dataset, items, None, 8, workers=0)
    assert batch.images.dtype == torch.float32
    assert np.array_equal(batch.images.numpy(), arrays()["features"][items].astype(np.float32))
    assert batch.labels.tolist() == [11, 0, 0, 1]
    with pytest.raises(ValueError, match="no images"):
        dataset.image(0)


def test_the_second_half_is_tested_unless_the_file_or_the_user_says_otherwise(
    file: Path, tmp_path: Path
) -> None:
    assert Arrays(file).official_test_classes is not None
    assert Arrays(file).official_test_classes.tolist() == [6, 7, 8, 9, 10, 11]  # type: ignore[union-attr]
    assert Arrays(file, test="random").official_test_classes is None
    parts = np.repeat(["test", "val", "train"], [18, 12, 42])
    dataset = Arrays(saved(tmp_path, **arrays(split=parts)))
    assert dataset.official_test_classes is not None
    assert dataset.official_test_classes.tolist() == [0, 1, 2]
    assert annotations_of(dataset).validation_classes is not None
    assert annotations_of(dataset).validation_classes.tolist() == [3, 4]  # type: ignore[union-attr]


def test_names_and_further_columns(tmp_path: Path) -> None:
    labels = arrays()["labels"]
    held = arrays(
        label_names=np.array([f"bird {c}" for c in range(CLASSES)]),
        label_family=np.where(labels < 4, "gull", "wren"),
        is_query=labels > 5,
        is_gallery=labels > 5,
        groups=np.where(labels == 2, 7, -1),
    )
    dataset = Arrays(saved(tmp_path, **held))
    assert dataset.label_names[11] == "bird 11"
    message = annotations_of(dataset)
    assert list(message.labels) == ["family"]
    assert np.array_equal(message.labels["family"], (labels >= 4).astype(int))
    assert message.query is not None
    assert np.array_equal(message.query, labels > 5)
    assert message.ignore_groups is not None
    assert np.array_equal(message.ignore_groups >= 0, labels == 2)


def test_words_are_labels(tmp_path: Path) -> None:
    words = np.array([f"class {c}" for c in arrays()["labels"]])
    dataset = Arrays(saved(tmp_path, features=arrays()["features"], labels=words))
    assert dataset.label_names[:3] == ["class 0", "class 1", "class 10"]


def test_the_fingerprint_sees_every_change(file: Path, tmp_path: Path) -> None:
    same = Arrays(saved(tmp_path, **arrays())).fingerprint()
    assert same == Arrays(file).fingerprint()
    held = arrays()
    held["features"][5, 5] += 1
    assert Arrays(saved(tmp_path, **held)).fingerprint() != same
    held = arrays()
    held["labels"][0] = 1
    assert Arrays(saved(tmp_path, **held)).fingerprint() != same


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"features": np.zeros(72)}, r"must be \[n, P\] numbers"),
        ({"features": np.array([["a"]] * 72)}, r"must be \[n, P\] numbers"),
        ({"features": np.full((72, 2), np.nan)}, "72 rows .* not finite .* the first is row 0"),
        ({"features": np.full((72, 2), 1e39)}, "72 rows .* beyond .* the largest float32"),
        ({"labels": np.zeros(71, int)}, r"labels .* must be \[72\], got \[71\]"),
        ({"labels": np.zeros(72)}, "integers or words"),
        ({"labels": np.zeros(72, int)}, "1 classes .* at least 4"),
        ({"label_names": np.array(["a", "b"])}, "label_names .* has 2 entries"),
        ({"split": np.array(["train"] * 72)}, "rows of train and of test"),
        ({"split": np.array(["train", "test"] * 36)}, "12 classes are in both train and test"),
        ({"split": np.array(["learn"] * 72)}, "train, validation or test, got 'learn'"),
        ({"is_query": np.array(["perhaps"] * 72)}, "true or false, got 'perhaps'"),
    ],
)
def test_wrong_columns_are_named(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Arrays(saved(tmp_path, **(arrays() | change)))


def test_wrong_files_are_named(file: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no such file"):
        Arrays(tmp_path / "none.npz")
    with pytest.raises(ValueError, match="has no array 'x', it has features, labels"):
        Arrays(file, features="x")
    content = file.read_bytes()
    for damaged in (b"", b"PK\3\4 no", content[: len(content) // 2], b"\x80\x04K\x01."):
        file.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"not a whole \.npz file"):
            Arrays(file)


def resolved(file: Path, *words: str) -> tuple[Config, list[str]]:
    given = ["data=arrays", f"data.root={file}", *words]
    dataset: Any = Arrays(file)
    return resolve(configs.make(configs.override({}, given)), dataset)


def test_a_head_is_chosen(file: Path) -> None:
    config, reasons = resolved(file)
    assert config.model.backbone == f"features:{SIZE}"
    assert (
        config.data.transform.name,
        config.data.image_size,
        config.training.machine.threads,
    ) == (None, None, 1)
    assert any("head" in str(reason) for reason in reasons)
    network = build.network(config)
    assert network.layers() == ["pooled", "head.fc1", "embedding"]
    rows = torch.randn(3, SIZE)
    assert torch.equal(network(rows).pooled, rows)
    assert network(rows).embeddings.shape == (3, 128)


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("backbone=resnet50", "features of size 10: a head is trained"),
        ("backbone=features:11", "features of size 10: a head is trained"),
    ],
)
def test_a_network_for_images_is_refused(file: Path, word: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        resolved(file, word)


def test_a_run_evaluates_the_features_too_and_can_be_read_back(file: Path, tmp_path: Path) -> None:
    given = ["data=arrays", f"data.root={file}", "epochs=2", "batch_size=8", "embedding_size=8"]
    context = prepare(configs.make(configs.override({}, given)))
    result = train_and_evaluate(context, tmp_path / "run", "test")
    assert list(result.scores) == ["trained", "untrained", "principal", "features"]
    assert result.split.test_classes == 6
    written = configs.make_resolved(configs.load(tmp_path / "run" / "config.toml"))
    assert written == context.config


def test_sets_of_labels_and_levels(tmp_path: Path) -> None:
    coarse = np.repeat(np.arange(3), 24)
    sets = np.array([f"{label}|x" for label in range(72)])
    message = annotations_of(Arrays(saved(tmp_path, **arrays(level_1=coarse, label_sets=sets))))
    assert message.levels == ("level_1",)
    assert message.labels["level_1"].tolist() == coarse.tolist()
    assert message.label_sets is not None
    assert message.label_sets.shape == (72, 2)
    named = arrays(label_family=coarse, levels=np.array(["family"]))
    assert annotations_of(Arrays(saved(tmp_path, **named))).levels == ("family",)
    with pytest.raises(ValueError, match="famly"):
        Arrays(saved(tmp_path, **(named | {"levels": np.array(["famly"])})))
