"""The tables of HORDE: recall at every rank of the losses without, with and with all orders, and
orders trained by order tested."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from unseen.reports.tables import Table
from unseen.reproductions.against_source import drawn, number
from unseen.reproductions.charts import Point, lines
from unseen.reproductions.numbers import as_number, rows_of, table
from unseen.reproductions.published_study import Evidence
from unseen.reproductions.request import Ask
from unseen.studies.findings import Section
from unseen.studies.results import Results, Run

PLAIN, WITH = "plain", "with HORDE"
CONFIGURATIONS = {
    "cascade": "horde",
    "all_trained": "all_trained",
    "fixed_random": "random_maclaurin",
}
RANKS = {  # of the columns v1 to v6 of their tables
    "online_products": (1, 10, 100, 1000),
    "inshop": (1, 10, 20, 30, 40, 50),
}
OF_ORDERS = (1, 2, 4, 8)
THEIRS = {  # plan -> title, network, their rows without, with, and with all orders
    "horde_orders": ("binomial deviance", "GoogleNet", "Binomial Deviance (Ours)",
                     "Binomial Deviance + HORDE", "Binomial Deviance + HORDE †"),
    "horde_contrastive": ("contrastive", "GoogleNet", "contrastive loss (Ours)",
                          "contrastive loss + HORDE", ""),
    "horde_triplet": ("triplet", "GoogleNet", "Triplet loss (Ours)", "Triplet loss + HORDE", ""),
    "horde_bn_inception": ("contrastive, BN-Inception", "BN-Inception", "",
                           "contrastive loss + HORDE", "contrastive loss + HORDE †"),
    "horde_ensemble": ("contrastive, ensemble", "GoogleNet", "ABE (Ours)", "ABE + HORDE",
                       "ABE + HORDE †"),
}  # fmt: skip
UNEQUAL = (
    "The source calls orders read on their own `almost identical` to one another; its fixed "
    "variant compares 8,192 values of a high order with 512 of the first."
)


def ranks(ask: Ask) -> tuple[int, ...]:
    """Those that the source prints for the data."""
    return RANKS.get(ask.published_data, (1, 2, 4, 8, 16, 32))


def name(configuration: str, count: int) -> str:
    """The method; with two orders `all_trained` is the cascade, so these are the same runs."""
    if count == 1:
        return PLAIN
    twin = "cascade" if configuration == "all_trained" and count == 2 else configuration
    return f"{twin}, orders 1 to {count}"


def methods(plan: str, best: str) -> tuple[str, str]:
    """The methods without and with HORDE."""
    others = {"horde_orders": (PLAIN, best), "horde_ensemble": ("ensemble", "ensemble with HORDE")}
    return others.get(plan, (PLAIN, WITH))


def tested(run: Run, measured: Mapping[str, Any], order: str, k: int) -> float:
    """Recall@k in percent of an order of a run, or of `all`; NaN where it was not measured."""
    value = measured.get(run.planned.key, {}).get("orders", {}).get(order, {}).get(str(k))
    if value is None and order == "1":
        return 100 * run.score(f"recall@{k}")
    return math.nan if value is None else 100 * float(value)


def _mean(result: Results, measured: Mapping[str, Any], method: str, order: str, k: int) -> float:
    done = [run for run in result.of("", method) if run.state == "done"]
    values = [tested(run, measured, order, k) for run in done]
    known = [value for value in values if not math.isnan(value)]
    return float(np.mean(known)) if known else math.nan


def published_orders(data: str) -> dict[tuple[str, int, int, int], float]:
    """(variant, orders trained, order tested, rank) -> percent; theirs are of birds alone."""
    rows: list[dict[str, Any]] = table("horde_orders") if data == "cub200" else []
    return {
        (r["variant"], int(r["orders_trained"]), int(r["order_tested"]), int(r["metric"][1:])):
        r["value"]
        for r in rows if isinstance(r["value"], float)
    }  # fmt: skip


def published(data: str) -> dict[tuple[str, str], Sequence[Any]]:
    """Network and method of tables 1 and 2 -> recall by rank."""
    return {
        (str(r["backbone"]), str(r["method"])): [r[f"v{i}"] for i in range(1, 7)]
        for r in rows_of("horde_tables12", data)
    }


def printed(data: str, plan: str, place: int) -> float:
    """Recall@1 of a row of tables 1 and 2: 0 without HORDE, 1 with it, 2 all orders."""
    return as_number(published(data).get((THEIRS[plan][1], THEIRS[plan][2 + place]), [None])[0])


def losses(evidence: Evidence, best: str) -> Section:
    """Tables 1 and 2."""
    theirs, measured, rows = published(evidence.data), evidence.measured, []
    shown = ranks(evidence.ask)
    heads = [head for k in shown for head in (f"R@{k} %", *["published"] * bool(theirs))]
    for plan, (title, network, *known) in THEIRS.items():
        if plan not in evidence.results:
            continue
        result, (plain, trained) = evidence.results[plan], methods(plan, best)
        kinds = ((title, plain, "1"), (f"{title} + HORDE", trained, "1"),
                 (f"{title} + HORDE, all orders", trained, "all"))  # fmt: skip
        for (name, method, order), row in zip(kinds, known, strict=True):
            values, cells = theirs.get((network, row), [None] * len(shown)), [name]
            for k, value in zip(shown, values, strict=False):
                ours = _mean(result, measured, method, order, k)
                cells += [number(ours), *[number(value)] * bool(theirs)]
            rows.append(cells)
    caption = f"With HORDE: {best}; all orders: reduced to the embedding's size by PCA."
    return Section("Losses and ensemble", [], [Table(["loss", *heads], rows, caption)])


def orders(evidence: Evidence) -> Section:
    """Tables 3 to 5."""
    result, measured = evidence.results["horde_orders"], evidence.measured
    theirs = published_orders(evidence.data)
    most = max(int(m.rpartition(" ")[2]) for m in result.methods() if m != PLAIN)
    shown = [k for k in OF_ORDERS if k in ranks(evidence.ask)]
    series = {}
    for kind in CONFIGURATIONS:
        trained = range(1, most + 1)
        values = {n: _mean(result, measured, name(kind, n), "1", 1) for n in trained}
        series[kind] = [Point(str(n), value) for n, value in values.items()]
        if theirs:
            known = {n: theirs.get((kind, n, 1, 1), math.nan) for n in trained}
            series[f"{kind}, published"] = [Point(str(n), value) for n, value in known.items()]
    figure = drawn(
        "orders",
        "Recall@1 of the first order, which is all that inference keeps, by the number of orders "
        "trained" + ("; dashed as published on CUB." if theirs else "."),
        lambda: lines(series, "orders trained", "recall@1, %",
                      [f"{kind}, published" for kind in CONFIGURATIONS]),
    )  # fmt: skip
    tables = [_orders_table(result, measured, theirs, k, most) for k in shown]
    return Section("Orders trained by order tested", [UNEQUAL], tables, [figure])


def _orders_table(
    result: Results, measured: Mapping[str, Any], theirs: Mapping[Any, float], k: int, most: int
) -> Table:
    rows = []
    for configuration in CONFIGURATIONS:
        for count in range(1, most + 1):
            method, cells = name(configuration, count), []
            for order in range(1, most + 1):
                if order > count:
                    cells += [""] * (1 + bool(theirs))
                    continue
                known = theirs.get((configuration, count, order, k))
                cells.append(number(_mean(result, measured, method, str(order), k)))
                cells += [number(known)] * bool(theirs)
            span = f"1 to {count}" if count > 1 else "1"
            rows.append([configuration, span, *cells])
    heads = ["variant", "orders trained"]
    for order in range(1, most + 1):
        heads += [f"R@{k} % at order {order}", *["published"] * bool(theirs)]
    caption = "With two orders `all_trained` is the cascade, so that row is the same runs."
    return Table(heads, rows, caption)


def steps_to_best(measured: Mapping[str, Any], run: Run) -> float:
    course = measured.get(run.planned.key, {}).get("course")
    if not course or not course["steps"]:
        return math.nan
    return float(course["steps"][int(np.nanargmax(course["recall"]))])
