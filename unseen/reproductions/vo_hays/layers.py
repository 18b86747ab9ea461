"""Which layer serves unseen classes best: the one the loss sits on, or the one before it.

Source   N. Vo, J. Hays, Generalization in Metric Learning: Should the Embedding Layer be the
         Embedding Layer?, WACV 2019, https://arxiv.org/abs/1803.03310, tables 1 to 3,
         figures 1 to 8
"""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from unseen.config import build
from unseen.config import schema as configs
from unseen.config.resolve import PHOTOGRAPHS
from unseen.core.contracts import FeatureDataset
from unseen.evaluation.evaluate import evaluate
from unseen.models.backbone import has_weights
from unseen.models.network import EMBEDDING, POOLED, LayeredNetwork
from unseen.reports import stored_run
from unseen.reports.layer_report import layers_by_epoch
from unseen.reports.tables import Table
from unseen.reproductions.against_source import drawn, number
from unseen.reproductions.charts import Point, bars, lines
from unseen.reproductions.claims import Claim
from unseen.reproductions.numbers import rows_of, table
from unseen.reproductions.published_study import ByPlan, Evidence, Message, PublishedStudy
from unseen.reproductions.request import Ask
from unseen.reproductions.source_values import VO_HAYS
from unseen.reproductions.vo_hays import layer_claims
from unseen.reproductions.vo_hays.layer_claims import (
    BEFORE,
    CLASSIFIED,
    FRACTIONS,
    NETS,
    RATES,
    ByRun,
    named_layers,
    published,
    recalls_of,
)
from unseen.runs.evaluate_layers import compare_layers, first_answers
from unseen.runs.prepare import Callbacks, RunContext, computing, reopen
from unseen.runs.run_networks import stored_network
from unseen.studies.findings import Section
from unseen.studies.results import Results
from unseen.studies.study_figures import Drawn
from unseen.studies.study_file import Plan, Values
from unseen.training.run_folder import RunFolder

FOREIGN_SIZES = (64, 128, 256, 512)
CURVES = 4  # layers whose curves are drawn: pool5.1 to fc6 of theirs
QUICK_FRACTIONS = [*FRACTIONS][2:]
DRAWS = 3  # of random projections


class Layers(PublishedStudy):
    source = "Vo and Hays 2019, tables 1 to 3, figures 1 to 8 (VGG-16, 512-d)"
    shows = "recall of every layer on training and unseen classes, over time, in nets A to F"
    origin = VO_HAYS

    def plans(self, ask: Ask) -> list[Plan]:
        if not ask.has_images:
            raise ValueError(
                f"layers looks into a network, and {ask.data} holds features: give images, e.g. "
                "glyphs"
            )
        shared: Values = {"layers_every": 1, "metrics": ["recall@1"], "freeze_until": None}
        shared |= {} if ask.is_as_published else {"embedding_size": "auto"}
        metric: Values = {"loss": {"name": "smooth_triplet", "preset": "vo_hays"}}
        nets: dict[str, Values] = {n: {"network": NETS[n]} | metric for n in _nets(ask)}
        softmax: Values = {"loss": {"name": "softmax", "preset": "vo_hays"}}
        nets[CLASSIFIED] = {"network": "net_a"} | softmax
        foreign = {
            f"lifted structure, {size}": {
                "loss": {"name": "lifted_structure"},
                "embedding_size": size,
            }
            for size in FOREIGN_SIZES[: 2 if ask.is_quick else None]
        }
        apart: Values = nets["NetA"] | {"select": "validation", "refit": False}
        fractions = {
            n: fraction
            for n, fraction in FRACTIONS.items()
            if not ask.is_quick or n in QUICK_FRACTIONS
        }
        classes = {
            name: apart | {"validation_fraction": fraction} for name, fraction in fractions.items()
        }
        made = partial(ask.plan, config=shared, seeds=1 if ask.is_quick else 3, source=VO_HAYS)
        return [
            made("layers_nets", "Nets A to F.", factors={"net": nets}),
            made("layers_foreign", "Other models.", factors={"model": foreign}),
            made("layers_classes", "NetA by its number of training classes.",
                 factors={"net": classes}),
        ]  # fmt: skip

    def measure(self, ask: Ask, results: ByPlan, progress: Message) -> dict[str, Any]:
        runs = [run for result in results.values() for run in result.runs]
        runs = [run for run in runs if run.state == "done"]
        runs = [run for run in runs if RunFolder(run.folder).has("weights.safetensors")]
        measured: dict[str, Any] = {}
        for place, run in enumerate(runs):
            progress("recall by layer", place, len(runs))
            context, folder = reopen(run.folder)
            outcome = _measured(context, folder)
            is_first = run.replicate[0] == 0 and run.planned.labels.get("net") == "NetA"
            if is_first and not isinstance(context.dataset, FeatureDataset):
                outcome["ranks"] = _at_ranks(context, folder, _ranks(ask))
            measured[run.planned.key] = outcome
        progress("recall by layer", len(runs), len(runs))
        return measured

    def claims(self, evidence: Evidence) -> list[Claim]:
        return layer_claims.claims(evidence)

    def sections(self, evidence: Evidence) -> list[Section]:
        nets, measured = evidence.results["layers_nets"], evidence.measured
        first = _first_measured(nets, measured)
        if "NetA" not in first:
            return [Section("By layer", ["NetA has not finished: there is nothing to compare."])]
        return [
            _by_layer(nets, measured, first, evidence.data),
            *_ranks_section(first["NetA"], evidence.ask),
            _over_time(first),
            _foreign(evidence.results["layers_foreign"], measured, evidence.data),
        ]

    def differences(self, ask: Ask) -> list[str]:
        left = " and ".join(name for name in NETS if name not in _nets(ask))
        same = f"{left} differ from NetA in what starts pretrained; there are no pretrained weights"
        return [f"{same} here, so they are NetA and are left out."] if left else []


