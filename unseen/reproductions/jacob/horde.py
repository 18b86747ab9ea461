"""HORDE: the loss also on high-order moments of the last map, dropped after training.

Source   P. Jacob et al., Metric Learning with HORDE: High-Order Regularizer for Deep Embeddings,
         ICCV 2019, https://arxiv.org/abs/1908.02735, tables 1 to 5, figures 1 and 3
"""

import math
from dataclasses import replace
from typing import Any

from torch import Tensor

from unseen.config import build
from unseen.evaluation.evaluate import evaluate
from unseen.models.network import EmbeddingNetwork
from unseen.regularizers.high_order.descriptor import OrdersDescriptor
from unseen.regularizers.horde import HordeRegularizer as Regularizer
from unseen.reports import stored_run
from unseen.reproductions.claims import Claim
from unseen.reproductions.jacob import horde_claims, horde_tables, local_features
from unseen.reproductions.jacob.horde_tables import CONFIGURATIONS, PLAIN, WITH, ranks
from unseen.reproductions.published_study import ByPlan, Evidence, Message, PublishedStudy
from unseen.reproductions.request import Ask
from unseen.reproductions.source_values import BN_INCEPTION, JACOB, without_weights
from unseen.runs.prepare import RunContext, computing, reopen
from unseen.runs.run_networks import stored_network
from unseen.studies.findings import Section
from unseen.studies.results import Run
from unseen.studies.study_file import Plan, Values
from unseen.training.run_folder import RunFolder

QUICK_DIMENSION, DIMENSION = 1024, 8192
QUICK_ORDERS, MOST_ORDERS = 3, 6  # trained in the tables of orders
LOSSES = ("contrastive", "triplet")  # beside binomial deviance, which has the tables of orders
SMALL_ENSEMBLE: Values = {
    "num_heads": 4,
    "masks_at": "stage2.reduce",
    "trunk_until": "stage2.reduce_norm",
}
DIVERGENCE: Values = {"name": "head_divergence", "preset": "horde", "weight": 0.5}
OF_DATA: dict[str, Values] = {  # small images, shown larger: a map of 16 or 36 places
    "glyphs": {"data": {"name": "glyphs", "size": 64, "max_classes": 160}, "image_size": 64},
    "mnist_like": {"image_size": 96, "batch_size": "auto"},  # five classes are trained on
}


class Horde(PublishedStudy):
    source = "Jacob et al. 2019, tables 1 to 5, figures 1 and 3 (GoogLeNet, 512-d, dimension 8192)"
    shows = "orders trained by order tested, all orders together, ensembles, missing features"
    origin = JACOB

    def plans(self, ask: Ask) -> list[Plan]:
        if not ask.has_images:
            raise ValueError(
                f"horde acts on the last map, and {ask.data} holds features: give images, e.g. "
                "glyphs"
            )
        made = [_plan(ask, "horde_orders", {"orders": _orders(ask)}, "binomial_deviance")]
        horde = _term(ask, "cascade", best_count(ask))
        both = {PLAIN: {"regularizers": []}, WITH: {"regularizers": [horde]}}
        made += [_plan(ask, f"horde_{loss}", {"term": both}, loss) for loss in LOSSES]
        if ask.is_as_published and not without_weights([BN_INCEPTION]):
            other = {"backbone": BN_INCEPTION}
            made.append(_plan(ask, "horde_bn_inception", {"term": both}, "contrastive", other))
        small = {"weight": 0.5, "reduce": 256}
        large = {"weight": None, "reduce": 1024}  # its own in an ensemble; the channels of one
        apart = [DIVERGENCE, horde | (large if ask.is_as_published else small)]
        ensembles = {
            "ensemble": {"regularizers": apart[:1]},
            "ensemble with HORDE": {"regularizers": apart},
        }
        kind: Values = {"ensemble": {}} if ask.is_as_published else {"ensemble": SMALL_ENSEMBLE}
        kind |= {} if ask.is_as_published else {"backbone": "small_conv"}
        return [*made, _plan(ask, "horde_ensemble", {"term": ensembles}, "contrastive", kind)]

    def measure(self, ask: Ask, results: ByPlan, progress: Message) -> dict[str, Any]:
        runs = [run for result in results.values() for run in result.runs if _is_here(run)]
        measured: dict[str, Any] = {}
        for place, run in enumerate(runs):
            progress("orders and local features", place, len(runs))
            context, folder = reopen(run.folder)
            result: dict[str, Any] = {"course": _course(folder)}
            with computing(context):
                network = stored_network(context, folder)
                if "horde" in [each.name for each in context.config.regularizers]:
                    result["orders"] = _by_order(context, folder, network)
                has_maps = run.planned.labels.get("orders") in (PLAIN, best(ask))
                if has_maps and isinstance(network, EmbeddingNetwork):
                    result["local"] = local_features.measure(context, network)
            measured[run.planned.key] = result
        progress("orders and local features", len(runs), len(runs))
        return measured

    def claims(self, evidence: Evidence) -> list[Claim]:
        return horde_claims.claims(evidence, best_count(evidence.ask))

    def sections(self, evidence: Evidence) -> list[Section]:
        orders, chosen = evidence.results["horde_orders"], best(evidence.ask)
        measured = [
            (name, evidence.measured.get(run.planned.key, {}))
            for name in (PLAIN, chosen)
            for run in [run for run in orders.of("", name) if run.state == "done"][:1]
        ]
        local = {name: each["local"] for name, each in measured if "local" in each}
        return [
            horde_tables.losses(evidence, chosen),
            horde_tables.orders(evidence),
            local_features.section(local),
        ]

    def differences(self, ask: Ask) -> list[str]:
        return without_weights([BN_INCEPTION]) if ask.is_as_published else []


