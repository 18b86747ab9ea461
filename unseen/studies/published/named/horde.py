"""HORDE: the loss also on high-order moments of the last map, dropped after training.

Source   P. Jacob et al., Metric Learning with HORDE: High-Order Regularizer for Deep Embeddings,
         ICCV 2019, https://arxiv.org/abs/1908.02735, tables 1 to 5, figures 1 and 3
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from torch import Tensor

from unseen import assemble, find_data
from unseen.evaluation.evaluate import evaluate
from unseen.experiment.layers import stored_network
from unseen.experiment.run_context import RunContext, computing, reopen
from unseen.networks.network import EmbeddingNetwork
from unseen.regularizers.high_order.descriptor import OrdersDescriptor
from unseen.regularizers.horde import Horde as Regularizer
from unseen.reports import stored_run
from unseen.studies.document import Table
from unseen.studies.effects import effects_drawn
from unseen.studies.gates import Arm, compared, effect_text
from unseen.studies.plan import Plan, Values
from unseen.studies.published import local_features
from unseen.studies.published.charts import Point, lines, point
from unseen.studies.published.comparison import drawn, number, seeds_told, signed
from unseen.studies.published.numbers import table
from unseen.studies.published.page import Section
from unseen.studies.published.source_values import JACOB
from unseen.studies.published.study import Ask, PublishedStudy, Told
from unseen.studies.results import Results, Run, effect
from unseen.studies.tables import judged_tables
from unseen.training.run_folder import RunFolder

DIMENSION = 1024
VARIANTS = {"cascade": "horde", "all_trained": "all_trained", "fixed_random": "random_maclaurin"}
PLAIN, BEST = "plain", "cascade, orders 1 to 3"
ENSEMBLE: Values = {
    "num_heads": 4,
    "masks_at": "stage2.reduce",
    "trunk_until": "stage2.reduce_norm",
}
DIVERGENCE: Values = {"name": "head_divergence", "weight": 0.5}
QUICK_DATA: Values = {"size": 64, "max_classes": 160}  # of glyphs: a map of 16 places
THEIRS = {  # our loss -> their rows without and with
    "binomial_deviance": ("Binomial Deviance (Ours)", "Binomial Deviance + HORDE"),
    "contrastive": ("contrastive loss (Ours)", "contrastive loss + HORDE"),
}


class Horde(PublishedStudy):
    source = "Jacob et al. 2019, tables 1 to 5, figures 1 and 3 (GoogLeNet, 512-d, dimension 8192)"
    shows = "orders trained by order tested, all orders together, ensembles, missing features"
    source_values = JACOB

    def plans(self, ask: Ask) -> list[Plan]:
        if not ask.has_pictures:
            raise ValueError(
                f"horde acts on the last map, and {ask.data} holds features: give pictures, e.g. "
                "--data glyphs"
            )
        most = 3 if ask.is_quick else 5
        orders: dict[str, Values] = {PLAIN: {"regularizers": []}}
        for variant in VARIANTS:
            for count in range(2, most + 1):
                if variant != "all_trained" or count > 2:  # with two orders it is the cascade
                    orders[_name(variant, count)] = {"regularizers": [_term(variant, count)]}
        seeds = 1 if ask.is_quick else 3
        both = {PLAIN: {"regularizers": []}, "with HORDE": {"regularizers": [_term("cascade", 3)]}}
        apart: list[Values] = [DIVERGENCE, _term("cascade", 3) | {"weight": 0.5, "reduce": 256}]
        ensembles = {
            "ensemble": {"regularizers": apart[:1]},
            "ensemble with HORDE": {"regularizers": apart},
        }
        return [
            _plan(ask, "horde_orders", {"orders": orders}, "binomial_deviance", seeds),
            _plan(ask, "horde_contrastive", {"term": both}, "contrastive", seeds),
            _plan(ask, "horde_ensemble", {"term": ensembles}, "contrastive", seeds,
                  {"ensemble": ENSEMBLE, "backbone": "small_conv"}),
        ]  # fmt: skip

    def measure(self, ask: Ask, results: Mapping[str, Results], tell: Told) -> dict[str, Any]:
        runs = [run for found in results.values() for run in found.runs if _is_here(run)]
        measured: dict[str, Any] = {}
        for place, run in enumerate(runs):
            tell("orders and local features", place, len(runs))
            context, folder = reopen(run.folder)
            found: dict[str, Any] = {"course": _course(folder)}
            with computing(context):
                network = stored_network(context, folder)
                if context.config.regularizers and context.config.ensemble is None:
                    found["orders"] = _by_order(context, folder, network)
                looks = run.cell.labels.get("orders") in (PLAIN, BEST)
                if looks and isinstance(network, EmbeddingNetwork):
                    found["local"] = local_features.looked_at(context, network)
            measured[run.cell.key] = found
        tell("orders and local features", len(runs), len(runs))
        return measured

    def sections(
        self, ask: Ask, results: Mapping[str, Results], measured: dict[str, Any]
    ) -> list[Section]:
        orders = results["horde_orders"]
        local = {
            name: found["local"]
            for name in (PLAIN, BEST)
            for run in orders.of("", name)[:1]
            if "local" in (found := measured.get(run.cell.key, {}))
        }
        return [
            _orders(orders, measured, ask),
            _losses(results, ask),
            local_features.section(local),
            _course_section(results, measured),
        ]

    def differences(self, ask: Ask) -> list[str]:
        smaller = (
            [f"Glyphs at {QUICK_DATA['size']} pixels, {QUICK_DATA['max_classes']} classes, so that "
             "the last map has 16 places."] if _is_glyphs(ask) else []
        )  # fmt: skip
        return [
            f"Data: {ask.data}; the published column is of {ask.published_title} (orders: cub200).",
            *smaller,
            f"Dimension {DIMENSION} against 8192, orders up to 3: fewer dimensions make high "
            "orders noise.",
            "The epoch is chosen on validation classes; they do not say how theirs was chosen.",
            "The ensemble has 4 learners on a small network, with a norm as attention trunk "
            "(theirs: 8 on GoogLeNet, five inception blocks).",
            "All orders together: principal components of the training items, without whitening; "
            "the paper says neither.",
        ]


def _is_glyphs(ask: Ask) -> bool:
    return bool(find_data.data_table(ask.data)["name"] == "glyphs")


def _name(variant: str, count: int) -> str:
    return f"{variant}, orders 1 to {count}"


def _term(variant: str, count: int) -> Values:
    part = {"name": "horde", "preset": VARIANTS[variant], "weight": 1.0}
    return part | {"num_orders": count, "dimension": DIMENSION}


def _plan(
    ask: Ask, name: str, factors: Values, loss: str, seeds: int, more: Values | None = None
) -> Plan:
    config: Values = {
        "loss": {"name": loss, "preset": "horde"},
        "sampler": {"name": "samples_per_class", "preset": "horde"},
        "epochs": 2 * ask.epochs if _is_glyphs(ask) else ask.epochs,
        "freeze_until": None,
        "pooling": "avg",
        "head": {"bias": False},
        "metrics": [f"recall@{k}" for k in (1, 2, 4, 8)],
    }
    if more and "ensemble" in more:
        del config["head"]
    if _is_glyphs(ask):
        config["data"] = {"name": "glyphs"} | QUICK_DATA
        config |= {"picture_size": QUICK_DATA["size"], "backbone": "small_conv"}
    return ask.plan(name, "High-order moments.", factors, config | (more or {}), seeds)


def _is_here(run: Run) -> bool:
    return run.state == "done" and RunFolder(run.folder).has("weights.safetensors")


def _course(folder: RunFolder) -> dict[str, Any]:
    """Validation recall after each epoch, with the step."""
    epochs = stored_run.read(folder.path).epochs
    scores = [epoch.validation or epoch.test or {} for epoch in epochs]
    return {
        "steps": [epoch.step for epoch in epochs],
        "recall": [found.get("recall@1", math.nan) for found in scores],
    }


def _by_order(context: RunContext, folder: RunFolder, network: Any) -> dict[str, float]:
    """Recall@1 of every order on its own, and of all by principal components."""
    train, test = context.split.train, context.split.test
    num_classes = len(set(context.dataset.labels[train].tolist()))
    objective = assemble.objective(context.config, num_classes, network)
    folder.fill(objective, "objective.safetensors")
    horde = objective.regularizers["horde"]
    assert isinstance(horde, Regularizer)
    size = network.embedding_size
    orders = OrdersDescriptor(network, horde, size).to(context.device)
    _, transform = assemble.picture_transforms(context.config, network)
    tested = context.embed(orders, transform, test)  # [n, size + (orders - 1) * d]
    each = (tested.shape[1] - size) // (horde.moments.num_orders - 1)
    parts = [tested[:, :size], *tested[:, size:].split(each, dim=1)]
    found = {str(i): _recall(context, part) for i, part in enumerate(parts, start=1)}
    orders.fit(context.embed(orders, transform, train))
    reduced = (tested - orders.mean.cpu()) @ orders.components.cpu().T
    return found | {"all": _recall(context, reduced)}


def _recall(context: RunContext, rows: Tensor) -> float:
    task = context.retrieval_task(context.split.test)
    arguments = task.arguments(rows)
    score = evaluate(**arguments, metrics=("recall@1",), resamples=0, missing="count")
    return score.values["recall@1"].value


def _tested(found: Results, measured: Mapping[str, Any], name: str) -> dict[str, float]:
    """Recall@1 in percent by tested order, the mean over runs."""
    if name == PLAIN:
        return {"1": point(0, found.of("", PLAIN), "recall@1").value}
    rows = [measured.get(run.cell.key, {}).get("orders", {}) for run in found.of("", name)]
    keys = dict.fromkeys(key for row in rows for key in row)
    return {k: 100 * float(np.mean([row[k] for row in rows if k in row])) for k in keys}


def _orders(found: Results, measured: Mapping[str, Any], ask: Ask) -> Section:
    theirs = {
        (str(r["variant"]), str(r["orders_trained"]), str(r["order_tested"])): r["value"]
        for r in table("horde_orders")
        if r["metric"] == "r1" and ask.published_data == "cub200"  # theirs are of no other data
    }
    most = max(int(name[-1]) for name in found.methods() if name != PLAIN)
    rows, series = [], {}
    for variant in VARIANTS:
        lines_of: list[Point] = []
        for count in range(1, most + 1):
            twin = "cascade" if variant == "all_trained" and count == 2 else variant
            name = PLAIN if count == 1 else _name(twin, count)
            tested = _tested(found, measured, name)
            cells = []
            for order in range(1, most + 1):
                known = theirs.get((variant, f"{float(count)}", f"{float(order)}"))
                cells += [number(tested.get(str(order))) if order <= count else "",
                          number(known if isinstance(known, float) else None)
                          if order <= count else ""]  # fmt: skip
            rows.append([variant, f"1 to {count}" if count > 1 else "1", *cells,
                         number(tested.get("all"))])  # fmt: skip
            lines_of.append(Point(str(count), tested.get("1", math.nan)))
        series[f"{variant}"] = lines_of
        series[f"{variant}, published"] = [
            Point(str(n), _float(theirs.get((variant, f"{float(n)}", "1.0"))))
            for n in range(1, most + 1)
        ]
    heads = ["variant", "orders trained"]
    for order in range(1, most + 1):
        heads += [f"R@1 % at order {order}", "published"]
    figure = drawn(
        "orders",
        "Recall@1 of the first order, which is all that inference keeps, by the number of orders "
        "trained; dashed as published on CUB.",
        lambda: lines(series, "orders trained", "recall@1, %",
                      [name for name in series if "published" in name]),
    )  # fmt: skip
    caption = "With two orders `all_trained` is the cascade, so that row is the same runs."
    return Section("Orders trained by order tested", _orders_told(found, measured),
                   [Table([*heads, "all orders, PCA"], rows, caption)], [figure])  # fmt: skip


def _float(value: Any) -> float:
    return value if isinstance(value, float) else math.nan


def _orders_told(found: Results, measured: Mapping[str, Any]) -> list[str]:
    plain = found.of("", PLAIN)
    words = []
    for name in found.methods():
        if name != PLAIN:
            words.append(f"{name} {effect_text(effect(plain, found.of('', name), 'recall@1'))}")
    base = point(0, plain, "recall@1").value
    best = _tested(found, measured, BEST)
    all_of = best.get("all", math.nan) - best.get("1", math.nan)
    higher = [best[str(i)] for i in (2, 3) if str(i) in best]
    falls = bool(higher) and higher == sorted(higher, reverse=True) and best["1"] >= higher[0]
    return [
        f"Recall@1 on unseen classes is {number(base)} % without HORDE and "
        f"{number(best.get('1'))} % with it (cascade, 3 orders); published on CUB-200: 55.9 and "
        "57.9 %.",
        f"What it adds, in points with intervals over seeds and test classes: {'; '.join(words)}.",
        f"Tested alone, recall {'falls' if falls else 'does not fall'} from order to order "
        f"(cascade, 3 orders: {', '.join(number(best.get(str(i))) for i in (1, 2, 3))} %; "
        "published on CUB-200: 57.9, 56.1, 54.2).",
        f"All orders together, reduced to the embedding's size, change recall@1 by {all_of:+.1f} "
        "points against the first order (published +0.5 to +2.3).",
        seeds_told(found),
    ]


def _losses(results: Mapping[str, Results], ask: Ask) -> Section:
    theirs = {
        str(r["method"]): r["v1"]
        for r in table("horde_tables12")
        if r["dataset"] == ask.published_data and r["backbone"] == "GoogleNet"
    }
    rows, judged = [], []
    for title, plan, names, known in (
        ("binomial deviance", "horde_orders", (PLAIN, BEST), THEIRS["binomial_deviance"]),
        ("contrastive", "horde_contrastive", (PLAIN, "with HORDE"), THEIRS["contrastive"]),
        ("contrastive, ensemble", "horde_ensemble", ("ensemble", "ensemble with HORDE"),
         ("ABE (Ours)", "ABE + HORDE")),
    ):  # fmt: skip
        arms = [Arm(results[plan], "", name) for name in names]
        old, new = (_float(theirs.get(name)) for name in known)
        found = compared(arms[0], arms[1], new - old)
        judged.append(replace(found, experiment=title))
        scores = [number(point(0, arm.runs, "recall@1").value) for arm in arms]
        rows.append([title, *scores, effect_text(found.effect), number(old), number(new),
                     signed(new - old), found.word])  # fmt: skip
    caption = "HORDE (3 orders) adds to recall@1: " + "; ".join(
        f"{row[0]} {row[3]}, published {row[6]}: {row[7]}" for row in rows
    )
    heads = ["loss", "without %", "with %", "gain", "published without", "published with",
             "published gain", "verdict"]  # fmt: skip
    shown = [Table(heads, rows), *judged_tables(judged)]
    return Section("Losses and ensemble", [f"{caption}."], shown, effects_drawn(judged))


def _course_section(results: Mapping[str, Results], measured: Mapping[str, Any]) -> Section:
    rows = []
    for found in results.values():
        for run in found.runs:
            course = measured.get(run.cell.key, {}).get("course")
            if course and course["steps"]:
                best = int(np.nanargmax(course["recall"]))
                rows.append([", ".join(run.cell.labels.values()), found.plan.config["loss"]["name"],
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
