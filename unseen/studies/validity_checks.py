"""Conclusions on what two methods of a study differ by, and the validity checks they need."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from unseen.core.statistics import Effect, simultaneous
from unseen.reports.score_tables import ROWS, metric_title
from unseen.studies.results import MUST_BEAT, Results, Run, effect, gain
from unseen.training.manifest import SplitMetadata

INCONCLUSIVE = "inconclusive"
MIN_SEEDS, MIN_CLASSES = 3, 30
MIN_TRIALS, MIN_VALIDATION = 3, 30
FIFTH, MOST_RISE = 5, 0.01
MOST_LOST = 0.01  # of the best trial's score on validation classes
BOTH = "both"
BASELINES = {row: ROWS[row] for row in MUST_BEAT}


@dataclass(frozen=True)
class MethodRuns:
    """One side of a comparison: a method in an experiment of a study."""

    results: Results
    experiment: str
    method: str

    @property
    def runs(self) -> list[Run]:
        return self.results.of(self.experiment, self.method)

    @property
    def trials(self) -> list[Run]:
        """The runs it was tuned by that came to a value, or were stopped because it was low."""
        labels = [run.planned.labels for run in self.runs[:1]]
        return [
            run
            for run in self.results.searches
            if run.planned.labels in labels and run.state in ("done", "pruned")
        ]


@dataclass(frozen=True)
class Reason:
    """Why a validity check fails: a sentence with places for numbers, each a range over methods
    and steps (or one number twice).

    Example:
        str(Reason.of("{} of {} seeds", 2, 3))     # "2 of 3 seeds"
    """

    text: str
    ranges: tuple[tuple[float, float], ...] = ()
    digits: int = 0

    @classmethod
    def of(cls, text: str, *numbers: float, digits: int = 0) -> "Reason":
        return cls(text, tuple((number, number) for number in numbers), digits)

    def __str__(self) -> str:
        ends = [[f"{number:.{self.digits}f}" for number in pair] for pair in self.ranges]
        return self.text.format(*(" to ".join(dict.fromkeys(pair)) for pair in ends))

    def covering(self, others: "Sequence[Reason]") -> "Reason":
        """The same sentence with the ranges of all of them."""
        columns = zip(self.ranges, *(other.ranges for other in others), strict=True)
        spans = tuple((min(map(min, some)), max(map(max, some))) for some in columns)
        return Reason(self.text, spans, self.digits)


@dataclass(frozen=True)
class ValidityCheck:
    """A condition of a conclusion. reasons: what is not as it should be; none where it passes.

    Of each method:

    untrained    its runs are above the untrained network: the interval of the gain, paired over
    PCA          test classes and seeds, lies above 0; so does that over as many principal
                 components of what stands before the untrained head. A method that learned nothing
                 says nothing on methods.
    flat curve   the mean over seeds of (score of the last fifth of the epochs - score of the fifth
                 before it) on validation classes is at most half of the interval of the effect, and
                 at most 1 point: going on for as long again would not carry the effect out of its
                 interval, and a wide one excuses no short training. A falling curve is past its
                 best epoch, which is selected, and passes. Below 5 validations none is known.
    tuned        all settings are those of a source (`tuned_by` of the study), which tuned them; or
                 3 trials or more that vary the learning rate, on at least 30 validation classes or
                 a tenth of the classes that are not tested, whichever is more; and the run of the
                 trials' seed is at most 1 point below the best of them on validation classes: a
                 rate that short trials liked can spoil longer runs

    Of both:

    equal tuning as many trials each
    sample       every planned run is done; 3 seeds (below, the spread over seeds is a guess from
                 one degree of freedom), crossed (`statistics.crossed`) with 30 test classes, some
                 of which differ: of fewer, one sample in twenty lacks a kind of class that one in
                 ten is (0.9^29 < 5 %), and what does not differ on any may differ on the next
    """

    method: str
    name: str
    value: str
    reasons: tuple[Reason, ...] = ()

    @property
    def passed(self) -> bool:
        return not self.reasons

    @property
    def why(self) -> str:
        return ", ".join(map(str, self.reasons))


@dataclass(frozen=True)
class Compared:
    """Two methods, what the first adds to the one it is compared with, and the conclusion.

    The conclusion is "inconclusive: reason" where a validity check fails. Otherwise it compares the
    interval of the effect with 0 and with the published effect P:

    no significant difference   0 is inside; with the minimum detectable effect: what 80 % of such
                                studies would see
    holds            P is inside
    smaller, larger  P is outside, on the same side of 0; larger also where P is 0
    opposite         P is on the other side of 0
    better, worse    nothing was published

    In a study of one's own every method meets the best, or the `reference` that the study file
    names, for all or one by one; `published` there says what a source reports against it. Intervals
    then hold together (`statistics.simultaneous`): over all pairs of methods, since the best is
    picked from them, or over the others of a reference. docs/studies.md has the share of simulated
    studies with a wrong conclusion.

    Args:
        effect: None where no run has a partner.
        published: in points; NaN where nothing was.
        pairs: how many comparisons the interval holds for together.
    """

    experiment: str
    method: str
    against: str
    effect: Effect | None
    validity_checks: tuple[ValidityCheck, ...]
    published: float = math.nan
    pairs: int = 1

    @property
    def word(self) -> str:
        """The conclusion without its reasons and numbers."""
        result = self.effect
        checked = all(each.passed for each in self.validity_checks)
        if result is None or math.isnan(result.low) or not checked:
            return INCONCLUSIVE
        if result.low <= 0 <= result.high:
            return "no significant difference"
        return _words(result, self.published / 100)

    @property
    def is_conclusive(self) -> bool:
        return self.word != INCONCLUSIVE

    @property
    def conclusion(self) -> str:
        """The word with its reasons, or with the effect that would have been seen."""
        result = self.effect
        if not self.is_conclusive:
            return f"{INCONCLUSIVE}: {self.why or 'no number'}"
        if result is not None and result.low <= 0 <= result.high:
            detectable = f"{100 * result.detectable:.1f} points"
            return f"{self.word} (minimum detectable effect: {detectable})"
        return self.word

    @property
    def why(self) -> str:
        """Why it is inconclusive: each reason once, with its method, unless it is of both."""
        failing: dict[str, list[str]] = {}
        for each in self.validity_checks:
            if not each.passed:
                failing.setdefault(each.why, []).append(each.method)
        return "; ".join(
            why if methods == [BOTH] or len(set(methods)) > 1 else f"{why} ({methods[0]})"
            for why, methods in failing.items()
        )


def _words(result: Effect, published: float) -> str:
    """Of an effect that is significantly different from 0."""
    if math.isnan(published):
        return "better" if result.value > 0 else "worse"
    if published * result.value < 0:
        return "opposite"
    ends = sorted((abs(result.low), abs(result.high)))
    if ends[0] <= abs(published) <= ends[1]:
        return "holds"
    return "larger" if abs(published) < ends[0] else "smaller"


def comparisons(results: Results) -> list[Compared]:
    """Every method of every experiment against the best, or against the plan's reference of it."""
    return [each for experiment in results.experiments() for each in _within(results, experiment)]


