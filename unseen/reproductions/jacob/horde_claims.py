"""What Jacob et al. claim of high-order moments, measured on the runs of their tables."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from unseen.reproductions.claims import Claim
from unseen.reproductions.effects import (
    Finding,
    against,
    changed,
    mean_of_sides,
    of_correlation,
    of_seeds,
    weighted,
)
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
from unseen.reproductions.published_study import Evidence
from unseen.studies.results import Results, Run
from unseen.studies.validity_checks import MethodRuns

FIXED, TRAINED, CASCADE = "fixed_random", "all_trained", "cascade"
Measured = Mapping[str, Any]


def claims(evidence: Evidence, most: int) -> list[Claim]:
    """most: the orders of the source's own setting."""
    ask, results, measured = evidence.ask, evidence.results, evidence.measured
    best, orders = name(CASCADE, most), results["horde_orders"]
    theirs = published_orders(evidence.data)
    counts = [n for n in range(2, 7) if name(CASCADE, n) in orders.methods()]
    deep = [n for n in counts if n > 2]

    def side(method: str) -> MethodRuns:
        return MethodRuns(orders, "", method)

    def gain(plan: str) -> list[Finding]:
        if plan not in results:
            return []
        value = printed(evidence.data, plan, 1) - printed(evidence.data, plan, 0)
        return [against(results[plan], *methods(plan, best), value, THEIRS[plan][0])]

    def joined(plan: str) -> list[Finding]:
        """Of all orders over the first one, in the same network."""
        if plan not in results:
            return []
        own = [MethodRuns(results[plan], "", methods(plan, best)[1])]
        values = mean_of_sides(own, partial(_joined, measured))
        value = printed(evidence.data, plan, 2) - printed(evidence.data, plan, 1)
        return [of_seeds(THEIRS[plan][0], values, own, value)]

    def over_plain(kind: str) -> list[Finding]:
        plain = theirs.get((kind, 1, 1, 1), math.nan)
        return [
            against(orders, PLAIN, name(kind, n), theirs.get((kind, n, 1, 1), math.nan)
                    - plain, f"{kind}, {n} orders") for n in counts
        ]  # fmt: skip

    def between(one: str, other: str, counts: Sequence[int]) -> list[Finding]:
        return [
            against(orders, name(other, n), name(one, n), _gap(theirs, one, other, n, 1),
                    f"{one} against {other}, {n} orders") for n in counts
        ]  # fmt: skip

    def deeper(k: int) -> Finding:
        terms = [(sign * one, side(method), metric) for sign, method in ((-1, PLAIN), (1, best))
                 for one, metric in ((1, f"recall@{k}"), (-1, "recall@1"))]  # fmt: skip
        return weighted(f"gain at rank {k} less that at rank 1", terms, expected=-1)

    def high(n: int) -> Finding:
        pair = (side(name(FIXED, n)), side(name(TRAINED, n)))
        return changed(f"order {n} of {n}, {TRAINED} less {FIXED}", pair,
                       lambda run: tested(run, measured, str(n), 1),
                       _gap(theirs, TRAINED, FIXED, n, n), expected=-1)  # fmt: skip

    def falling(kind: str) -> Finding:
        own = [side(name(kind, most))]
        printed_at = [theirs.get((kind, most, n, 1), math.nan) for n in range(1, most + 1)]
        return of_seeds(f"{kind}, {most} orders, a step of one order",
                        mean_of_sides(own, partial(_slope, measured, most)), own,
                        _slope_of(printed_at), -1)  # fmt: skip

    pair = (side(PLAIN), side(best))
    return [
        Claim("H01", gain("horde_contrastive")),
        Claim("H02", gain("horde_triplet")),
        Claim("H03", gain("horde_orders")),
        Claim("H05", gain("horde_ensemble")),
        Claim("H07", [deeper(k) for k in ranks(ask) if k > 1]),
        Claim("H08", joined("horde_orders")),
        Claim("H09", joined("horde_ensemble")),
        Claim("H10", joined("horde_bn_inception")),
        Claim("H13", over_plain(FIXED)),
        Claim("H17", [changed(best, pair, partial(steps_to_best, measured), -1000.0)], "steps"),
        Claim("H18", over_plain(TRAINED)),
        Claim("H19", between(TRAINED, FIXED, counts)),
        Claim("H20", [high(n) for n in deep]),
        Claim("H22", between(CASCADE, TRAINED, deep)),
        Claim("H23", [falling(kind) for kind in (FIXED, TRAINED, CASCADE)]),
        *_local(orders, measured, pair),
    ]


def _local(orders: Results, measured: Measured, pair: tuple[MethodRuns, MethodRuns]) -> list[Claim]:
    """On the vectors at the places of the last map."""

    def local(value: Callable[[Mapping[str, Any]], float], run: Run) -> float:
        known = measured.get(run.planned.key, {}).get("local")
        return value(known) if known else math.nan

    def drop(known: Mapping[str, Any]) -> float:
        return 100 * float(np.mean(known["missing"]["1"]) - np.mean(known["missing"]["6"]))

    def scatter(known: Mapping[str, Any]) -> float:
        return float(known["scatter"]["ratio"])

    def bounds(kind: str) -> list[Finding]:
        """Of the first measured run of each."""
        findings = []
        for each in pair:
            known = [measured.get(run.planned.key, {}).get("local", {}).get("bounds", {})
                     for run in each.runs if run.state == "done"]  # fmt: skip
            for row in [row[kind] for row in known if kind in row][:1]:
                findings.append(of_correlation(
                    f"{each.method}, rank correlation with the moment sum",
                    (row["r"], row["low"], row["high"]), [each],
                ))  # fmt: skip
        return findings

    lost = changed("drop with a sixth of the places", pair, partial(local, drop), expected=-1)
    return [
        Claim("H25", [lost]),
        Claim("H26", [changed("scatter ratio", pair, partial(local, scatter), expected=-1)],
              "ratio"),
        Claim("H27", bounds("mmd"), "r"),
        Claim("H28", bounds("wasserstein"), "r"),
    ]  # fmt: skip


def _joined(measured: Measured, run: Run) -> float:
    return tested(run, measured, "all", 1) - tested(run, measured, "1", 1)


def _gap(theirs: Mapping[Any, float], one: str, other: str, count: int, order: int) -> float:
    values = [theirs.get((each, count, order, 1), math.nan) for each in (one, other)]
    return float(values[0]) - float(values[1])


def _slope(measured: Measured, most: int, run: Run) -> float:
    return _slope_of([tested(run, measured, str(n), 1) for n in range(1, most + 1)])


def _slope_of(values: Sequence[float]) -> float:
    """Points by which recall changes from order to order, by least squares."""
    y = np.asarray(values, dtype=np.float64)
    return math.nan if np.isnan(y).any() else float(np.polyfit(np.arange(len(y)), y, 1)[0])
