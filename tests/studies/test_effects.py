"""Effects with their intervals beside the published ones."""

import math
from dataclasses import replace
from typing import Any

import pytest

from unseen.statistics import crossed
from unseen.studies.effects import OURS, PUBLISHED, UNSURE, effects_drawn, effects_figure
from unseen.studies.gates import Compared, Gate

FOUND = crossed([[0.02, 0.03, 0.01, 0.02], [0.02, 0.02, 0.02, 0.03], [0.03, 0.03, 0.02, 0.01]])
JUDGED = Compared("", "with", "without", FOUND, (), 4.0)
FAILED = replace(JUDGED, arm="other", gates=(Gate("other", "tuned", "", "not tuned"),))


def axes(*found: Compared) -> Any:
    return effects_figure(found, "recall@1").axes[0]


def test_dots_intervals_and_diamonds_are_where_they_belong() -> None:
    ax = axes(JUDGED, replace(FAILED, published=math.nan))
    dots = {bar.get_label(): bar.lines[0] for bar in ax.containers}
    assert dots[OURS].get_xdata()[0] == pytest.approx(100 * FOUND.value)
    assert dots[UNSURE].get_xdata()[0] == pytest.approx(100 * FOUND.value)
    assert dots[UNSURE].get_markerfacecolor() == "none"
    assert (dots[OURS].get_ydata()[0], dots[UNSURE].get_ydata()[0]) == (1, 0)  # first on top
    (segment,) = ax.containers[1].lines[2][0].get_segments()
    assert segment[:, 0].tolist() == pytest.approx([100 * FOUND.low, 100 * FOUND.high])
    (diamond,) = [line for line in ax.lines if line.get_label() == PUBLISHED]
    assert diamond.get_xydata().tolist() == [[4.0, 1.0]]
    assert [text.get_text() for text in ax.texts] == ["cannot be judged", "smaller"]


def test_rows_are_named_by_what_differs() -> None:
    in_two = [replace(JUDGED, experiment=name) for name in ("CUB", "Cars")]
    assert [tick.get_text() for tick in axes(*in_two).get_yticklabels()] == ["Cars", "CUB"]
    other = replace(FAILED, against="nothing")
    names = [tick.get_text() for tick in axes(JUDGED, other).get_yticklabels()]
    assert names == ["other against nothing", "with against without"]


def test_captions_say_what_is_shown() -> None:
    (drawn,) = effects_drawn([JUDGED])
    assert drawn.caption.startswith("What each arm adds against without, in points of R@1")
    assert drawn.caption.endswith("Diamonds: the published effects.")
    (plain,) = effects_drawn([replace(JUDGED, published=math.nan)], on_test=True)
    assert "Diamonds" not in plain.caption
    assert "test classes" in plain.figure.get_supxlabel()
    assert effects_drawn([replace(JUDGED, effect=None)]) == []
