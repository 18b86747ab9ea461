"""Runs of a study on frozen layers compute them once."""

from pathlib import Path

import pytest

from unseen.studies import study_file
from unseen.studies.engine import Study


def test_two_workers_share_the_frozen_layers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNSEEN_CACHE", str(tmp_path / "cache"))
    config = {
        "data": {"name": "glyphs", "max_classes": 16, "size": 16},
        "freeze_until": "stage2",
        "cached_augmentations": 1,
        "epochs": 1,
        "batch_size": 16,
        "sampler": {"name": "m_per_class", "steps": 2},
        "metrics": ["recall@1"],
    }
    factors = {"loss": ["margin", "contrastive", "triplet"]}
    made = study_file.make({"name": "shared", "seeds": [0], "config": config, "factors": factors})
    results = Study(made).run(tmp_path / "study", jobs=2)
    assert [run.state for run in results.runs] == ["done"] * 3
    kept = [path for path in (tmp_path / "cache" / "activations").iterdir() if path.is_dir()]
    assert len(kept) == 2  # the images as trained on and as evaluated, for all three runs
