"""What training added to the network it began with, on the same queries of unseen classes.

Every query is answered twice, before and after; the interval is that of the mean difference, with
whole classes drawn with replacement, because the next user brings other classes. `conclusion` is
the
headline of terminal, report and Python: by recall@1 and mAP@R together, what the time budget cut
first, then what training added, with what to try.
"""

from collections.abc import Mapping
from dataclasses import astuple, dataclass, field
from typing import Literal

from torch import Tensor

from unseen.core.statistics import bootstrap
from unseen.evaluation.evaluate import Evaluation
from unseen.evaluation.findings import Finding, Level

FIRST, ALL = "recall@1", "map_at_r"
NEARLY_ALL = 0.95  # a start that finds so many leaves little to learn
TITLES = {FIRST: "recall@1", ALL: "mAP@R"}
UNTRAINED = "untrained network"
USUAL_MINUTES = 20.0  # of a time budget

Kind = Literal["features", "frozen", "pretrained", "random"]
REMEDIES: dict[Kind, str] = {
    "features": "More classes, another loss; or use the features as they are.",
    "frozen": "Train its layers too (depth=full), or on more classes; or use it as it is.",
    "pretrained": "A lower lr (lr=1e-5), frozen layers (freeze_until=pooled), or more classes.",
    "random": "Train longer (epochs), at another lr, on more classes, or a pretrained backbone.",
}


@dataclass(frozen=True)
class Start:
    """What training began with. kind: what may be done otherwise."""

    title: str
    kind: Kind


@dataclass(frozen=True)
class Extent:
    """How far training went. stage: that was selected; epochs: done of those that were planned;
    minutes: its time budget; cuts: what that ended or left out while it ran; savings: what the plan
    did without from the beginning; enough: minutes that would do, by the plan."""

    stage: str
    epochs: int
    planned: int
    image_size: int | None = None
    minutes: float | None = None
    cuts: list[str] = field(default_factory=list)
    savings: list[str] = field(default_factory=list)
    enough: float | None = None

    def __str__(self) -> str:
        size = "" if self.image_size is None else f", images of {self.image_size} px"
        return f"Stage {self.stage}: {self.epochs} of {self.planned} epochs{size}."

    def limits(self, is_good: bool) -> str:
        """What the time budget limited, in words; a run that gained has no need of what its plan
        saved."""
        is_logged = bool(self.cuts) or not is_good
        return "; ".join(self.cuts + self.savings) if is_logged else ""

    @property
    def more(self) -> float:
        """Minutes that would do; where the plan did not hold, its own estimate is too low."""
        usual = max(USUAL_MINUTES, 2 * (self.minutes or 0.0))
        return usual if self.enough is None else max(self.enough, usual if self.cuts else 0.0)


@dataclass(frozen=True)
class Gain:
    """One metric before and after, and the 95 % interval of the difference over classes."""

    before: float
    after: float
    low: float
    high: float


def gains(before: Evaluation, after: Evaluation, labels: Tensor, seed: int) -> dict[str, Gain]:
    """Of those metrics that both have for each query; `labels` [Q] are the queries' classes."""
    result = {}
    for metric in (FIRST, ALL):
        if metric in before.per_query and metric in after.per_query:
            difference = after.per_query[metric] - before.per_query[metric]
            interval = bootstrap(difference[:, None], labels, seed=seed)[0]
            ends = (before.values[metric].value, after.values[metric].value)
            result[metric] = Gain(*ends, interval.low, interval.high)
    return result


def rounded(gain: Gain) -> Gain:
    """As it is stored."""
    return Gain(*(round(value, 6) for value in astuple(gain)))


def conclusion(
    start: Start, result: Mapping[str, Gain], keeps_start: bool, extent: Extent | None = None
) -> Finding | None:
    """What training added, by metric, to its start; None where recall@1 is not known. keeps_start:
    no epoch was better; extent: how far training went."""
    if FIRST not in result:
        return None
    in_order = {metric: result[metric] for metric in TITLES if metric in result}
    finding = _finding(start, in_order, keeps_start)
    if extent is None or not (limits := extent.limits(finding.level == "good")):
        return finding
    head = f"The time budget of {extent.minutes:g} min limited this run"
    level: Level = "note" if finding.level == "good" else finding.level
    remedy = f"Give it more time first: time_budget={extent.more:g}."
    detail = f"{limits}. So far {finding.text[0].lower()}{finding.text[1:]}"
    return Finding("training", level, head, remedy, detail)


def _finding(start: Start, result: Mapping[str, Gain], keeps_start: bool) -> Finding:
    first = result[FIRST]
    better = [metric for metric, gain in result.items() if gain.low > 0]
    worse = [metric for metric, gain in result.items() if gain.high < 0]
    rest = [metric for metric in result if metric not in (*better, *worse)]
    remedy = REMEDIES[start.kind]
    if first.before >= NEARLY_ALL:
        remedy = f"The start finds nearly all: evaluate on harder or more classes. {remedy}"
    if better:
        head = f"Training added {_message(result, better)} to its start"
        detail = f"{start.title}."
        detail += f" Worse: {_message(result, worse)}." if worse else ""
        detail += f" Within chance: {_message(result, rest)}." if rest else ""
        if FIRST in better and not worse:
            return Finding("training", "good", head, detail=detail)
        return Finding("training", "note", head, remedy, detail)
    numbers = f"{_scores(result)} ({start.title}); {_message(result, list(result))}"
    head = "Training added nothing beyond chance"
    if worse:
        head = "Training made it worse"
    elif first.after < first.before:
        head = "Below its own start, within chance"
    elif keeps_start:
        head = "No epoch was better than the start, which is kept"
    return Finding("training", "warning", head, remedy, f"{numbers}.")


def _scores(result: Mapping[str, Gain]) -> str:
    return ", ".join(
        f"{TITLES[metric]} {gain.after:.1%} after training, {gain.before:.1%} before"
        for metric, gain in result.items()
    )


def _message(result: Mapping[str, Gain], metrics: list[str]) -> str:
    """+9.5 points of mAP@R (95 % interval +6.1 … +12.9 over classes)."""
    return ", ".join(
        f"{100 * (gain.after - gain.before):+.1f} points of {TITLES[metric]} (95 % interval "
        f"{100 * gain.low:+.1f} … {100 * gain.high:+.1f} over classes)"
        for metric, gain in result.items()
        if metric in metrics
    )
