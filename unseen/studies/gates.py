"""Verdicts with gates: what two arms of a study differ by, and whether that can be judged at all.

    for each in unseen.study("losses.toml", out="studies/losses").comparisons():
        each.effect, each.verdict, [gate for gate in each.gates if not gate.passed]

A verdict needs, of each arm:

untrained    its runs are above the untrained network: the interval of the gain, paired over test
components   classes and seeds, lies above 0; so does that over as many principal components of what
             stands before the untrained head. An arm that learned nothing says nothing on methods.
flat curve   the mean over seeds of (score of the last fifth of the epochs - score of the fifth
             before it) on validation classes is at most half of the interval of the effect, and at
             most 1 point: going on for as long again would not carry the effect out of its own
             interval, and a wide one excuses no short training. A falling curve is past its best
             epoch, which is kept, and passes. Below 5 looks none is known.
tuned        3 trials or more that vary the learning rate, on at least 30 validation classes or a
             tenth of the classes that are not tested, whichever is more; and the run of the trials'
             own seed is at most 1 point below the best of them on validation classes: a rate that
             short trials liked can spoil longer runs
and of both:
equal tuning as many trials each
sample       every planned run is done; 3 seeds (below, the spread over seeds is a guess from one
             degree of freedom) and 10 test classes, crossed (`statistics.crossed`)

What fails reads "cannot be judged: why". What passes compares the interval of the effect with 0 and
with the published effect P:

not told apart   0 is inside; with the effect that would have been seen in 80 % of all cases
holds            P is inside
smaller, larger  P is beyond, on the same side of 0; larger also where P is 0
opposite         P is on the other side of 0
better, worse    nothing was published

In a study of its own every method meets the best, or the `reference` that the study file names, for
all or one by one; then `published` there says what a source found against it.
Intervals then hold together (Bonferroni): over all pairs of methods, since the best is picked from
them, or over the others of a reference. Far out Satterthwaite's t is a little short with few seeds:
of made-up studies of 10 equal methods 14 % had a wrong verdict with 3 seeds, 6 % with 5.
"""

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from unseen.reports.tables import metric_title
from unseen.statistics import Effect
from unseen.studies.results import MUST_BEAT, Results, Run, effect, gain
from unseen.training.manifest import SplitFacts

UNJUDGED = "cannot be judged"
MIN_SEEDS, MIN_CLASSES = 3, 10
MIN_TRIALS, MIN_VALIDATION = 3, 30
FIFTH, MOST_RISE = 5, 0.01
MOST_LOST = 0.01  # of the best trial's score on validation classes
BOTH = "both"
ROWS = dict(zip(MUST_BEAT, ("untrained network", "principal components"), strict=True))


@dataclass(frozen=True)
class Arm:
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
        labels = [run.cell.labels for run in self.runs[:1]]
        return [
            run
            for run in self.results.searches
            if run.cell.labels in labels and run.state in ("done", "pruned")
        ]


@dataclass(frozen=True)
class Gate:
    """A condition of a verdict. why: what is not as it should be; empty: it is."""

    arm: str
    name: str
    value: str
    why: str = ""

    @property
    def passed(self) -> bool:
        return not self.why


@dataclass(frozen=True)
class Compared:
    """Two arms, what the first adds to the one it is held against, and whether that says anything.
    effect: None where no run has a partner. published: in points; NaN: nothing was. pairs: how many
    were compared at once, for which the interval holds together."""

    experiment: str
    arm: str
    against: str
    effect: Effect | None
    gates: tuple[Gate, ...]
    published: float = math.nan
    pairs: int = 1

    @property
    def verdict(self) -> str:
        """One of the words above, or that it cannot be judged and why."""
        found, failed = self.effect, [gate for gate in self.gates if not gate.passed]
        if found is None or math.isnan(found.low) or failed:
            arms = {why: [g.arm for g in failed if g.why == why] for why in (g.why for g in failed)}
            sentences = [why + _whose(of) for why, of in arms.items()]
            return f"{UNJUDGED}: {'; '.join(sentences) or 'no number'}"
        if found.low <= 0 <= found.high:
            return f"not told apart ({100 * found.detectable:.1f} points could have been seen)"
        return _words(found, self.published / 100)

    @property
    def word(self) -> str:
        """The verdict without its reasons and numbers."""
        return re.split(r": | \(", self.verdict)[0]


