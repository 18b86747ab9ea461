"""The tables of HORDE: orders trained by order tested, losses with and without, recall at every
rank that the paper prints."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from unseen.reports.tables import Table
from unseen.reproductions.against_source import drawn, number, seeds_message, signed
from unseen.reproductions.charts import Point, lines, point
from unseen.reproductions.numbers import table
from unseen.reproductions.published_study import Ask
from unseen.studies.effect_figure import effects_drawn
from unseen.studies.findings import Section
from unseen.studies.results import Results, effect
from unseen.studies.study_tables import evaluated_tables
from unseen.studies.validity_checks import MethodRuns, compared, effect_text

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


def ranks(ask: Ask) -> tuple[int, ...]:
    """Those that the source prints for the data."""
    return RANKS.get(ask.published_data, (1, 2, 4, 8, 16, 32))


def name(configuration: str, count: int) -> str:
    return f"{configuration}, orders 1 to {count}"


def _methods(plan: str, best: str) -> tuple[str, str]:
    """The methods without and with HORDE."""
    others = {"horde_orders": (PLAIN, best), "horde_ensemble": ("ensemble", "ensemble with HORDE")}
    return others.get(plan, (PLAIN, WITH))


def _tested(result: Results, measured: Mapping[str, Any], method: str, k: int) -> dict[str, float]:
    """Recall@k in percent by tested order, the mean over runs."""
    if method == PLAIN:
        return {"1": point(0, result.of("", PLAIN), f"recall@{k}").value}
    rows = [measured.get(run.planned.key, {}).get("orders", {}) for run in result.of("", method)]
    values: dict[str, list[float]] = {}
    for row in rows:
        for order, at in row.items():
            by_rank = at if isinstance(at, dict) else {"1": at}  # 0.2 knew the first rank only
            if str(k) in by_rank:
                values.setdefault(order, []).append(100 * by_rank[str(k)])
    return {order: float(np.mean(known)) for order, known in values.items()}


def _published_orders(ask: Ask) -> dict[tuple[str, int, int, int], float]:
    """(variant, orders trained, order tested, rank) -> percent; theirs are of birds alone."""
    rows: list[dict[str, Any]] = table("horde_orders") if ask.published_data == "cub200" else []
    return {
        (r["variant"], int(r["orders_trained"]), int(r["order_tested"]), int(r["metric"][1:])):
        _float(r["value"])
        for r in rows
    }  # fmt: skip


def orders(result: Results, measured: Mapping[str, Any], ask: Ask, best: str) -> Section:
    theirs = _published_orders(ask)
    counts = [int(m.rpartition(" ")[2]) for m in result.methods() if m != PLAIN]
    most = max(counts)
    shown = [k for k in OF_ORDERS if k in ranks(ask)]
    tables = [_orders_table(result, measured, theirs, k, most) for k in shown]
    series = {}
    for configuration in CONFIGURATIONS:
        series[configuration] = [
            Point(
                str(n), _tested(result, measured, _method(configuration, n), 1).get("1", math.nan)
            )
            for n in range(1, most + 1)
        ]
        series[f"{configuration}, published"] = [
            Point(str(n), theirs.get((configuration, n, 1, 1), math.nan))
            for n in range(1, most + 1)
        ]
    figure = drawn(
        "orders",
        "Recall@1 of the first order, which is all that inference keeps, by the number of orders "
        "trained; dashed as published on CUB.",
        lambda: lines(series, "orders trained", "recall@1, %",
                      [title for title in series if "published" in title]),
    )  # fmt: skip
    return Section(
        "Orders trained by order tested",
        _orders_message(result, measured, ask, best),
        tables,
        [figure],
    )


def _method(configuration: str, count: int) -> str:
    """With two orders `all_trained` is the cascade, so these are the same runs."""
    twin = "cascade" if configuration == "all_trained" and count == 2 else configuration
    return PLAIN if count == 1 else name(twin, count)


def _orders_table(
    result: Results, measured: Mapping[str, Any], theirs: Mapping[Any, float], k: int, most: int
) -> Table:
    rows = []
    for configuration in CONFIGURATIONS:
        for count in range(1, most + 1):
            tested = _tested(result, measured, _method(configuration, count), k)
            cells = []
            for order in range(1, most + 1):
                known = theirs.get((configuration, count, order, k))
                pair = [number(tested.get(str(order))), number(known)]
                cells += pair if order <= count else ["", ""]
            span = f"1 to {count}" if count > 1 else "1"
            rows.append([configuration, span, *cells, number(tested.get("all"))])
    heads = ["variant", "orders trained"]
    for order in range(1, most + 1):
        heads += [f"R@{k} % at order {order}", "published"]
    caption = "With two orders `all_trained` is the cascade, so that row is the same runs."
    return Table([*heads, "all orders, PCA"], rows, caption)


def _float(value: Any) -> float:
    return value if isinstance(value, float) else math.nan


def _orders_message(result: Results, measured: Mapping[str, Any], ask: Ask, best: str) -> list[str]:
    plain, theirs = result.of("", PLAIN), _published(ask)
    network, *rows = THEIRS["horde_orders"][1:4]
    known = [number(theirs.get((network, row), [math.nan])[0]) for row in rows]
    words = []
    for method in result.methods():
        if method != PLAIN:
            words.append(
                f"{method} {effect_text(effect(plain, result.of('', method), 'recall@1'))}"
            )
    base = point(0, plain, "recall@1").value
    tested = _tested(result, measured, best, 1)
    all_of = tested.get("all", math.nan) - tested.get("1", math.nan)
    higher = [tested[str(i)] for i in range(2, 7) if str(i) in tested]
    falls = bool(higher) and higher == sorted(higher, reverse=True) and tested["1"] >= higher[0]
    listed = ", ".join(number(value) for order, value in tested.items() if order != "all")
    return [
        f"Recall@1 on unseen classes is {number(base)} % without HORDE and "
        f"{number(tested.get('1'))} % with it ({best}); published on {ask.published_title}: "
        f"{known[0]} and {known[1]} %.",
        f"What it adds, in points with intervals over seeds and test classes: {'; '.join(words)}.",
        f"Tested alone, recall {'falls' if falls else 'does not fall'} from order to order "
        f"({best}: {listed or '–'} %; published on CUB-200 with 3: 57.9, 56.1, 54.2).",
        f"All orders together, reduced to the embedding's size, change recall@1 by {all_of:+.1f} "
        "points against the first order (published +0.5 to +2.3).",
        seeds_message(result),
    ]


def _published(ask: Ask) -> dict[tuple[str, str], list[float]]:
    """Network and method of tables 1 and 2 -> recall by rank."""
    return {
        (str(r["backbone"]), str(r["method"])): [_float(r[f"v{i}"]) for i in range(1, 7)]
        for r in table("horde_tables12")
        if r["dataset"] == ask.published_data
    }


def losses(
    results: Mapping[str, Results], measured: Mapping[str, Any], ask: Ask, best: str
) -> Section:
    theirs = _published(ask)
    rows, evaluated = [], []
    for plan, (title, network, *known) in THEIRS.items():
        if plan not in results:
            continue
        sides = [MethodRuns(results[plan], "", method) for method in _methods(plan, best)]
        old, new = (theirs.get((network, row), [math.nan])[0] for row in known[:2])
        result = compared(sides[0], sides[1], new - old)
        evaluated.append(replace(result, experiment=title))
        scores = [number(point(0, side.runs, "recall@1").value) for side in sides]
        rows.append([title, *scores, effect_text(result.effect), number(old), number(new),
                     signed(new - old), result.word])  # fmt: skip
    caption = f"HORDE ({best}) adds to recall@1: " + "; ".join(
        f"{row[0]} {row[3]}, published {row[6]}: {row[7]}" for row in rows
    )
    heads = ["loss", "without %", "with %", "gain", "published without", "published with",
             "published gain", "conclusion"]  # fmt: skip
    shown = [Table(heads, rows), _ranks_table(results, measured, ask, best, theirs)]
    return Section(
        "Losses and ensemble", [f"{caption}."], [*shown, *evaluated_tables(evaluated)],
        effects_drawn(evaluated),
    )  # fmt: skip


def _ranks_table(
    results: Mapping[str, Results],
    measured: Mapping[str, Any],
    ask: Ask,
    best: str,
    theirs: Mapping[tuple[str, str], Sequence[float]],
) -> Table:
    """Recall at every rank of tables 1 and 2, ours and then theirs."""
    heads = ["loss"]
    for k in ranks(ask):
        heads += [f"R@{k} %", "published"]
    rows = []
    for plan, (title, network, *known) in THEIRS.items():
        if plan not in results:
            continue
        result, methods = results[plan], _methods(plan, best)
        titles = (title, f"{title} + HORDE", f"{title} + HORDE, all orders")
        for place, (shown, row) in enumerate(zip(titles, known, strict=True)):
            cells = []
            for column, k in enumerate(ranks(ask)):
                if place == 2:
                    ours = _tested(result, measured, methods[1], k).get("all")
                else:
                    ours = point(0, result.of("", methods[place]), f"recall@{k}").value
                values = theirs.get((network, row), ())
                cells += [number(ours), number(values[column] if values else None)]
            rows.append([shown, *cells])
    return Table(heads, rows, "Published: tables 1 and 2; a dash where nothing is printed or run.")


def course(results: Mapping[str, Results], measured: Mapping[str, Any]) -> Section:
    rows = []
    for result in results.values():
        for run in result.runs:
            course = measured.get(run.planned.key, {}).get("course")
            if course and course["steps"]:
                best = int(np.nanargmax(course["recall"]))
                rows.append([", ".join(run.planned.labels.values()),
                             result.plan.config["loss"]["name"],
                             f"{course['steps'][best]}", f"{100 * course['recall'][best]:.1f}",
                             number(_jitter(course["recall"]), 2)])  # fmt: skip
    caption = (
        "Steps until validation recall is highest, and jitter: the mean change of validation "
        "recall from one epoch to the next in the second half of training, in points. The "
        "source prints no numbers of these."
    )
    heads = ["run", "loss", "steps to best", "validation R@1 %", "jitter"]
    return Section("Steps to best", [caption], [Table(heads, rows)] if rows else [])


def _jitter(recall: Sequence[float]) -> float:
    later = np.asarray(recall[len(recall) // 2 :], dtype=np.float64)
    return 100 * float(np.abs(np.diff(later)).mean()) if len(later) > 1 else math.nan