def _nets(ask: Ask) -> list[str]:
    """Without pretrained weights B and C are the same as A."""
    usual: Values = {"backbone": "auto", "weights": "auto"} | ask.set_up(VO_HAYS)
    request = configs.override(usual, list(ask.settings))
    backbone = request["backbone"]
    if backbone == "auto":
        backbone = PHOTOGRAPHS if ask.kind == "photographs" else "small_conv"
    pretrained = has_weights(backbone) if request["weights"] == "auto" else bool(request["weights"])
    return [name for name in NETS if pretrained or name not in ("NetB", "NetC")]


def _measured(context: RunContext, folder: RunFolder) -> dict[str, Any]:
    """Recall by layer at the end and over time, and at equal size before and after training."""
    compared = compare_layers(context, folder, (), Callbacks())
    recall = layers_by_epoch(stored_run.read(folder.path))
    networks = {"trained": stored_network(context, folder),
                "start": build.network(context.config).to(context.device)}  # fmt: skip
    return {
        "layers": compared["layers"],
        "curves": [{"epoch": epoch} | result for epoch, result in recall.items()],
        "equal": {name: _at_equal_size(context, each) for name, each in networks.items()},
    }


def _at_equal_size(context: RunContext, network: LayeredNetwork) -> dict[str, dict[str, float]]:
    """Recall of the pooled layer, projected to the size of the embedding, and of the embedding."""
    _, transform = build.image_transforms(context.config, network)
    generator = torch.Generator().manual_seed(0)
    result = {}
    with computing(context):
        for split in RATES:
            items = getattr(context.split, split)
            rows = context.embed_layers(network, transform, items, [POOLED, EMBEDDING])
            wide, narrow = rows[POOLED], rows[EMBEDDING].shape[1]
            drawn_rows = {str(i): _rotated(wide, narrow, generator) for i in range(DRAWS)}
            answers = first_answers(context, drawn_rows | {EMBEDDING: rows[EMBEDDING]}, items)
            pooled = sum(answers[draw].recall for draw in drawn_rows) / DRAWS
            result[split] = {BEFORE: pooled, EMBEDDING: answers[EMBEDDING].recall}
    return result


def _rotated(rows: Tensor, size: int, generator: torch.Generator) -> Tensor:  # [n, size]
    """By a random rotation whose first axes are kept; as they are where none is left out."""
    if rows.shape[1] <= size:
        return rows
    axes = torch.linalg.qr(torch.randn(rows.shape[1], size, generator=generator))[0]
    return rows @ axes.to(rows)


def _at_ranks(context: RunContext, folder: RunFolder, ranks: Sequence[int]) -> dict[str, float]:
    """Recall of the pooled layer on unseen classes."""
    network, test = stored_network(context, folder), context.split.test
    _, transform = build.image_transforms(context.config, network)
    with computing(context):
        rows = context.embed_layers(network, transform, test, [POOLED])[POOLED]
    arguments = context.retrieval_task(test).arguments(rows)
    metrics = [f"recall@{k}" for k in ranks]
    result = evaluate(
        **arguments, metrics=metrics, resamples=0, missing="count", non_finite="worst"
    ).values
    return {str(k): result[f"recall@{k}"].value for k in ranks}


def _ranks(ask: Ask) -> tuple[int, ...]:
    """Those of table 1."""
    is_of_products = ask.published_data == "online_products"
    return (1, 10, 100, 1000) if is_of_products else (1, 2, 4, 8, 16, 32)