def _within(results: Results, experiment: str) -> list[Compared]:
    metric = results.plan.metric
    every = [MethodRuns(results, experiment, method) for method in results.methods()]
    methods = {each.method: each for each in every if each.runs}
    ranked = sorted(methods, key=lambda method: _mean(methods[method]), reverse=True)
    meets = [pair for pair in results.plan.meets(ranked) if methods.keys() >= set(pair)]
    families = Counter(other for _, other in meets)
    if not meets:
        meets = [(method, ranked[0]) for method in ranked[1:]]
        families[ranked[0]] = len(methods) * (len(methods) - 1) // 2
    effects: dict[str, Effect | None] = {}
    for other, pairs in families.items():
        compared_with = [method for method, against in meets if against == other]
        alone = [effect(methods[other].runs, methods[m].runs, metric) for m in compared_with]
        effects |= zip(compared_with, simultaneous(alone, pairs), strict=True)
    return [
        compared(
            methods[other],
            methods[method],
            effects[method],
            _published(methods[method]),
            metric,
            families[other],
        )
        for method, other in meets
    ]


def _published(side: MethodRuns) -> float:
    """What the plan says that a source reports, of the method or of it in its experiment."""
    published = side.results.plan.published
    of_all = published.get(side.method, math.nan)
    return published.get(f"{side.experiment}: {side.method}", of_all)


def _mean(side: MethodRuns) -> float:
    scores = [run.score(side.results.plan.metric) for run in side.runs if run.state == "done"]
    known = [score for score in scores if not math.isnan(score)]
    return float(np.mean(known)) if known else -math.inf


def compared(
    against: MethodRuns,
    side: MethodRuns,
    result: Effect | None,
    published: float,
    metric: str,
    pairs: int = 1,
) -> Compared:
    """What `side` adds to `against`, with its validity checks. result: the effect."""
    names = (side.experiment, side.method, against.method)
    checks = checks_of((side, against), metric, result, math.nan if result is None else result.half)
    return Compared(*names, result, checks, published, pairs)


def checks_of(
    sides: Sequence[MethodRuns], metric: str, result: Effect | None, half: float
) -> tuple[ValidityCheck, ...]:
    """The validity checks of a conclusion on some methods.

    Args:
        result: the effect it is drawn from, by seed and class.
        half: of its interval, in the unit of the metric.
    """
    checks = [_sample(sides, result, metric)]
    for each in sides:
        checks += [_above(each, row, metric) for row in MUST_BEAT]
        checks += [_flat(each, metric, half), _tuned(each)]
    counts = [len(each.trials) for each in sides]
    if len(set(counts)) > 1 and all(counts):
        value = f"{counts[0]} and {counts[1]} trials"
        reason = Reason.of("tuned by {} and {} trials", *counts[:2])
        checks.append(ValidityCheck(BOTH, "equal tuning", value, (reason,)))
    return tuple(checks)