def counted(found: Sequence[Compared]) -> str:
    """2 holds, 3 cannot be judged"""
    words = [each.word for each in found]
    return ", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(words))


def _whose(arms: Sequence[str]) -> str:
    return "" if arms == [BOTH] or len(set(arms)) > 1 else f" ({arms[0]})"


def _words(found: Effect, published: float) -> str:
    """Of an effect that is told apart from 0."""
    if math.isnan(published):
        return "better" if found.value > 0 else "worse"
    if published * found.value < 0:
        return "opposite"
    ends = sorted((abs(found.low), abs(found.high)))
    if ends[0] <= abs(published) <= ends[1]:
        return "holds"
    return "larger" if abs(published) < ends[0] else "smaller"


def comparisons(results: Results) -> list[Compared]:
    """Every method of every experiment against the best, or against the plan's reference of it."""
    found = []
    for experiment in results.experiments():
        arms = {method: Arm(results, experiment, method) for method in results.methods()}
        arms = {method: arm for method, arm in arms.items() if arm.runs}
        ranked = sorted(arms, key=lambda method: _mean(arms[method]), reverse=True)
        meets = [pair for pair in results.plan.meets(ranked) if arms.keys() >= set(pair)]
        shares = Counter(other for _, other in meets)
        for method, other in meets or [(method, ranked[0]) for method in ranked[1:]]:
            pairs = shares[other] or len(arms) * (len(arms) - 1) // 2
            published = _published(arms[method])
            found.append(compared(arms[other], arms[method], published, pairs=pairs))
    return found


def _published(arm: Arm) -> float:
    """What the plan says that a source found, of the arm or of the arm in its experiment."""
    told = arm.results.plan.published
    return told.get(f"{arm.experiment}: {arm.method}", told.get(arm.method, math.nan))


def _mean(arm: Arm) -> float:
    scores = [run.score(arm.results.plan.metric) for run in arm.runs if run.state == "done"]
    known = [score for score in scores if not math.isnan(score)]
    return float(np.mean(known)) if known else -math.inf


def compared(
    against: Arm,
    arm: Arm,
    published: float = math.nan,
    metric: str = "",
    pairs: int = 1,
) -> Compared:
    """What `arm` adds to `against`, with its gates. metric: the plan's unless given."""
    metric = metric or arm.results.plan.metric
    found = effect(against.runs, arm.runs, metric, level=1 - 0.05 / max(1, pairs))
    half = math.nan if found is None else found.half
    gates = [_sample(against, arm, found, metric)]
    for each in (arm, against):
        gates += [_above(each, row, metric) for row in MUST_BEAT]
        gates += [_flat(each, metric, half), _tuned(each)]
    counts = [len(each.trials) for each in (arm, against)]
    if counts[0] != counts[1] and all(counts):
        value = f"{counts[0]} and {counts[1]} trials"
        gates.append(Gate(BOTH, "equal tuning", value, f"tuned by {value}"))
    names = (arm.experiment, arm.method, against.method)
    return Compared(*names, found, tuple(gates), published, pairs)


def _sample(against: Arm, arm: Arm, found: Effect | None, metric: str) -> Gate:
    runs = [*against.runs, *arm.runs]
    done = sum(run.state == "done" for run in runs)
    seeds, classes = (found.seeds, found.classes) if found else (0, 0)
    known = f"{classes} test classes" if classes > 1 else "no values by class"
    value, why = f"{seeds} seed{'s' * (seeds != 1)}, {known}", []
    why += [f"{done} of {len(runs)} runs done"] * (done < len(runs))
    why += [f"{seeds} of {MIN_SEEDS} seeds"] * (seeds < MIN_SEEDS)
    if classes == 1:
        why.append(f"{metric_title(metric)} is not known class by class")
    elif classes < MIN_CLASSES:
        why.append(f"{classes} of {MIN_CLASSES} test classes")
    return Gate(BOTH, "sample", value, ", ".join(why))


