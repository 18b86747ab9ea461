"""Effects that sources claim, as they were measured: with intervals, and with what the validity
checks of the methods behind them say.

    against(results, "none", "density")         what a method adds to another, by seed and class
    mean_gain("512-d over 128-d", pairs)        the mean of several such gains
    changed("rho", pair, value_of_run)          of a number that is not known class by class

The conclusion compares intervals, never signs, and is "inconclusive: why" where a validity check of
a method fails (`validity_checks.py`). Intervals are over seeds and test classes, or over seeds
where a number is not known by class: methods and losses are those that a claim names, no sample.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from unseen.core.statistics import Effect, crossed
from unseen.studies.results import TRAINED, Results, Run, combined
from unseen.studies.validity_checks import (
    INCONCLUSIVE,
    MIN_SEEDS,
    MOST_RISE,
    Compared,
    MethodRuns,
    Reason,
    checks_of,
)

SAME = "no significant difference"
BySeed = Mapping[tuple[int, int], float]  # seed and fold -> a number


@dataclass(frozen=True)
class Finding:
    """One effect that a claim speaks of.

    Args:
        of: what it is the effect on, in words of the claim.
        value: ours, in the unit of the claim; NaN where nothing was measured.
        low, high: its 95 % interval.
        published: the source's effect; NaN where it prints none.
        expected: the sign that the claim asks for, where nothing is printed.
        alike: the claim is that there is no effect: it holds where the whole interval is within
            plus and minus so much; 0: it claims an effect.
        why: what forbids a conclusion.
        compared: the comparison behind it, with its validity checks.
        metric: that is compared.
    """

    of: str
    value: float = math.nan
    low: float = math.nan
    high: float = math.nan
    published: float = math.nan
    expected: int = 1
    alike: float = 0.0
    why: str = ""
    compared: Compared | None = None
    metric: str = "recall@1"

    @property
    def word(self) -> str:
        """holds, smaller, larger, opposite, no significant difference, inconclusive."""
        if self.why or math.isnan(self.low + self.high):
            return INCONCLUSIVE
        is_within = max(abs(self.low), abs(self.high)) <= self.alike
        if self.low <= 0 <= self.high and not is_within:
            return SAME
        if self.alike:
            return "holds" if is_within else "opposite"
        wanted = self.expected if math.isnan(self.published) else self.published
        if wanted * self.value < 0:
            return "opposite"
        if math.isnan(self.published) or self.low <= self.published <= self.high:
            return "holds"
        return "larger" if abs(self.value) > abs(self.published) else "smaller"

    @property
    def conclusion(self) -> str:
        """The word with its reasons."""
        if self.word != INCONCLUSIVE:
            return self.word
        return f"{INCONCLUSIVE}: {self.why or 'no interval'}"

    @property
    def text(self) -> str:
        """+1.2 (+0.4 … +1.9)"""
        if math.isnan(self.value):
            return "–"
        ends = "" if math.isnan(self.low) else f" ({self.low:+.2f} … {self.high:+.2f})"
        return f"{self.value:+.2f}{ends}"


def versus(
    other: MethodRuns,
    side: MethodRuns,
    published: float = math.nan,
    of: str = "",
    metric: str = "recall@1",
    expected: int = 1,
) -> Finding:
    """What a method adds to another one, over seeds and test classes."""
    return mean_gain(of or f"{side.method} against {other.method}", [(other, side)], published,
                     metric, expected)  # fmt: skip


def against(
    results: Results,
    other: str,
    method: str,
    published: float = math.nan,
    of: str = "",
    experiment: str = "",
    metric: str = "recall@1",
    expected: int = 1,
) -> Finding:
    """The same of two methods of a study."""
    other_side, side = (MethodRuns(results, experiment, name) for name in (other, method))
    return versus(other_side, side, published, of, metric, expected)


def mean_gain(
    of: str,
    pairs: Sequence[tuple[MethodRuns, MethodRuns]],
    published: float = math.nan,
    metric: str = "recall@1",
    expected: int = 1,
) -> Finding:
    """What the second of each pair adds to the first, the mean over pairs: over seeds and test
    classes, for the pairs are those that the claim names, not a sample of pairs."""
    terms = [(sign / len(pairs), side, metric) for pair in pairs
             for sign, side in zip((-1, 1), pair, strict=True)]  # fmt: skip
    return weighted(of, terms, published, expected)


def weighted(
    of: str,
    terms: Sequence[tuple[float, MethodRuns, str]],
    published: float = math.nan,
    expected: int = 1,
    row: str = TRAINED,
) -> Finding:
    """A weighted sum of scores, in points, on the seeds that all have. terms: weight, method and
    metric of each."""
    if not terms or not all(side.runs for _, side, _ in terms):
        return Finding(of, published=published, expected=expected, why="not run")
    by_seed = [{run.replicate: run for run in side.runs if run.state == "done"}
               for _, side, _ in terms]  # fmt: skip
    shared = [seed for seed in by_seed[0] if all(seed in each for each in by_seed)]
    effect = combined([
        [(weight, known[seed], metric, row)
         for (weight, _, metric), known in zip(terms, by_seed, strict=True)]
        for seed in shared
    ])  # fmt: skip
    finding = Finding(of, published=published, expected=expected, metric=terms[0][2])
    sides = [side for _, side, _ in terms]
    if effect is None:
        return checked(finding, sides, None, by_class=True)
    value, low, high = (100 * end for end in (effect.value, effect.low, effect.high))
    finding = replace(finding, value=value, low=low, high=high)
    return checked(finding, sides, effect, by_class=True, is_trained=row == TRAINED)


def of_seeds(
    of: str,
    values: BySeed,
    sides: Sequence[MethodRuns],
    published: float = math.nan,
    expected: int = 1,
) -> Finding:
    """The mean over seeds of a number that is not known class by class. sides: the methods it is
    of; none: of no study, where the number of seeds alone is checked."""
    known = [value for value in values.values() if not math.isnan(value)]
    if not known:
        return Finding(of, published=published, expected=expected, why="not measured")
    effect = crossed([[value] for value in known])
    finding = Finding(of, effect.value, effect.low, effect.high, published, expected)
    if sides:
        return checked(finding, sides, _counted(effect, sides))
    few = "" if len(known) >= MIN_SEEDS else f"{len(known)} of {MIN_SEEDS} seeds"
    return replace(finding, why=few)


def of_correlation(
    of: str,
    ends: tuple[float, float, float],
    sides: Sequence[MethodRuns],
    published: float = math.nan,
    expected: int = 1,
) -> Finding:
    """A correlation over methods or over what was measured of them. ends: r and its interval."""
    r, low, high = ends
    finding = Finding(of, r, low, high, published, expected)
    recall = mean_of_sides(sides, lambda run: run.score(finding.metric))
    sample = _counted(crossed([[value] for value in recall.values()]), sides) if recall else None
    return checked(finding, sides, sample)


def _counted(effect: Effect, sides: Sequence[MethodRuns]) -> Effect:
    """Of a number that is not known class by class, with the test classes of the runs."""
    runs = [run for side in sides for run in side.runs if run.state == "done"]
    counts = [len(run.per_class.classes) if run.per_class else 0 for run in runs]
    return replace(effect, classes=min(counts, default=0))


def checked(
    finding: Finding,
    sides: Sequence[MethodRuns],
    effect: Effect | None,
    by_class: bool = False,
    is_trained: bool = True,
) -> Finding:
    """With what the validity checks of its methods say; of networks before training, that of the
    sample alone. effect: what it is drawn from. by_class: the effect is known class by class."""
    own = [*{(id(side.results), side.experiment, side.method): side for side in sides}.values()]
    half = effect.half if by_class and effect else MOST_RISE
    checks = checks_of(own, finding.metric, effect, half)
    checks = checks if is_trained else checks[:1]
    by_text: dict[str, list[Reason]] = {}
    for reason in (reason for check in checks for reason in check.reasons):
        by_text.setdefault(reason.text, []).append(reason)
    why = "; ".join(f"{alike[0].covering(alike)}" for alike in by_text.values())
    names = ("", finding.of, "")
    if len(own) == 2:
        names = (own[1].experiment, own[1].method, own[0].method)
    drawn = effect if by_class else None
    each = Compared(*names, drawn, checks, finding.published)
    return replace(finding, why=why, compared=each)


def mean_of_sides(sides: Sequence[MethodRuns], value: Callable[[Run], float]) -> BySeed:
    """The mean over methods of a number of each run, by the seeds that all have."""
    known = [{run.replicate: value(run) for run in side.runs if run.state == "done"}
             for side in sides]  # fmt: skip
    shared = [seed for seed in known[0] if all(seed in each for each in known)] if known else []
    return {seed: sum(each[seed] for each in known) / len(known) for seed in shared}


def selected_epoch(run: Run) -> float:
    return math.nan if run.epoch is None else float(run.epoch)


def less(first: BySeed, second: BySeed) -> BySeed:
    """The first less the second, by the seeds that both have."""
    return {seed: first[seed] - second[seed] for seed in first if seed in second}


def changed(
    of: str,
    pair: tuple[MethodRuns, MethodRuns],
    value: Callable[[Run], float],
    published: float = math.nan,
    expected: int = 1,
) -> Finding:
    """What the second method has over the first of a number of each run, paired by seed."""
    values = [mean_of_sides([side], value) for side in pair]
    return of_seeds(of, less(values[1], values[0]), pair, published, expected)


def gap(
    published: Mapping[str, Mapping[str, float]], other: str, method: str, metric: str = "recall@1"
) -> float:
    """The published difference of two methods; NaN where one of them has no value."""
    values = [published.get(name, {}).get(metric) for name in (method, other)]
    known = [value for value in values if value is not None]
    return float(known[0]) - float(known[1]) if len(known) == 2 else math.nan