def _sample(sides: Sequence[MethodRuns], result: Effect | None, metric: str) -> ValidityCheck:
    runs = [run for side in sides for run in side.runs]
    done = sum(run.state == "done" for run in runs)
    seeds, classes = (result.seeds, result.classes) if result else (0, 0)
    known = f"{classes} test classes" if classes > 1 else "no values by class"
    value, reasons = f"{seeds} seed{'s' * (seeds != 1)}, {known}", []
    if done < len(runs):
        reasons.append(Reason.of("{} of {} runs done", done, len(runs)))
    if seeds < MIN_SEEDS:
        reasons.append(Reason.of("{} of {} seeds", seeds, MIN_SEEDS))
    if classes == 1:
        reasons.append(Reason(f"{metric_title(metric)} is not known class by class"))
    elif classes < MIN_CLASSES:
        reasons.append(Reason.of("too few classes ({} of {} to test)", classes, MIN_CLASSES))
    elif result and not any((result.value, *result.variances)):
        reasons.append(Reason.of("too few classes (none of {} differs)", classes))
    return ValidityCheck(BOTH, "sample", value, tuple(reasons))


def _above(side: MethodRuns, row: str, metric: str) -> ValidityCheck:
    result, name = gain(side.runs, row, metric), BASELINES[row]
    if result is None or math.isnan(result.value):
        return ValidityCheck(side.method, name, "–", (Reason(f"{name}: not measured"),))
    reasons = () if result.low > 0 else (Reason(f"not above the {name}"),)
    return ValidityCheck(side.method, name, effect_text(result), reasons)


def _flat(side: MethodRuns, metric: str, half: float) -> ValidityCheck:
    curves = [run.curve(metric) for run in side.runs if run.state == "done"]
    epochs = min(map(len, curves), default=0)
    if epochs < FIFTH:
        reason = Reason("no curve of 5 epochs")
        return ValidityCheck(side.method, "flat curve", f"{epochs} validations", (reason,))
    rise = float(np.mean([last_rise(curve) for curve in curves]))
    allowed = float(np.minimum(half, MOST_RISE))  # NaN without an interval: nothing passes
    value = f"{100 * rise:+.1f} in the last fifth, {100 * allowed:.1f} allowed"
    rising = Reason.of("still rising by {} points", 100 * rise, digits=1)
    return ValidityCheck(side.method, "flat curve", value, () if rise <= allowed else (rising,))


def last_rise(curve: Sequence[float]) -> float:
    """What the last fifth of a curve has over the fifth before it, each by its mean."""
    length = round(len(curve) / FIFTH)
    return float(np.mean(curve[-length:]) - np.mean(curve[-2 * length : -length]))


def _tuned(side: MethodRuns) -> ValidityCheck:
    if _is_rate(side.results.plan.compared):
        return ValidityCheck(side.method, "tuned", "the rate is what is compared")
    if side.results.plan.tuned_by:
        return ValidityCheck(side.method, "tuned", f"as in {side.results.plan.tuned_by}")
    trials = [t for t in side.trials if any(map(_is_rate, t.parameters or t.planned.parameters))]
    if not trials:
        reason = Reason("not tuned")
        return ValidityCheck(side.method, "tuned", "no trial of a rate", (reason,))
    selections = [run.selection for run in trials if run.selection]
    classes = min((result.classes or 0 for result in selections), default=0)
    split = next((run.result.split for run in side.runs if run.result), SplitMetadata())
    others = (split.train_classes or 0) + (split.validation_classes or 0)
    needed = max(MIN_VALIDATION, math.ceil(others / 10))
    lost = _lost(side, trials)
    conditions = {
        Reason.of("tuned by {} of {} trials", len(trials), MIN_TRIALS): len(trials) >= MIN_TRIALS,
        Reason.of("tuned on {} of {} validation classes", classes, needed): classes >= needed,
        Reason("tuned on test classes"): all(result.on != "test" for result in selections),
        Reason.of("{} points below the trial it was tuned by", 100 * lost, digits=1): lost
        <= MOST_LOST,
    }
    reasons = tuple(reason for reason, holds in conditions.items() if not holds)
    value = f"{len(trials)} trials on {classes} validation classes"
    return ValidityCheck(side.method, "tuned", value, reasons)


def _lost(side: MethodRuns, trials: Sequence[Run]) -> float:
    """By how much the run of the trials' seed, on the same validation classes, is below the best of
    them; 0 where there is no such run."""
    tried = [(run.selection.value, run.replicate) for run in trials if run.selection]
    if not tried:
        return 0.0
    best, seed = max(tried)
    runs = [run.selection.value for run in side.runs if run.selection and run.replicate == seed]
    return max((best - value for value in runs), default=0.0)


def _is_rate(key: str) -> bool:
    return key.rpartition(".")[2] == "lr"


def interval_text(result: Effect | None) -> str:
    """+0.4 … +1.9, in points"""
    if result is None or math.isnan(result.low):
        return "–"
    return f"{100 * result.low:+.1f} … {100 * result.high:+.1f}"


def effect_text(result: Effect | None) -> str:
    """+1.2 (+0.4 … +1.9), in points"""
    if result is None or math.isnan(result.value):
        return "–"
    ends = "" if math.isnan(result.low) else f" ({interval_text(result)})"
    return f"{100 * result.value:+.1f}{ends}"
