"""What Jacob et al. claim of high-order moments, measured on the runs of their tables."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from unseen.reproductions.claims import Claim, Finding, against, mean_finding
from unseen.reproductions.jacob.horde_tables import (
    PLAIN,
    THEIRS,
    methods,
    name,
    printed,
    published_orders,
    ranks,
    steps_to_best,
    tested,
)
from unseen.reproductions.request import Ask
from unseen.studies.results import Results, Run

FIXED, TRAINED, CASCADE = "fixed_random", "all_trained", "cascade"
Measured = Mapping[str, Any]


def claims(ask: Ask, results: Mapping[str, Results], measured: Measured, most: int) -> list[Claim]:
    """most: the orders of the source's own setting."""
    best, orders = name(CASCADE, most), results["horde_orders"]
    gains = {
        plan: against(
            results[plan],
            *methods(plan, best),
            printed(ask, plan, 1) - printed(ask, plan, 0),
            title,
        )
        for plan, (title, *_) in THEIRS.items()
        if plan in results
    }
    joined = {
        plan: mean_finding(
            THEIRS[plan][0],
            _values(result, methods(plan, best)[1], lambda run: _joined(run, measured)),
            printed(ask, plan, 2) - printed(ask, plan, 1),
        )
        for plan, result in results.items()
    }
    theirs = published_orders(ask)
    deep = [k for k in ranks(ask) if k > 1]
    counts = [n for n in range(2, 7) if name(CASCADE, n) in orders.methods()]

    def over_plain(configuration: str) -> list[Finding]:
        gap = {n: theirs.get((configuration, n, 1, 1), math.nan)
               - theirs.get((configuration, 1, 1, 1), math.nan) for n in counts}  # fmt: skip
        return [
            against(orders, PLAIN, name(configuration, n), gap[n], f"{configuration}, {n} orders")
            for n in counts
        ]

    def between(one: str, other: str, counts: Sequence[int]) -> list[Finding]:
        return [
            against(orders, name(other, n), name(one, n), _gap(theirs, one, other, n, 1),
                    f"{one} against {other}, {n} orders") for n in counts
        ]  # fmt: skip

    high = [
        mean_finding(
            f"order {n} of {n}, {TRAINED} less {FIXED}",
            _paired(orders, name(FIXED, n), name(TRAINED, n), _at(measured, str(n))),
            _gap(theirs, TRAINED, FIXED, n, n), expected=-1,
        )
        for n in counts if n > 2
    ]  # fmt: skip
    falling = [
        mean_finding(f"{each}, {most} orders, a step of one order",
                     _values(orders, name(each, most), lambda run: _slope(run, measured, most)),
                     _slope_of([theirs.get((each, most, n, 1), math.nan)
                                for n in range(1, most + 1)]), -1)
        for each in (FIXED, TRAINED, CASCADE)
    ]  # fmt: skip
    faster = _paired(orders, PLAIN, best, lambda run: steps_to_best(run, measured))
    return [
        Claim("H01", [gains["horde_contrastive"]]),
        Claim("H02", [gains["horde_triplet"]]),
        Claim("H03", [gains["horde_orders"]]),
        Claim("H05", [gains["horde_ensemble"]]),
        Claim("H07", [
            mean_finding(f"gain at rank {k} less that at rank 1",
                         _paired(orders, PLAIN, best, partial(_deeper, k)),
                         expected=-1) for k in deep]),
        Claim("H08", [joined["horde_orders"]]),
        Claim("H09", [joined["horde_ensemble"]]),
        Claim("H13", over_plain(FIXED)),
        Claim("H17", [mean_finding(best, faster, -1000.0)], "steps"),
        Claim("H18", over_plain(TRAINED)),
        Claim("H19", between(TRAINED, FIXED, counts)),
        Claim("H20", high),
        Claim("H22", between(CASCADE, TRAINED, [n for n in counts if n > 2])),
        Claim("H23", falling),
        *_local(orders, measured, best),
    ]  # fmt: skip


def _local(orders: Results, measured: Measured, best: str) -> list[Claim]:
    """On the vectors at the places of the last map."""

    def drop(run: Run) -> float:
        missing = _of(run, measured).get("missing")
        return math.nan if not missing else 100 * (np.mean(missing["1"]) - np.mean(missing["6"]))

    def scatter(run: Run) -> float:
        result = _of(run, measured).get("scatter")
        return math.nan if not result else float(result["ratio"])

    rates = {"H27": "mmd", "H28": "wasserstein"}
    pairs = [(PLAIN, best)]
    selected = [
        mean_finding(
            "drop with a sixth of the places", _paired(orders, *pairs[0], drop), expected=-1
        )
    ]
    closer = [mean_finding("scatter ratio", _paired(orders, *pairs[0], scatter), expected=-1)]
    bounds = []
    for claim, kind in rates.items():
        outcome = [
            Finding(f"{method}, rank correlation with the moment sum", each["r"], each["low"],
                    each["high"])
            for method in (PLAIN, best) for run in orders.of("", method)[:1]
            if (each := _of(run, measured).get("bounds", {}).get(kind))
        ]  # fmt: skip
        bounds.append(Claim(claim, outcome, "r"))
    return [Claim("H25", selected), Claim("H26", closer, "ratio"), *bounds]


def _of(run: Run, measured: Measured) -> Mapping[str, Any]:
    local: Mapping[str, Any] = measured.get(run.planned.key, {}).get("local", {})
    return local


def _values(results: Results, method: str, value: Callable[[Run], float]) -> list[float]:
    return [value(run) for run in results.of("", method) if run.state == "done"]


def _paired(
    results: Results, other: str, method: str, value: Callable[[Run], float]
) -> list[float]:
    """What a method has over another, by seed."""
    known = [
        {run.replicate[0]: value(run) for run in results.of("", each) if run.state == "done"}
        for each in (other, method)
    ]
    return [known[1][seed] - known[0][seed] for seed in known[0].keys() & known[1].keys()]


def _joined(run: Run, measured: Measured) -> float:
    return tested(run, measured, "all", 1) - tested(run, measured, "1", 1)


def _at(measured: Measured, order: str) -> Callable[[Run], float]:
    return lambda run: tested(run, measured, order, 1)


def _deeper(k: int, run: Run) -> float:
    return 100 * (run.score(f"recall@{k}") - run.score("recall@1"))


def _gap(theirs: Mapping[Any, float], one: str, other: str, count: int, order: int) -> float:
    values = [theirs.get((each, count, order, 1), math.nan) for each in (one, other)]
    return float(values[0]) - float(values[1])


def _slope(run: Run, measured: Measured, most: int) -> float:
    return _slope_of([tested(run, measured, str(n), 1) for n in range(1, most + 1)])


def _slope_of(values: Sequence[float]) -> float:
    """Points by which recall changes from order to order, by least squares."""
    y = np.asarray(values, dtype=np.float64)
    return math.nan if np.isnan(y).any() else float(np.polyfit(np.arange(len(y)), y, 1)[0])
