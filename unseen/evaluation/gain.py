"""What training added to the network it began with, on the same queries of unseen classes.

Every query is answered twice, before and after; the interval is that of the mean difference, with
whole classes drawn with replacement, because the next user brings other classes. Where it holds 0,
training may have added nothing, and `verdict` says so first, with what to try.
"""

from collections.abc import Mapping
from dataclasses import astuple, dataclass
from typing import Literal

from torch import Tensor

from unseen.evaluation.evaluate import Evaluation
from unseen.evaluation.findings import Finding
from unseen.statistics import bootstrap

FIRST, ALL = "recall@1", "map_at_r"
NEARLY_ALL = 0.95  # a start that finds so many leaves little to learn
UNTRAINED = "untrained network"

Kind = Literal["features", "frozen", "pretrained", "random"]
REMEDIES: dict[Kind, str] = {
    "features": "More classes, another loss; or use the features as they are.",
    "frozen": "Train its layers too (depth=whole), or on more classes; or use it as it is.",
    "pretrained": "A lower lr (lr=1e-5), frozen layers (freeze_until=pooled), or more classes.",
    "random": "Train longer (epochs), at another lr, on more classes, or a pretrained backbone.",
}


@dataclass(frozen=True)
class Start:
    """What training began with. kind: what may be done otherwise."""

    title: str
    kind: Kind


@dataclass(frozen=True)
class Gain:
    """One metric before and after, and the 95 % interval of the difference over classes."""

    before: float
    after: float
    low: float
    high: float


def gains(before: Evaluation, after: Evaluation, labels: Tensor, seed: int) -> dict[str, Gain]:
    """Of those metrics that both have for each query; `labels` [Q] are the queries' classes."""
    found = {}
    for metric in (FIRST, ALL):
        if metric in before.per_query and metric in after.per_query:
            difference = after.per_query[metric] - before.per_query[metric]
            interval = bootstrap(difference[:, None], labels, seed=seed)[0]
            ends = (before.values[metric].value, after.values[metric].value)
            found[metric] = Gain(*ends, interval.low, interval.high)
    return found


def rounded(gain: Gain) -> Gain:
    """As it is stored."""
    return Gain(*(round(value, 6) for value in astuple(gain)))


def verdict(start: Start, found: Mapping[str, Gain], keeps_start: bool) -> Finding | None:
    """What training added, by metric, to its start; None where recall@1 is not known. keeps_start:
    no epoch was better."""
    if FIRST not in found:
        return None
    first = found[FIRST]
    points = f"{100 * (first.after - first.before):+.1f} points"
    interval = f"95 % interval {100 * first.low:+.1f} … {100 * first.high:+.1f} over classes"
    if first.low > 0:
        text = f"Training added {points} of recall@1 ({interval}) to its start: {start.title}."
        return Finding("training", "good", text)
    scores = f"recall@1 {first.after:.1%} after training, {first.before:.1%} before"
    message = f"{scores} ({start.title}); {points}, {interval}"
    remedy = REMEDIES[start.kind]
    if first.before >= NEARLY_ALL:
        remedy = f"The start finds nearly all: judge on harder or more classes. {remedy}"
    if first.after < first.before:
        harmed = "Training made it worse" if first.high < 0 else "Below its own start"
        return Finding("training", "warning", f"{harmed}: {message}.", remedy)
    if keeps_start:
        text = (
            f"Training added nothing: no epoch was better than the start, which is kept; {message}."
        )
        return Finding("training", "warning", text, remedy)
    text = f"Training added nothing beyond chance: {message}."
    if ALL in found and found[ALL].low > 0:
        gain = found[ALL]
        text += f" Answers after the first got better: mAP@R {gain.before:.1%} to {gain.after:.1%}."
        return Finding("training", "note", text, remedy)
    return Finding("training", "warning", text, remedy)
