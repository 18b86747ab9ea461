"""The public functions take what people have."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import unseen
from unseen import losses
from unseen.config import keys
from unseen.config import schema as configs

pytestmark = pytest.mark.usefixtures("narrow_network")


def test_data_are_given_by_name_with_their_values(tmp_path: Path) -> None:
    run = unseen.fit(
        {"name": "glyphs", "max_classes": 20, "size": 16},
        epochs=1,
        metrics=["recall@1"],
        out=tmp_path / "run",
        progress=False,
    )
    assert run.result.data.classes == 20
    score = run.result.scores["trained"].metrics["recall@1"].value
    assert run.scores.loc["trained", "recall@1"] == score
    assert {"untrained", "pixels"} < set(run.scores.index)
    assert list(run.history.index) == [0]
    assert run.history.loc[0, "train/loss"] > 0
    assert "validation/recall@1" in run.history


DRAW = np.random.default_rng(0)
LABELS = np.repeat(np.arange(16), 6)
FEATURES = DRAW.normal(size=(16, 8))[LABELS] + 0.3 * DRAW.normal(size=(96, 8))
FEW = {"epochs": 1, "metrics": ["recall@1"], "progress": False}


def shortened(embeddings: Tensor, labels: Tensor) -> Tensor:
    """A loss of each item."""
    return embeddings.square().sum(dim=1)


def test_features_are_embedded_by_a_run_on_features(tmp_path: Path) -> None:
    run = unseen.fit((FEATURES, LABELS), embedding_size=4, out=tmp_path, **FEW)
    result = run.embed(FEATURES[:3])
    assert result.shape == (3, 4)
    torch.testing.assert_close(result.norm(dim=1), torch.ones(3))
    for same in (torch.from_numpy(FEATURES[:3]), FEATURES[:3].tolist(), FEATURES[:3].astype("f4")):
        torch.testing.assert_close(run.embed(same), result)
    torch.testing.assert_close(run.embed(FEATURES[1]), result[1])
    assert run.embed(FEATURES[:0]).shape == (0, 4)
    message = r"was trained on features of size 8: embed takes \[n, 8\] or \[8\], got "
    for other in (
        "a.jpg",
        ["a.jpg"],
        FEATURES[:, :5],
        np.zeros((4, 4, 3), np.uint8),
        [[1, 2], [3]],
    ):
        with pytest.raises(ValueError, match=message):
            run.embed(other)
    with pytest.raises(ValueError, match=r"features: 1 of 3 rows hold NaN or infinity \(rows 1\)"):
        run.embed(np.where(np.arange(3)[:, None] == 1, np.nan, FEATURES[:3]))


def test_none_is_nothing_in_python_too(tmp_path: Path) -> None:
    none = dict.fromkeys(("weights", "miner", "patience"), "none")
    run = unseen.fit((FEATURES, LABELS), out=tmp_path, **none, **FEW)
    stored = keys.short(configs.load(run.path / "config.toml"))
    assert all(stored[key] is None for key in none)


def test_a_list_of_losses_is_their_sum(tmp_path: Path) -> None:
    parts = ["proxy_anchor", (0.5, losses.TripletLoss(margin=0.3)), (shortened, 0.01)]
    run = unseen.fit((FEATURES, LABELS), loss=parts, out=tmp_path / "a", **FEW)
    stored = configs.load(run.path / "config.toml")
    assert stored["loss"]["weights"] == [1.0, 0.5, 0.01]
    assert stored["miner"]["name"] == "distance_weighted"  # that of the first that has one
    named = configs.override({}, ['loss=["proxy_anchor", "triplet"]', "loss.weights=[1.0, 0.5]"])
    made = configs.make(named)
    assert (made.loss_name, made.loss_weights) == ("proxy_anchor+triplet", [1.0, 0.5])
    assert configs.make(configs.parse(made.to_toml())) == made
    for wrong, message in (
        ([], "a sum of losses needs losses"),
        ([("triplet", "margin")], "a part with its weight is"),
        ([(-1.0, "triplet")], "a weight above 0"),
        (["triplet", "margn"], "did you mean margin"),
        ([{"name": "triplet", "margn": 0.1}], "did you mean margin"),
    ):
        with pytest.raises(ValueError, match=message):
            unseen.fit((FEATURES, LABELS), loss=wrong, out=tmp_path / "b", **FEW)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (None, r"labels are missing: .*\(features, labels\)"),
        (
            DRAW.normal(size=96),
            r"integers or words that name classes, got -?\d\.\d+",
        ),
        (
            np.where(LABELS == 3, np.nan, LABELS),
            r"no label: 6 items \(rows 18, 19, 20 and 3 more\)",
        ),
        ([None, *LABELS[1:]], r"no label: 1 items \(rows 0\)"),
        (np.eye(16)[LABELS] + np.eye(16)[0], "one class for each item"),
        (LABELS[:90], "96 items and 90 "),
    ],
)
def test_labels_that_are_none(labels: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        unseen.fit((FEATURES, labels), out=tmp_path, **FEW)
    with pytest.raises(
        ValueError, match=message.replace("96 items", "labels must be 96").split(" and")[0]
    ):
        unseen.evaluate(FEATURES, labels)


@pytest.mark.parametrize(
    "labels",
    [
        np.eye(16)[LABELS],
        torch.eye(16)[torch.from_numpy(LABELS)],
        LABELS.astype(float),
        torch.from_numpy(LABELS).float(),
        LABELS[:, None],
        [str(label) for label in LABELS],
    ],
    ids=["one-hot", "one-hot tensor", "floats", "float tensor", "a column", "words"],
)
def test_labels_of_any_make(labels: Any) -> None:
    from unseen.data.in_memory.user_data import as_dataset

    assert as_dataset((FEATURES, labels)).labels.tolist() == LABELS.tolist()
    result = unseen.evaluate(FEATURES, labels, metrics=["recall@1"]).values
    assert result == unseen.evaluate(FEATURES, LABELS, metrics=["recall@1"]).values


def test_lists_of_paths(tmp_path: Path) -> None:
    paths = [str(tmp_path / f"{number}.png") for number in range(24)]
    for path in paths:
        pixels = DRAW.integers(0, 256, (16, 16, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(path)
    with pytest.raises(ValueError, match=r"24 images without labels: .* \[\(path, label\), "):
        unseen.fit(paths, out=tmp_path / "run", **FEW)
    with pytest.raises(ValueError, match=r"no label: 24 items \(rows 0, 1, 2 and 21 more\)"):
        unseen.fit([(path, None) for path in paths], out=tmp_path / "run", **FEW)
    labels = [number // 3 for number in range(24)]
    small = {"backbone": "small_conv", "image_size": 16}
    run = unseen.fit((paths, labels), out=tmp_path / "run", **small, **FEW)
    assert run.result.data.classes == 8


def test_a_network_with_another_size_than_requested_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"embedding_size=16, but network gives 4: leave .* out"):
        unseen.fit(
            (FEATURES, LABELS), network=nn.Linear(8, 4), embedding_size=16, out=tmp_path, **FEW
        )


def test_messages_name_what_python_takes(tmp_path: Path) -> None:
    unseen.fit((FEATURES, LABELS), out=tmp_path, **FEW)
    with pytest.raises(ValueError, match=r"other settings \(lr\): choose another out$"):
        unseen.fit((FEATURES, LABELS), lr=0.5, out=tmp_path, **FEW)
