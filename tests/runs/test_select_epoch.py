"""The epoch that is kept: the start counts, ties are resolved, few classes do not decide."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from unseen.config import build
from unseen.config import schema as configs
from unseen.reports.score_tables import selected as in_words
from unseen.runs.calibrate_run import calibrate_run
from unseen.runs.callbacks import Validation
from unseen.runs.prepare import Callbacks, RunContext, prepare
from unseen.runs.run import train, train_and_evaluate
from unseen.runs.select_epoch import START, Selector
from unseen.runs.trained_run import Trained
from unseen.training.event_log import read
from unseen.training.run_folder import RunFolder

MANY = 50


def kept(
    recall: Sequence[float],
    precision: Sequence[float] | None = None,
    classes: int = MANY,
    by: str = "recall@1",
) -> int:
    """The epoch that is kept where these are the scores of the start and of each epoch."""
    selector = Selector("validation", classes, by)
    for place, value in enumerate(recall):
        more = 0.0 if precision is None else precision[place]
        selector.takes(place + START, {"recall@1": value, "map_at_r": more})
    return selector.best.epoch


def test_the_start_is_kept_where_no_epoch_is_better() -> None:
    assert kept([0.9, 0.8, 0.9, 0.85]) == START
    assert kept([0.9, 0.8, 0.91, 0.85]) == 1


def test_equal_recall_is_decided_by_precision_then_by_the_earlier_epoch() -> None:
    assert kept([0.9, 1.0, 1.0, 1.0, 1.0], [0.5, 0.6, 0.8, 0.8, 0.7]) == 1
    assert kept([0.9, 1.0, 1.0], [0.9, 0.5, 0.5]) == 0


def test_precision_decides_where_that_is_requested() -> None:
    by = "map_at_r"
    assert kept([0.9, 0.8, 0.9, 0.95], [0.5, 0.6, 0.6, 0.55], by=by) == 1
    assert kept([0.9, 0.95], [0.5, 0.4], by=by) == START
    selector = Selector("validation", MANY, by)
    selector.takes(START, {"recall@1": 1.0, by: 0.5})
    assert (selector.best.by, selector.best.value, selector.is_full) == (by, 1.0, True)


def test_the_last_epoch_is_selected_where_that_is_requested() -> None:
    assert kept([0.9, 1.0, 0.5, 0.4], by="last") == 2
    selector = Selector("validation", MANY, "last")
    for epoch in (START, 0):
        selector.takes(epoch, {"recall@1": 1.0, "map_at_r": 0.5})
    assert (selector.best.fallback, selector.best.by) == ("last", "last")
    assert not selector.is_full
    assert not selector.is_behind
    assert in_words(selector.best) == "epoch 1, the last: select_by = last"


def test_a_training_falls_short_where_it_would_gain_on_and_still_end_below_the_goal() -> None:
    def falls_short(*recall: float, goal: float, ranked: float = 0.0, by: str = "recall@1") -> bool:
        """With three times as much to come; mAP@R rises from 0 to `ranked`, and is to be 0.4."""
        selector = Selector("validation", MANY, by)
        for epoch, value in enumerate(recall, START):
            later = ranked if epoch > START else 0.0
            selector.takes(epoch, {"recall@1": value, "map_at_r": later})
        return selector.falls_short({"recall@1": goal, "map_at_r": 0.4}, 3.0)

    assert falls_short(0.880, 0.884, goal=0.954), "birds: 0.884 + 3 * 0.004"
    assert not falls_short(0.605, 0.720, goal=0.813), "cars: 0.720 + 3 * 0.115"
    assert not falls_short(0.880, 0.884, goal=0.895), "0.884 + 3 * 0.004 is no less"
    assert not falls_short(0.880, 0.960, 0.884, goal=0.954), "it was there"
    assert not falls_short(0.880, 0.884, goal=float("nan")), "unknown"
    for by in ("recall@1", "map_at_r"):
        assert falls_short(0.880, 0.884, goal=0.954, ranked=0.099, by=by)
        assert not falls_short(0.880, 0.884, goal=0.954, ranked=0.101, by=by), "in one of two"
    assert not falls_short(0.880, 0.884, goal=0.954, by="last"), "nothing is compared"


def test_few_classes_select_by_a_mean_over_epochs() -> None:
    jump = [0.5, 0.9, 0.5, 0.7, 0.8, 0.8, 0.8, 0.6]
    assert kept(jump) == 0, "one lucky epoch"
    means = [np.mean(jump[max(0, i - 2) : i + 1]) for i in range(len(jump))]
    assert kept(jump, classes=9) == int(np.argmax(means)) + START == 5


def best_by(recall: Sequence[float], precision: Sequence[float], *words: Any) -> str:
    """What the last epoch is the best by; nothing where it is not."""
    selector, taken = Selector("validation", *words), False
    for place, scores in enumerate(zip(recall, precision, strict=True)):
        taken = selector.takes(place + START, {"recall@1": scores[0], "map_at_r": scores[1]})
    return selector.by if taken else ""


def test_the_best_epoch_says_which_scores_were_compared() -> None:
    assert best_by([0.5, 0.6], [0.2, 0.1], MANY) == "recall@1 60.0"
    assert best_by([0.6, 0.6], [0.2, 0.3], MANY) == "mAP@R 30.0 (recall@1 is equal)"
    assert best_by([0.6, 0.5], [0.2, 0.3], MANY, "map_at_r") == "mAP@R 30.0"
    assert best_by([0.3, 0.8, 0.7], [0.2] * 3, 9) == "recall@1 60.0 (mean of 3 epochs)"
    assert best_by([0.6, 0.5], [0.2, 0.3], MANY) == ""


def test_too_few_classes_select_nothing() -> None:
    assert kept([0.9, 1.0, 0.5, 0.4], classes=2) == 2
    assert kept([0.9, 1.0, 0.5, 0.4], classes=3) == 0


def test_recall_is_full_only_where_enough_classes_say_so() -> None:
    def is_full(*recall: float, classes: int = MANY) -> bool:
        selector = Selector("validation", classes)
        for place, value in enumerate(recall):
            selector.takes(place + START, {"recall@1": value, "map_at_r": 0.5})
        return selector.is_full

    assert is_full(0.9, 1.0, 0.8)
    assert not is_full(0.9, 0.999)
    assert not is_full(0.9, 1.0, 1.0, classes=9), "a mean of three epochs"
    assert is_full(0.9, 1.0, 1.0, 1.0, classes=9)
    assert not is_full(1.0, 1.0, 1.0, classes=2), "too few"


def test_a_selection_goes_on_as_if_never_stopped() -> None:
    values = torch.rand(20, 2, generator=torch.Generator().manual_seed(1)).double().tolist()
    for classes in (2, 5, MANY):
        whole, first, second = (Selector("validation", classes) for _ in range(3))
        for epoch, (recall, precision) in enumerate(values):
            scores = {"recall@1": recall, "map_at_r": precision}
            taken = whole.takes(epoch, scores)
            half = first if epoch < 7 else second
            if epoch == 7:
                second.go_on(first.best, first.state_dict())
            assert half.takes(epoch, scores) == taken
        assert second.best == whole.best


class Discs:
    """Images of one grey per class, with noise."""

    name = "discs"
    official_test_classes = None

    def __init__(self, classes: int) -> None:
        self.labels = np.repeat(np.arange(classes), 5)
        self.label_names = [str(c) for c in range(classes)]

    def __len__(self) -> int:
        return len(self.labels)

    def image(self, index: int) -> Image.Image:
        grey = 40 + 9 * int(self.labels[index]) + index % 5
        return Image.new("RGB", (16, 16), (grey, 255 - grey, grey))

    def describe(self) -> dict[str, Any]:
        return {"items": len(self), "classes": len(self.label_names)}

    def fingerprint(self) -> str:
        return f"discs {len(self)}"


def setting_of(classes: int, *words: str) -> RunContext:
    tiny = ["workers=0", "epochs=2", "embedding_size=8", 'metrics=["recall@1"]', *words]
    config = configs.make(configs.override({}, tiny))
    return prepare(config, dataset=Discs(classes))  # type: ignore[arg-type]


@pytest.mark.usefixtures("narrow_network")
def test_too_few_validation_classes_are_reported_before_training(tmp_path: Path) -> None:
    message: list[str] = []
    callbacks = Callbacks([lambda event: message.append(type(event).__name__)], warn=message.append)
    context = setting_of(10)
    selection = train(context, tmp_path, "test", callbacks)
    assert (selection.epoch, selection.fallback) == (1, "last")
    advice = message[0]
    for words in ("2 validation classes are too few", "the last one is kept", "calibrate"):
        assert words in advice
    assert "validation_fraction=0.6 sets 3 of 5 aside" in advice
    assert message[1] == "Start"
    assert not any(getattr(event, "best", False) for event in read(tmp_path / "events.jsonl"))
    with pytest.raises(ValueError, match=r"validation_fraction=0\.6 sets 3 of 5 aside"):
        calibrate_run(context, Trained.open(tmp_path), Callbacks())


@pytest.mark.usefixtures("narrow_network")
def test_the_fraction_that_is_advised_lets_the_run_be_calibrated(tmp_path: Path) -> None:
    message: list[str] = []
    context = setting_of(10, "validation_fraction=0.6")
    train(context, tmp_path, "test", Callbacks(warn=message.append))
    assert not any("too few" in text for text in message)
    assert calibrate_run(context, Trained.open(tmp_path), Callbacks()).classes == 3


@pytest.mark.usefixtures("narrow_network")
def test_training_that_only_harms_keeps_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    falling = iter([0.9, 0.8, 0.7])
    monkeypatch.setattr(
        Validation,
        "_scores",
        lambda self, embeddings, items: {
            "recall@1": 0.9 if items is self.monitored else next(falling),
            "map_at_r": 0.5,
        },
    )
    context = setting_of(20, "refit=true")
    result = train_and_evaluate(context, tmp_path, "test")
    assert result.selection is not None
    assert result.selection.epoch == START
    assert result.selection.refit is not None
    assert result.selection.refit.epochs == 0
    kept = RunFolder(tmp_path).read_tensors("weights.safetensors")
    start = build.network(context.config).state_dict()
    assert all(torch.equal(kept[name], start[name]) for name in start)
    assert result.scores["trained"].metrics == result.scores["untrained"].metrics
    warnings: list[str] = []
    calibrate_run(context, Trained.open(tmp_path), Callbacks(warn=warnings.append))
    assert not any("refit" in text for text in warnings)  # no epoch of it was trained
