"""A head that starts from the principal directions of what it is given."""

from pathlib import Path

import numpy as np
import pytest
import torch

from unseen import config as configs
from unseen.experiment.run import train_and_judge
from unseen.experiment.setting import Setting, Watch, prepare
from unseen.training.run_folder import RunFolder


def setting(folder: Path, *words: str) -> Setting:
    """Features whose first four directions tell classes apart, twenty others do not."""
    generator = np.random.default_rng(0)
    labels = np.repeat(np.arange(12), 10)
    values = 0.3 * generator.normal(size=(120, 24))
    values[:, :4] += 3 * generator.normal(size=(12, 4))[labels]
    np.savez(folder / "x.npz", features=values.astype(np.float32), labels=labels)
    given = ["data=arrays", f"data.root={folder / 'x.npz'}", "epochs=2", "batch_size=16"]
    return prepare(configs.make(configs.override({}, [*given, "embedding_size=4", *words])))


def test_the_untrained_network_is_the_start(tmp_path: Path) -> None:
    made = setting(tmp_path)
    assert made.config.head.start == "pca"
    scores = train_and_judge(made, tmp_path / "pca", "test")["scores"]
    random = setting(tmp_path, "head.start=default")
    others = train_and_judge(random, tmp_path / "random", "test")["scores"]
    untrained = scores["untrained"]["metrics"]["recall@1"]["value"]
    assert untrained == pytest.approx(scores["features"]["metrics"]["recall@1"]["value"], abs=0.1)
    assert untrained > others["untrained"]["metrics"]["recall@1"]["value"]
    assert not (tmp_path / "random" / "start.safetensors").exists()


@pytest.mark.parametrize("words", [(), ("refit=true",), ("ema=0.9",)])
def test_a_stopped_run_goes_on_from_the_same_start(tmp_path: Path, words: tuple[str, ...]) -> None:
    made = setting(tmp_path, *words)
    whole = train_and_judge(made, tmp_path / "whole", "test")

    def stop(event: dict[str, object]) -> None:
        if event["event"] == "epoch":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_and_judge(made, tmp_path / "cut", "test", Watch([stop]))
    assert train_and_judge(made, tmp_path / "cut", "test") == whole
    one, two = (
        RunFolder(tmp_path / name).read_tensors("weights.safetensors") for name in ("whole", "cut")
    )
    assert all(torch.equal(one[key], two[key]) for key in one)
