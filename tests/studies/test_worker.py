"""A worker's runs are prepared as those of `unseen train`."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from unseen.runs.prepare import RunContext
from unseen.studies import study_file as plans
from unseen.studies import worker as workers
from unseen.studies.engine import local_storage
from unseen.studies.worker import Worker
from unseen.training.events import Epoch


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Twelve classes of four images; one is a copy of another, one cannot be read."""
    generator = np.random.default_rng(0)
    for c in range(12):
        folder = tmp_path / "photos" / f"class{c}"
        folder.mkdir(parents=True)
        for i in range(4):
            pixels = generator.integers(0, 255, (16, 16, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / f"{i}.png")
    (tmp_path / "photos/class1/3.png").write_bytes((tmp_path / "photos/class0/0.png").read_bytes())
    (tmp_path / "photos/class0/3.png").write_bytes(b"\x89PNG, cut")
    return tmp_path / "photos"


def test_settings_keep_copies_strictness_and_the_scores_of_baselines(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One run for each way; the data is opened once for each."""
    seen: list[RunContext] = []

    def trained(context: RunContext, path: Path, *rest: Any) -> None:
        seen.append(context)
        raise RuntimeError("far enough")

    monkeypatch.setattr(workers, "train_and_evaluate", trained)
    config = {"data": {"name": "folder", "root": str(photos)}, "metrics": ["recall@1"]}
    factors = {"way": {"strict": {"strict": True}, "lax": {"strict": False}}}
    plan = plans.make(
        {"name": "x", "seeds": [0, 1], "config": config, "factors": factors, "retries": 0}
    )
    worker = Worker(plan, local_storage(tmp_path / "study"), tmp_path / "study")
    worker.work()
    assert [context.config.data.strict for context in seen] == [False, False]
    for context in seen:
        assert context.copies is not None
        assert context.copies.counts()["duplicates"] == 1
        assert context.known_scores is worker.known_scores
        assert context.dataset is seen[0].dataset
    errors = [trial.user_attrs["error"] for trial in worker.queues[""].trials()]
    assert sum("3.png" in error for error in errors) == 2  # strict: it ends the run


def test_a_search_hears_of_the_epochs_that_were_looked_at() -> None:
    heard: list[tuple[float, int]] = []
    trial: Any = SimpleNamespace(
        report=lambda value, epoch: heard.append((value, epoch)), should_prune=lambda: False
    )
    plan: Any = SimpleNamespace(search=SimpleNamespace(prune=True))
    callbacks = workers._reporting(trial, plan)
    for epoch, scores in enumerate((None, {"recall@1": 0.5})):  # validate_every=2
        callbacks.log(Epoch(epoch, 4 * epoch + 4, {"loss": 0.5}, 0.1, 1.0, 90.0, scores))
    assert heard == [(0.5, 1)]