def _above(arm: Arm, row: str, metric: str) -> Gate:
    found, name = gain(arm.runs, row, metric), ROWS[row]
    if found is None or math.isnan(found.value):
        return Gate(arm.method, name, "–", f"{name}: not measured")
    why = "" if found.low > 0 else f"not above the {name}"
    return Gate(arm.method, name, effect_text(found), why)


def _flat(arm: Arm, metric: str, half: float) -> Gate:
    curves = [run.curve(metric) for run in arm.runs if run.state == "done"]
    looks = min(map(len, curves), default=0)
    if looks < FIFTH:
        return Gate(arm.method, "flat curve", f"{looks} looks", "no curve of 5 epochs")
    rise = float(np.mean([last_rise(curve) for curve in curves]))
    allowed = float(np.minimum(half, MOST_RISE))  # NaN without an interval: nothing passes
    value = f"{100 * rise:+.1f} in the last fifth, {100 * allowed:.1f} allowed"
    why = "" if rise <= allowed else f"still rising by {100 * rise:.1f} points"
    return Gate(arm.method, "flat curve", value, why)


def last_rise(curve: Sequence[float]) -> float:
    """What the last fifth of a curve has over the fifth before it, each by its mean."""
    length = round(len(curve) / FIFTH)
    return float(np.mean(curve[-length:]) - np.mean(curve[-2 * length : -length]))


def _tuned(arm: Arm) -> Gate:
    if _is_rate(arm.results.plan.compared):
        return Gate(arm.method, "tuned", "the rate is what is compared")
    trials = [t for t in arm.trials if any(map(_is_rate, t.parameters or t.cell.parameters))]
    if not trials:
        return Gate(arm.method, "tuned", "no trial of a rate", "not tuned")
    selections = [run.selection for run in trials if run.selection]
    classes = min((found.classes or 0 for found in selections), default=0)
    split = next((run.result.split for run in arm.runs if run.result), SplitFacts())
    others = (split.train_classes or 0) + (split.validation_classes or 0)
    needed = max(MIN_VALIDATION, math.ceil(others / 10))
    value, why = f"{len(trials)} trials on {classes} validation classes", []
    why += [f"tuned by {len(trials)} of {MIN_TRIALS} trials"] * (len(trials) < MIN_TRIALS)
    why += [f"tuned on {classes} of {needed} validation classes"] * (classes < needed)
    why += ["tuned on test classes"] * any(found.on == "test" for found in selections)
    lost = _lost(arm, trials)
    why += [f"{100 * lost:.1f} points below the trial it was tuned by"] * (lost > MOST_LOST)
    return Gate(arm.method, "tuned", value, ", ".join(why))


def _lost(arm: Arm, trials: Sequence[Run]) -> float:
    """By how much the run of the trials' seed, on the same validation classes, is below the best of
    them; 0 where there is no such run."""
    tried = [(run.selection.value, run.replicate) for run in trials if run.selection]
    if not tried:
        return 0.0
    best, seed = max(tried)
    runs = [run.selection.value for run in arm.runs if run.selection and run.replicate == seed]
    return max((best - value for value in runs), default=0.0)


def _is_rate(key: str) -> bool:
    return key.rpartition(".")[2] == "lr"


def interval_text(found: Effect | None) -> str:
    """+0.4 … +1.9, in points"""
    if found is None or math.isnan(found.low):
        return "–"
    return f"{100 * found.low:+.1f} … {100 * found.high:+.1f}"


def effect_text(found: Effect | None) -> str:
    """+1.2 (+0.4 … +1.9), in points"""
    if found is None or math.isnan(found.value):
        return "–"
    ends = "" if math.isnan(found.low) else f" ({interval_text(found)})"
    return f"{100 * found.value:+.1f}{ends}"
