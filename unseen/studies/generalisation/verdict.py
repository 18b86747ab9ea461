"""Which methods hold up best as classes become stranger, and whether that can be told at all.

area    of a method: the mean of its recall over the shift, by straight lines between the steps
        (`studies/shift.py`), a weighted sum of the steps' scores
effect  between two methods: the difference of their areas. A step's score is a sum over its test
        classes, so the area is a sum over all classes that are tested at some step, of what each
        adds at every step where it is; its interval is over seeds and those classes
        (`statistics.crossed`), for all pairs of methods together (Bonferroni)
judged  a method whose gates pass at every step (`gates.py`). The three highest of these hold up
        best where each of them is told apart from each of the others
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from unseen.statistics import Effect, crossed
from unseen.studies.gates import BOTH
from unseen.studies.results import ByClass, Results, Run
from unseen.studies.shift import shift_curves, trapezoid

BEST = 3
NUMBER = re.compile(r"\d+(?:\.\d+)?(?: to \d+(?:\.\d+)?)?")  # or a range of them


@dataclass(frozen=True)
class Standing:
    """A method: its area, and what its gates say; nothing where they pass."""

    method: str
    area: float
    failed: str


@dataclass(frozen=True)
class HeldUp:
    """standings: the highest area first. sentence: the answer. is_told: three hold up best. detail:
    what stands behind it, in a sentence."""

    standings: tuple[Standing, ...]
    sentence: str
    is_told: bool
    detail: str = ""


def held_up(results: Results) -> HeldUp:
    """The answer of a study whose runs are steps of a ladder."""
    curves = [curve for curve in shift_curves(results) if curve.row == "trained"]
    if not curves:
        return HeldUp((), "Which methods hold up best cannot be told: no run has finished.", False)
    failed = _failed(results)
    standings = sorted(
        (Standing(c.method, c.area.mean, failed.get(c.method, "")) for c in curves),
        key=lambda each: -each.area,
    )
    judged = [each for each in standings if not each.failed]
    best = judged[: min(BEST, len(judged) - 1)]
    if not best:
        sentence = (
            f"Which methods hold up best as classes become stranger cannot be told: "
            f"{len(judged)} of {len(standings)} pass the gates of a verdict."
        )
        detail = f"Why: {_reasons(standings)}. The highest are {_named(standings[:BEST])}."
        return HeldUp(tuple(standings), sentence, is_told=False, detail=detail)
    return _answer(results, standings, judged, best)


def _answer(
    results: Results,
    standings: Sequence[Standing],
    judged: Sequence[Standing],
    best: Sequence[Standing],
) -> HeldUp:
    others = [each for each in judged if each not in best]
    pairs = len(judged) * (len(judged) - 1) // 2
    level, below, seen = 1 - 0.05 / pairs, [], []
    for other in others:
        found = [area_effect(results, other.method, one.method, level) for one in best]
        effects = [each for each in found if each is not None]
        seen += [each.detectable for each in effects]
        if len(effects) == len(best) and all(each.low > 0 for each in effects):
            below.append(other.method)
    among = "" if len(judged) == len(standings) else f" of the {len(judged)} that can be judged"
    if len(below) == len(others):
        sentence = f"{_named(best)} hold{'s' * (len(best) == 1)} up best as classes become stranger"
        return HeldUp(tuple(standings), f"{sentence}{among}: told apart from all others.", True)
    told = [f"They are told apart from {_listed(below)}."] if below else []
    told += [f"A difference of {100 * max(seen):.1f} points would have been seen."] if seen else []
    sentence = (
        f"{_named(best)} are highest{among} as classes become stranger, but not told apart from "
        f"all others: which {len(best)} hold up best cannot be told."
    )
    return HeldUp(tuple(standings), sentence, is_told=False, detail=" ".join(told))


def area_effect(results: Results, first: str, second: str, level: float = 0.95) -> Effect | None:
    """What the second method's area has over the first's; None where runs are missing."""
    parts = [_by_class(results, method) for method in (first, second)]
    seeds = sorted(set(parts[0]) & set(parts[1]))
    classes = sorted({c for part in parts for seed in seeds for c in part[seed]})
    if not seeds or not classes:
        return None
    tables = [
        np.array([[part[seed].get(c, 0.0) for c in classes] for seed in seeds]) for part in parts
    ]
    return crossed(len(classes) * (tables[1] - tables[0]), level=level)


def _by_class(results: Results, method: str) -> dict[tuple[int, int], dict[int, float]]:
    """Of each seed that has all steps: what every test class adds to the area."""
    runs: dict[tuple[int, int], list[tuple[float, ByClass]]] = {}
    steps = {distance for run in results.runs if (distance := _distance(run)) is not None}
    for run in results.runs:
        table, distance = run.by_class(results.plan.metric), _distance(run)
        is_own = run.cell.labels[results.plan.compared] == method
        if is_own and run.state == "done" and table is not None and distance is not None:
            runs.setdefault(run.replicate, []).append((distance, table))
    found: dict[tuple[int, int], dict[int, float]] = {}
    for replicate, own in runs.items():
        if len(own) < len(steps) or len(own) < 2:
            continue
        own.sort(key=lambda pair: pair[0])
        sums = found.setdefault(replicate, {})
        weights = trapezoid([distance for distance, _ in own])
        for weight, (_, table) in zip(weights, own, strict=True):
            total = sum(table.counts)
            for label, value in zip(table.classes, table.sums.tolist(), strict=True):
                sums[label] = sums.get(label, 0.0) + weight * value / total
    return found


def _distance(run: Run) -> float | None:
    return run.result.split.shift if run.result else None


def _failed(results: Results) -> dict[str, str]:
    """Method -> the gates it fails, at any step."""
    found: dict[str, dict[str, None]] = {}
    for each in results.comparisons():
        for gate in each.gates:
            for method in (each.arm, each.against) if gate.arm == BOTH else (gate.arm,):
                if not gate.passed:
                    found.setdefault(method, {}).update(dict.fromkeys(gate.why.split(", ")))
    return {
        method: "; ".join(_ranged(alike) for alike in _kinds(reasons))
        for method, reasons in found.items()
    }


def _reasons(standings: Sequence[Standing]) -> str:
    """What fails most often, with how many methods."""
    every = [why for each in standings for why in each.failed.split("; ") if why]
    often = sorted(_kinds(every), key=len, reverse=True)[:4]
    told = [f"{_ranged(alike)} ({len(alike)} method{'s' * (len(alike) > 1)})" for alike in often]
    return "; ".join(told) or "too few methods"


def _kinds(reasons: Iterable[str]) -> list[list[str]]:
    """Those that differ in numbers alone, together."""
    found: dict[str, list[str]] = {}
    for why in reasons:
        found.setdefault(NUMBER.sub("#", why), []).append(why)
    return list(found.values())


def _ranged(alike: Sequence[str]) -> str:
    """Reasons of one kind as one: tuned on 3 to 8 of 30 validation classes."""

    def span(column: Sequence[str]) -> str:
        ends = sorted({end for each in column for end in each.split(" to ")}, key=float)
        return " to ".join(dict.fromkeys((ends[0], ends[-1])))

    spans = map(span, zip(*(NUMBER.findall(why) for why in alike), strict=True))
    return NUMBER.sub(lambda _: next(spans), alike[0])


def _named(standings: Sequence[Standing]) -> str:
    return _listed([f"{each.method} ({100 * each.area:.1f} %)" for each in standings])


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
