"""Which methods hold up best as the distribution shifts, and whether the study can say so.

area       of a method: the mean of its recall over the shift, by straight lines between the steps
           (`studies/shift_results.py`), a weighted sum of the steps' scores
effect     between two methods: the difference of their areas. A step's score is a sum over its test
           classes, so the area is a sum over all classes that are tested at some step, of what each
           adds at every step where it is; its interval is over seeds and those classes
           (`statistics.crossed`), for all pairs of methods together (`simultaneous`)
conclusive a method whose validity checks pass at every step. The three highest of these hold up
           best where each of them is significantly different from each of the others
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from unseen.core.statistics import Effect, crossed, simultaneous
from unseen.studies.results import ByClass, Results, Run
from unseen.studies.shift_results import shift_curves, trapezoid
from unseen.studies.validity_checks import BOTH, Reason

BEST = 3


@dataclass(frozen=True)
class Standing:
    """A method: its area, and why its validity checks fail; nothing where they pass."""

    method: str
    area: float
    reasons: tuple[Reason, ...]

    @property
    def why(self) -> str:
        return "; ".join(map(str, self.reasons))


@dataclass(frozen=True)
class Conclusion:
    """standings: the highest area first. sentence: the answer. is_significant: three hold up best.
    detail: what stands behind it, in a sentence."""

    standings: tuple[Standing, ...]
    sentence: str
    is_significant: bool
    detail: str = ""


def conclusion_of(results: Results) -> Conclusion:
    """The answer of a study whose runs are steps of stages."""
    curves = [curve for curve in shift_curves(results) if curve.row == "trained"]
    if not curves:
        return Conclusion((), "Inconclusive: no run has finished.", False)
    failed = _failed(results)
    standings = sorted(
        (Standing(c.method, c.area.mean, failed.get(c.method, ())) for c in curves),
        key=lambda each: -each.area,
    )
    evaluated = [each for each in standings if not each.reasons]
    best = evaluated[: min(BEST, len(evaluated) - 1)]
    if not best:
        sentence = (
            "Which methods hold up best as the distribution shifts is inconclusive: "
            f"{len(evaluated)} of {len(standings)} pass the validity checks of a conclusion."
        )
        detail = f"Why: {_reasons(standings)}. The highest are {_named(standings[:BEST])}."
        return Conclusion(tuple(standings), sentence, is_significant=False, detail=detail)
    return _answer(results, standings, evaluated, best)


def _answer(
    results: Results,
    standings: Sequence[Standing],
    evaluated: Sequence[Standing],
    best: Sequence[Standing],
) -> Conclusion:
    others = [each for each in evaluated if each not in best]
    pairs = len(evaluated) * (len(evaluated) - 1) // 2
    met = [(other.method, one.method) for other in others for one in best]
    result = simultaneous([area_effect(results, *pair) for pair in met], pairs)
    seen = [each.detectable for each in result if each]
    close = {
        other for (other, _), each in zip(met, result, strict=True) if not each or each.low <= 0
    }
    below = [other.method for other in others if other.method not in close]
    among = ""
    if len(evaluated) < len(standings):
        among = f"Of the {len(evaluated)} methods that pass the validity checks, "
    if len(below) == len(others):
        sentence = (
            f"{among}{_named(best)} hold{'s' * (len(best) == 1)} up best as the distribution "
            "shifts: significantly different from all others."
        )
        return Conclusion(tuple(standings), sentence, is_significant=True)
    details = [f"They are significantly different from {_listed(below)}."] if below else []
    if seen:
        details.append(f"The minimum detectable effect is {100 * max(seen):.1f} points.")
    sentence = (
        f"{among}{_named(best)} are highest as the distribution shifts, but not significantly "
        f"different from all others: which {len(best)} hold up best is inconclusive."
    )
    return Conclusion(tuple(standings), sentence, is_significant=False, detail=" ".join(details))


def area_effect(results: Results, first: str, second: str) -> Effect | None:
    """What the second method's area has over the first's; None where runs are missing."""
    areas = [_by_class(results, method) for method in (first, second)]
    seeds = sorted(set(areas[0]) & set(areas[1]))
    classes = sorted({c for area in areas for seed in seeds for c in area[seed]})
    if not seeds or not classes:
        return None
    tables = [
        np.array([[area[seed].get(c, 0.0) for c in classes] for seed in seeds]) for area in areas
    ]
    return crossed(len(classes) * (tables[1] - tables[0]))


def _by_class(results: Results, method: str) -> dict[tuple[int, int], dict[int, float]]:
    """Of each seed that has all steps: what every test class adds to the area."""
    runs: dict[tuple[int, int], list[tuple[float, ByClass]]] = {}
    steps = {distance for run in results.runs if (distance := _distance(run)) is not None}
    for run in results.runs:
        table, distance = run.by_class(results.plan.metric), _distance(run)
        is_own = run.planned.labels[results.plan.compared] == method
        if is_own and run.state == "done" and table is not None and distance is not None:
            runs.setdefault(run.replicate, []).append((distance, table))
    result: dict[tuple[int, int], dict[int, float]] = {}
    for replicate, own in runs.items():
        if len(own) < len(steps) or len(own) < 2:
            continue
        own.sort(key=lambda pair: pair[0])
        sums = result.setdefault(replicate, {})
        weights = trapezoid([distance for distance, _ in own])
        for weight, (_, table) in zip(weights, own, strict=True):
            total = sum(table.counts)
            for label, value in zip(table.classes, table.sums.tolist(), strict=True):
                sums[label] = sums.get(label, 0.0) + weight * value / total
    return result


def _distance(run: Run) -> float | None:
    return run.result.split.shift if run.result else None


def _failed(results: Results) -> dict[str, tuple[Reason, ...]]:
    """Method -> why validity checks fail, at any step."""
    result: dict[str, list[Reason]] = {}
    for each in results.comparisons():
        for check in each.validity_checks:
            methods = (each.method, each.against) if check.method == BOTH else (check.method,)
            for method in methods if check.reasons else ():
                result.setdefault(method, []).extend(check.reasons)
    return {
        method: tuple(alike[0].covering(alike) for alike in _kinds(reasons))
        for method, reasons in result.items()
    }


def _reasons(standings: Sequence[Standing]) -> str:
    """What fails most often, with how many methods."""
    kinds = _kinds(reason for each in standings for reason in each.reasons)
    texts = [
        f"{alike[0].covering(alike)} ({len(alike)} method{'s' * (len(alike) > 1)})"
        for alike in sorted(kinds, key=len, reverse=True)[:4]
    ]
    return "; ".join(texts) or "too few methods"


def _kinds(reasons: Iterable[Reason]) -> list[list[Reason]]:
    """Those of one sentence together."""
    result: dict[str, list[Reason]] = {}
    for reason in reasons:
        result.setdefault(reason.text, []).append(reason)
    return list(result.values())


def _named(standings: Sequence[Standing]) -> str:
    return _listed([f"{each.method} ({100 * each.area:.1f} %)" for each in standings])


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