def _first_measured(results: Results, measured: ByRun) -> dict[str, Any]:
    """What was measured of the first run of each method."""
    first: dict[str, Any] = {}
    for run in results.runs:
        if run.state == "done" and run.planned.key in measured:
            first.setdefault(run.planned.labels[results.plan.compared], measured[run.planned.key])
    return first


def _ranks_section(net: Mapping[str, Any], ask: Ask) -> list[Section]:
    """Table 1."""
    if "ranks" not in net:
        return []
    ours = [number(100 * net["ranks"].get(str(k), math.nan)) for k in _ranks(ask)]
    rows = [["ours", *ours]]
    for row in rows_of("vo_hays_table1", ask.published_data):
        rows.append(["published", *(number(row[f"v{i + 1}"]) for i in range(len(ours)))])
    heads = ["whose", *(f"R@{k} %" for k in _ranks(ask))]
    message = "NetA, trained on fc6 and read at pool5.3; ours is one run."
    return [Section("The pooled layer at every rank", [message], [Table(heads, rows)])]


def _by_layer(nets: Results, measured: ByRun, first: Mapping[str, Any], data: str) -> Section:
    theirs, recalls, rows = published(data), recalls_of(nets, measured), []
    for net, result in first.items():
        for name, row in named_layers(result["layers"], net).items():
            cells = [f"{row['size']}", f"{100 * row['train']:.1f}", f"{100 * row['test']:.1f}"]
            equal = recalls.get((net, name, "test"), {})
            cells.append(number(next(iter(equal.values()), None)))
            if theirs:
                cells += [number(theirs.get((net, name, split))) for split in RATES]
            rows.append([net, name, *cells])
    heads = ["net", "layer", "size", "train R@1 %", "test R@1 %", "test at equal size"]
    heads += ["published train", "published test"] if theirs else []
    caption = "Layers in the order they run; the loss sits on the last one of each net. One run."
    return Section("By layer", [], [Table(heads, rows, caption)], _bar_figures(first))


def _bar_figures(first: Mapping[str, Any]) -> list[Drawn]:
    layers = named_layers(first["NetA"]["layers"], "NetA")
    series = {
        title: {name: Point(name, 100 * row[split]) for name, row in layers.items()}
        for split, title in (("train", "training classes"), ("test", "unseen classes"))
    }
    return [
        drawn(
            "layers_neta",
            "NetA: recall@1 by layer on training and on unseen classes, from image to loss.",
            lambda: bars(series, "layer", "recall@1, %"),
        ),
    ]


def _over_time(first: Mapping[str, Any]) -> Section:
    figures = [figure for net, each in first.items() for figure in _curves(net, each)]
    message = "The source draws such curves for NetA (figures 2 and 3), without numbers."
    return Section("Over time, and under classification", [message], [], figures)


def _curves(net: str, measured: Mapping[str, Any]) -> list[Drawn]:
    """Of the last layers of a net, by epoch."""
    named = named_layers(measured["layers"], net)
    layers = {name: row["layer"] for name, row in list(named.items())[-CURVES:]}
    series: dict[str, list[Point]] = {}
    for name, layer in layers.items():
        for split, title in (("validation", "unseen"), ("train", "training")):
            known = [c for c in measured["curves"] if layer in c.get(split, {})]
            if known:
                points = [Point(c["epoch"], 100 * c[split][layer]) for c in known]
                series[f"{name}, {title}"] = points
    dashed = [title for title in series if title.endswith("training")]
    caption = (
        f"{net}: recall@1 of its last layers after each epoch; solid on validation classes, dashed "
        "on as many training classes."
    )
    plain = net.lower().replace(", ", "_")
    made = drawn(f"over_time_{plain}", caption,
                 lambda: lines(series, "epoch", "recall@1, %", dashed))  # fmt: skip
    return [made] if series else []


def _foreign(results: Results, measured: ByRun, data: str) -> Section:
    rows = []
    for name, model in _first_measured(results, measured).items():
        layers = named_layers(model["layers"], name)
        for layer, title in (("output", "output"), (BEFORE, "penultimate")):
            row = layers[layer]
            values = [f"{100 * row[split]:.1f}" for split in RATES]
            rows.append([f"ours: {name}", title, str(row["size"]), *values])
    for line in table("vo_hays_table3"):
        scores = [line.get(f"{data}_{split}") for split in RATES]
        if scores == [None, None]:  # nothing is published of these data
            continue
        size = line["dim"]
        shown = f"{size:.0f}" if isinstance(size, float) else ""
        texts = map(number, scores)
        rows.append([f"published: {line['model']}", str(line["layer"]), shown, *texts])
    heads = ["model", "layer", "size", "train R@1 %", "test R@1 %"]
    return Section("Other models", [], [Table(heads, rows)])