def best_count(ask: Ask) -> int:
    """The orders that they train: 5 on birds and cars, 4 on products and clothes."""
    if ask.is_quick:
        return QUICK_ORDERS
    return 4 if ask.published_data in ("online_products", "inshop") else 5


def best(ask: Ask) -> str:
    return horde_tables.name("cascade", best_count(ask))


def _orders(ask: Ask) -> dict[str, Values]:
    result: dict[str, Values] = {PLAIN: {"regularizers": []}}
    for configuration in CONFIGURATIONS:
        for count in range(2, (QUICK_ORDERS if ask.is_quick else MOST_ORDERS) + 1):
            if configuration != "all_trained" or count > 2:  # with two orders it is the cascade
                term = _term(ask, configuration, count)
                result[horde_tables.name(configuration, count)] = {"regularizers": [term]}
    return result


def _term(ask: Ask, configuration: str, count: int) -> Values:
    regularizer = {"name": "horde", "preset": CONFIGURATIONS[configuration], "weight": 1.0}
    dimension = QUICK_DIMENSION if ask.is_quick else DIMENSION
    return regularizer | {"num_orders": count, "dimension": dimension}


def _plan(ask: Ask, name: str, factors: Values, loss: str, more: Values | None = None) -> Plan:
    more, small = more or {}, OF_DATA.get(ask.table["name"], {})
    config: Values = {
        "loss": {"name": loss, "preset": "horde"},
        "freeze_until": None,
        "pooling": "avg",
        "metrics": [f"recall@{k}" for k in ranks(ask)],
    }
    config |= {"backbone": "small_conv"} | small if small else {}
    if ask.kind == "characters":
        config["epochs"] = 2 * ask.epochs(JACOB)
    values = {k: v for k, v in JACOB.values.items() if k != "head" or "ensemble" not in more}
    source = replace(JACOB, values=values)
    seeds = 1 if ask.is_quick else 3
    return ask.plan(name, "High-order moments.", factors, config | more, seeds, source=source)


def _is_here(run: Run) -> bool:
    return run.state == "done" and RunFolder(run.folder).has("weights.safetensors")


def _course(folder: RunFolder) -> dict[str, Any]:
    """Validation recall after each epoch, with the step."""
    epochs = stored_run.read(folder.path).epochs
    scores = [epoch.validation or epoch.test or {} for epoch in epochs]
    return {
        "steps": [epoch.step for epoch in epochs],
        "recall": [result.get("recall@1", math.nan) for result in scores],
    }


def _by_order(context: RunContext, folder: RunFolder, network: Any) -> dict[str, Any]:
    """Order -> rank -> recall; of all orders by principal components, where they are embedded."""
    train, test = context.split.train, context.split.test
    num_classes = len(set(context.dataset.labels[train].tolist()))
    objective = build.objective(context.config, num_classes, network)
    folder.fill(objective, "objective.safetensors")
    horde = objective.regularizers["horde"]
    assert isinstance(horde, Regularizer)
    size = network.embedding_size
    orders = OrdersDescriptor(network, horde, size).to(context.device)
    _, transform = build.image_transforms(context.config, network)
    tested = context.embed(orders, transform, test)  # [n, size + (orders - 1) * d]
    each = (tested.shape[1] - size) // (horde.moments.num_orders - 1)
    components = [tested[:, :size], *tested[:, size:].split(each, dim=1)]
    result = {str(i): _recall(context, chunk) for i, chunk in enumerate(components, start=1)}
    if horde.embeddings is None:
        return result
    orders.fit(context.embed(orders, transform, train))
    reduced = (tested - orders.mean.cpu()) @ orders.components.cpu().T
    return result | {"all": _recall(context, reduced)}


def _recall(context: RunContext, rows: Tensor) -> dict[str, float]:
    task = context.retrieval_task(context.split.test)
    metrics = [
        metric for metric in context.config.evaluation.metrics if metric.startswith("recall@")
    ]
    score = evaluate(
        **task.arguments(rows), metrics=metrics, resamples=0, missing="count", non_finite="worst"
    )
    return {metric.partition("@")[2]: score.values[metric].value for metric in metrics}
