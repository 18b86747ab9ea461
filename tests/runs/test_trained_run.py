"""The run's descriptor: chosen on validation classes, evaluated, stored, and the same from
`unseen.load`."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import unseen
from unseen.config import schema as configs
from unseen.runs.prepare import Callbacks, RunContext, prepare
from unseen.runs.run import train_and_evaluate
from unseen.runs.trained_run import Trained
from unseen.training.events import DescriptorChosen
from unseen.training.run_folder import RunFolder
from unseen.training.selected_weights import Descriptor, read_selection, write_selection

pytestmark = pytest.mark.usefixtures("narrow_network")

TINY = [
    "data.max_classes=30",
    "batch_size=16",
    "embedding_size=16",
    "epochs=1",
    "sampler.steps=2",
    "workers=0",
    'metrics=["recall@1"]',
]


def setting_of(*words: str) -> RunContext:
    return prepare(configs.make(configs.override({}, [*TINY, *words])))


def stored(folder: Path) -> dict[str, Any]:
    with np.load(folder / "embeddings" / "test.npz") as arrays:
        return dict(arrays)


@pytest.mark.parametrize(
    ("descriptor", "size"),
    [("embedding", 16), ("stage2", 32), ("best", None), ("orders", 16)],
    ids=str,
)
def test_what_is_evaluated_is_what_is_loaded(
    descriptor: str, size: int | None, tmp_path: Path
) -> None:
    horde = 'regularizers=[{name="horde", dimension=32, num_orders=3}]'
    context = setting_of(f"descriptor={descriptor}", *([horde] if descriptor == "orders" else []))
    message: list[dict[str, Any]] = []
    result = train_and_evaluate(context, tmp_path, "test", Callbacks([message.append]))
    assert result.selection is not None
    assert read_selection(RunFolder(tmp_path)) == result.selection
    chosen = result.selection.descriptor
    assert chosen is not None
    trained = unseen.load(tmp_path)
    assert trained.descriptor == chosen.layer
    if descriptor == "best":
        recall = chosen.recall or {}
        assert chosen.on == "validation"
        assert recall[chosen.layer] == max(recall.values())
        assert set(recall) == {"stage1", "stage2", "stage3", "pooled", "embedding"}
        assert [event.layer for event in message if isinstance(event, DescriptorChosen)] == [
            chosen.layer
        ]
    else:
        assert chosen == Descriptor(descriptor, layer=descriptor)
        assert trained.network.embedding_size == size
    kept = stored(tmp_path)
    images = [context.dataset.image(int(i)) for i in kept["indices"][:5]]
    matches = trained.embed([*images[:3], np.asarray(images[3]), images[4]])
    expected = torch.nn.functional.normalize(torch.from_numpy(kept["embeddings"][:5]))
    torch.testing.assert_close(matches, expected, atol=1e-5, rtol=1e-4)


def test_paths_are_embedded_like_images_and_none_at_all_gives_none(tmp_path: Path) -> None:
    context = setting_of()
    train_and_evaluate(context, tmp_path, "test")
    trained = Trained.open(tmp_path)
    image = context.dataset.image(0)
    image.save(tmp_path / "one.png")
    assert torch.equal(trained.embed([tmp_path / "one.png"]), trained.embed([image]))
    assert trained.embed([]).shape == (0, 16)
    for one in (image, str(tmp_path / "one.png"), np.asarray(image)):
        assert torch.equal(trained.embed(one), trained.embed([image])[0])
    stack = np.stack([np.asarray(image.convert("RGB"))] * 2)
    assert trained.embed(stack).shape == (2, 16)


def test_a_layer_that_is_not_there_stops_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no layer named 'stage7': did you mean"):
        train_and_evaluate(setting_of("descriptor=stage7"), tmp_path / "run", "test")
    assert not (tmp_path / "run").exists()


def test_orders_need_horde() -> None:
    with pytest.raises(ValueError, match="regularizers=horde"):
        setting_of("descriptor=orders")


def test_what_cannot_be_loaded_says_why(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds no trained network"):
        unseen.load(tmp_path)
    train_and_evaluate(setting_of("descriptor=best"), tmp_path, "test")
    folder = RunFolder(tmp_path)
    write_selection(folder, replace(read_selection(folder), descriptor=None))
    with pytest.raises(ValueError, match="has not chosen its best layer yet: `unseen evaluate"):
        unseen.load(tmp_path)
