"""Effects with their intervals beside the published ones."""

import math
from dataclasses import replace
from typing import Any

import pytest

from unseen.core.statistics import crossed
from unseen.studies.effect_figure import OURS, PUBLISHED, UNSURE, effects_drawn, effects_figure
from unseen.studies.validity_checks import Compared, Reason, ValidityCheck

RESULT = crossed([[0.02, 0.03, 0.01, 0.02], [0.02, 0.02, 0.02, 0.03], [0.03, 0.03, 0.02, 0.01]])
EVALUATED = Compared("", "with", "without", RESULT, (), 4.0)
FAILED = replace(
    EVALUATED,
    method="other",
    validity_checks=(ValidityCheck("other", "tuned", "", (Reason("not tuned"),)),),
)


def axes(*result: Compared) -> Any:
    return effects_figure(result, "recall@1").axes[0]


def test_dots_intervals_and_diamonds_are_where_they_belong() -> None:
    ax = axes(EVALUATED, replace(FAILED, published=math.nan))
    dots = {bar.get_label(): bar.lines[0] for bar in ax.containers}
    assert dots[OURS].get_xdata()[0] == pytest.approx(100 * RESULT.value)
    assert dots[UNSURE].get_xdata()[0] == pytest.approx(100 * RESULT.value)
    assert dots[UNSURE].get_markerfacecolor() == "none"
    assert (dots[OURS].get_ydata()[0], dots[UNSURE].get_ydata()[0]) == (1, 0)  # first on top
    (segment,) = ax.containers[1].lines[2][0].get_segments()
    assert segment[:, 0].tolist() == pytest.approx([100 * RESULT.low, 100 * RESULT.high])
    (diamond,) = [line for line in ax.lines if line.get_label() == PUBLISHED]
    assert diamond.get_xydata().tolist() == [[4.0, 1.0]]
    assert [text.get_text() for text in ax.texts] == ["inconclusive", "smaller"]


def test_rows_are_named_by_what_differs() -> None:
    in_two = [replace(EVALUATED, experiment=name) for name in ("CUB", "Cars")]
    assert [tick.get_text() for tick in axes(*in_two).get_yticklabels()] == ["Cars", "CUB"]
    other = replace(FAILED, against="nothing")
    names = [tick.get_text() for tick in axes(EVALUATED, other).get_yticklabels()]
    assert names == ["other against nothing", "with against without"]


def test_captions_say_what_is_shown() -> None:
    (drawn,) = effects_drawn([EVALUATED])
    assert drawn.caption.startswith("What each method adds against without, in points of R@1")
    assert drawn.caption.endswith("Diamonds: the published effects.")
    (plain,) = effects_drawn([replace(EVALUATED, published=math.nan)], on_test=True)
    assert "Diamonds" not in plain.caption
    assert "test classes" in plain.figure.get_supxlabel()
    assert effects_drawn([replace(EVALUATED, effect=None)]) == []
