"""Which layer serves unseen classes best: the one the loss sits on, or the one before it.

Source   N. Vo, J. Hays, Generalization in Metric Learning: Should the Embedding Layer be the
         Embedding Layer?, WACV 2019, https://arxiv.org/abs/1803.03310, tables 2 and 3,
         figures 2 to 5
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from unseen.config import build
from unseen.config import schema as configs
from unseen.config.resolve import PHOTOGRAPHS
from unseen.core import read_limits
from unseen.core.contracts import Dataset, FeatureDataset
from unseen.core.statistics import compare
from unseen.evaluation.evaluate import evaluate
from unseen.models.backbone import has_weights
from unseen.models.network import EMBEDDING, POOLED
from unseen.reports import stored_run
from unseen.reports.layer_report import layers_by_epoch
from unseen.reports.tables import Table
from unseen.reproductions.against_source import drawn, number, signed
from unseen.reproductions.charts import Point, bars, lines
from unseen.reproductions.numbers import table
from unseen.reproductions.published_study import Ask, Message, PublishedStudy
from unseen.reproductions.source_values import VO_HAYS
from unseen.reproductions.vo_hays import disagreements
from unseen.runs.evaluate_layers import compare_layers, stored_network
from unseen.runs.prepare import Callbacks, RunContext, computing, reopen
from unseen.studies.findings import Section
from unseen.studies.results import Results, Run
from unseen.studies.study_figures import Drawn
from unseen.studies.study_file import Plan, Values
from unseen.training.run_folder import RunFolder

NETS = {"NetA": "net_a", "NetB": "net_b", "NetC": "net_c", "NetD": "net_d", "NetE": "net_e",
        "NetF": "net_f"}  # fmt: skip
CLASSIFIED = "NetA, classification"
HIDDEN = {"head.fc1": "fc6", "head.fc2": "fc7", "head.fc3": "fc8"}
FOREIGN: dict[str, Values] = {
    "lifted structure, 64": {"loss": {"name": "lifted_structure"}, "embedding_size": 64},
    "lifted structure, 128": {"loss": {"name": "lifted_structure"}, "embedding_size": 128},
    "multi similarity, 128": {"loss": {"name": "multi_similarity"}, "embedding_size": 128},
}
CURVES = 4  # layers whose curves are drawn: pool5.1 to fc6 of theirs
ByNet = dict[str, dict[str, Any]]  # net -> what `measure` says of it


class Layers(PublishedStudy):
    source = "Vo and Hays 2019, tables 1 to 3, figures 1 to 8 (VGG-16, 512-d)"
    shows = "recall of every layer on training and unseen classes, over time, in nets A to F"
    origin = VO_HAYS

    def plans(self, ask: Ask) -> list[Plan]:
        if not ask.has_images:
            raise ValueError(
                f"layers looks into a network, and {ask.data} holds features: give images, e.g. "
                "--data glyphs"
            )
        shared: Values = {"layers_every": 1, "metrics": ["recall@1"], "freeze_until": None}
        shared |= {} if ask.is_as_published else {"embedding_size": "auto"}
        metric: Values = {"loss": {"name": "smooth_triplet", "preset": "vo_hays"}}
        nets: dict[str, Values] = {n: {"network": NETS[n]} | metric for n in _nets(ask)}
        softmax: Values = {"loss": {"name": "softmax", "preset": "vo_hays"}}
        nets[CLASSIFIED] = {"network": "net_a"} | softmax
        seeds = 1 if ask.is_quick else 3
        return [
            ask.plan("layers_nets", "Nets A to F.", {"net": nets}, shared, seeds, source=VO_HAYS),
            ask.plan(
                "layers_foreign", "Other models.", {"model": FOREIGN}, shared, seeds, source=VO_HAYS
            ),
        ]

    def measure(
        self, ask: Ask, results: Mapping[str, Results], progress: Message
    ) -> dict[str, Any]:
        first = [r for result in results.values() for r in _first_runs(result)]
        measured: ByNet = {}
        for place, (name, run) in enumerate(first):
            progress("recall by layer", place, len(first))
            context, folder = reopen(run.folder)
            measured[name] = _measured(context, folder)
            if name == "NetA" and not isinstance(context.dataset, FeatureDataset):
                measured[name]["ranks"] = _at_ranks(context, folder, _ranks(ask))
                measured[name]["shown"] = _shown(folder, context.dataset)
        progress("recall by layer", len(first), len(first))
        return {"nets": measured}

    def sections(
        self, ask: Ask, results: Mapping[str, Results], measured: dict[str, Any]
    ) -> list[Section]:
        result: ByNet = measured.get("nets", {})
        nets = {name: result[name] for name in (*NETS, CLASSIFIED) if name in result}
        if "NetA" not in nets:
            return [Section("By layer", ["NetA has not finished: there is nothing to compare."])]
        return [
            _by_layer(nets, ask),
            *_ranks_section(nets["NetA"], ask),
            _over_time(nets),
            *disagreements.section(nets["NetA"].get("shown")),
            _foreign({name: result[name] for name in FOREIGN if name in result}, ask),
        ]

    def differences(self, ask: Ask) -> list[str]:
        left = [name for name in NETS if name not in _nets(ask)]
        without = (
            [f"{' and '.join(left)} differ from NetA in what starts pretrained; there are no "
             "pretrained weights here, so they are NetA and are left out."]
            if left
            else []
        )  # fmt: skip
        return [
            f"Data: {ask.data}; the published column is of {ask.published_title}.",
            "The epoch is chosen by the trained layer on validation classes; curves are on "
            "validation classes, theirs on test classes.",
            *without,
            "Foreign models: theirs are released by others; ours are trained here by other losses, "
            "with our usual pooling.",
            "One run of each net is looked into; intervals are over test classes, not over seeds.",
        ]


def _nets(ask: Ask) -> list[str]:
    """Without pretrained weights B and C are the same as A."""
    usual: Values = {"backbone": "auto", "weights": "auto"} | ask.set_up(VO_HAYS)
    request = configs.override(usual, list(ask.settings))
    backbone = request["backbone"]
    if backbone == "auto":
        backbone = PHOTOGRAPHS if ask.kind == "photographs" else "small_conv"
    pretrained = has_weights(backbone) if request["weights"] == "auto" else bool(request["weights"])
    return [name for name in NETS if pretrained or name not in ("NetB", "NetC")]


def _first_runs(result: Results) -> list[tuple[str, Run]]:
    """The first finished run of every method whose weights are here."""
    runs = []
    for method in result.methods():
        done = [run for run in result.of("", method) if run.state == "done"]
        done = [run for run in done if RunFolder(run.folder).has("weights.safetensors")]
        runs += [(method, run) for run in done[:1]]
    return runs


def _measured(context: RunContext, folder: RunFolder) -> dict[str, Any]:
    """Recall by layer at the end and over time, and pooled against trained layer, over classes."""
    compared = compare_layers(context, folder, (), Callbacks())
    with read_limits.load(folder.checked("embeddings/layers.npz")) as arrays:
        names, right = arrays["names"].tolist(), arrays["right"]
    labels = torch.from_numpy(context.dataset.labels[context.split.test])
    gain = None
    if POOLED in names and EMBEDDING in names and names.index(POOLED) != names.index(EMBEDDING):
        rows = [torch.from_numpy(right[names.index(name)]) for name in (EMBEDDING, POOLED)]
        ends = compare(rows[0], rows[1], labels).difference
        gain = [ends.value, ends.low, ends.high]
    recall = layers_by_epoch(stored_run.read(folder.path))
    curves = [{"epoch": epoch} | result for epoch, result in recall.items()]
    return {"layers": compared["layers"], "gain": gain, "curves": curves}


def _ranks(ask: Ask) -> tuple[int, ...]:
    """Those of table 1."""
    is_of_products = ask.published_data == "online_products"
    return (1, 10, 100, 1000) if is_of_products else (1, 2, 4, 8, 16, 32)


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


def _ranks_section(net: Mapping[str, Any], ask: Ask) -> list[Section]:
    """Table 1."""
    if "ranks" not in net:
        return []
    ours = [number(100 * net["ranks"].get(str(k), math.nan)) for k in _ranks(ask)]
    rows = [["ours", *ours]]
    for row in table("vo_hays_table1"):
        if row["dataset"] == ask.published_data:
            known = [row[f"v{i + 1}"] for i in range(len(ours))]
            shown = [number(v if isinstance(v, float) else None) for v in known]
            rows.append(["published", *shown])
    heads = ["whose", *(f"R@{k} %" for k in _ranks(ask))]
    result = f"The pooled layer of NetA has {ours[0]} % at rank 1 and {ours[-1]} % at the last."
    return [Section("The pooled layer at every rank", [result], [Table(heads, rows)])]


def _shown(folder: RunFolder, dataset: Dataset) -> dict[str, Any] | None:
    answers = stored_run.read(folder.path).layer_answers
    return None if answers is None else disagreements.result(answers, dataset)


def _paper_name(layer: str, net: str) -> str:
    """pooled is pool5.3; the last layer of a head is the embedding."""
    if layer == POOLED:
        return "pool5.3"
    last = {"NetA": "fc6", CLASSIFIED: "fc6", "NetB": "fc6", "NetC": "fc6", "NetE": "fc7",
            "NetF": "fc8", "NetD": "pool5.3"}  # fmt: skip
    return last.get(net, EMBEDDING) if layer == EMBEDDING else HIDDEN.get(layer, layer)


def _test(net: Mapping[str, Any], layer: str) -> float:
    """Recall in percent on unseen classes at a layer; NaN where it does not exist."""
    result = [100 * row["test"] for row in net["layers"] if row["layer"] == layer]
    return result[0] if result else math.nan


def _published(ask: Ask) -> dict[tuple[str, str], float]:
    rows = table("vo_hays_table2")
    values = {(str(r["net"]), str(r["layer"])): r.get(ask.published_data) for r in rows}
    return {key: value for key, value in values.items() if isinstance(value, float)}


def _gain_words(gain: Sequence[float] | None) -> str:
    if gain is None:
        return "–"
    value, low, high = (100 * end for end in gain)
    return f"{value:+.1f} ({low:+.1f} to {high:+.1f})"


def _by_layer(nets: ByNet, ask: Ask) -> Section:
    theirs = _published(ask)
    a = nets["NetA"]
    known = [theirs.get(("NetA", layer), math.nan) for layer in ("pool5.3", "fc6")]
    sentences = [
        f"NetA, trained on fc6: the pooled layer before it has {_test(a, POOLED):.1f} % recall@1 "
        f"on unseen classes, fc6 {_test(a, EMBEDDING):.1f} %: a difference of "
        f"{_gain_words(a['gain'])} points, published {signed(known[0] - known[1])}.",
        _on_training_classes(a, ask),
        *_expected(nets, theirs),
    ]
    rows = []
    for net, result in nets.items():
        for row in result["layers"]:
            name = _paper_name(row["layer"], net)
            if net == "NetD" and row["layer"] == EMBEDDING:
                continue  # the pooled layer itself
            cells = [f"{row['size']}", f"{100 * row['train']:.1f}", f"{100 * row['test']:.1f}"]
            shown = name if name == row["layer"] else f"{row['layer']} ({name})"
            rows.append([net, shown, *cells, number(theirs.get((net, name)))])
    heads = ["net", "layer", "size", "train R@1 %", "test R@1 %", "published test"]
    caption = "Layers in the order they run; the loss sits on the last one of each net."
    return Section("By layer", sentences, [Table(heads, rows, caption)], _bar_figures(nets))


def _on_training_classes(net: Mapping[str, Any], ask: Ask) -> str:
    ours = {row["layer"]: 100 * row["train"] for row in net["layers"]}
    column = f"{ask.published_data}_train"
    theirs = {r["layer"]: r.get(column) for r in table("vo_hays_table3") if r["model"] == "NetA"}
    published = [f"{theirs[name] or '–'}" for name in ("penultimate", "output")]
    return (
        f"On training classes the pooled layer has {number(ours.get(POOLED))} %, fc6 "
        f"{number(ours.get(EMBEDDING))} %; published {' and '.join(published)}: there recall rises "
        "towards the loss."
    )


def _expected(nets: ByNet, theirs: Mapping[tuple[str, str], float]) -> list[str]:
    """What the paper says of layers, and whether it is so here."""
    sentences = []
    before = {n: f["gain"] for n, f in nets.items() if f["gain"] is not None and n != CLASSIFIED}
    better = [n for n, gain in before.items() if n != "NetD" and gain[1] > 0]
    others = [n for n in before if n != "NetD" and n not in better]
    sentences.append(
        "The pooled layer is better than the trained one, its interval above 0, in "
        f"{', '.join(better) or 'none'}; not so in {', '.join(others) or 'none'} (published: "
        "it is better in NetA and NetE)."
    )
    pooled = {net: _test(result, POOLED) for net, result in nets.items()}
    if "NetD" in nets:
        verb = "below" if pooled["NetD"] < pooled["NetA"] else "not below"
        sentences.append(
            f"With the loss on the pooled layer itself (NetD) that layer has {pooled['NetD']:.1f} "
            f"%, {verb} the {pooled['NetA']:.1f} % of NetA; the paper finds it much worse."
        )
    if "NetE" in nets:
        fc6 = [_test(nets["NetE"], "head.fc1"), _test(nets["NetA"], EMBEDDING)]
        known = [number(theirs.get((net, "fc6"))) for net in ("NetE", "NetA")]
        sentences.append(
            f"fc6 has {fc6[0]:.1f} % in NetE, where fc7 is trained after it, against {fc6[1]:.1f} "
            f"% in NetA, where it is trained itself; published {known[0]} against {known[1]}."
        )
    return sentences


def _bar_figures(nets: ByNet) -> list[Drawn]:
    rows = nets["NetA"]["layers"]
    series = {
        title: {r["layer"]: Point(r["layer"], 100 * r[split]) for r in rows}
        for split, title in (("train", "training classes"), ("test", "unseen classes"))
    }
    tops: dict[str, dict[str, Point]] = {}
    for net, result in nets.items():
        for row in result["layers"]:
            name = _paper_name(row["layer"], net)
            if name[:2] == "fc" or row["layer"] == POOLED:
                tops.setdefault(name, {})[net] = Point(net, 100 * row["test"])
    return [
        drawn(
            "layers_neta",
            "NetA: recall@1 by layer on training and on unseen classes, from image to loss.",
            lambda: bars(series, "recall@1, %"),
        ),
        drawn(
            "nets",
            "Recall@1 on unseen classes at the last layers of each net; the loss sits on the last.",
            lambda: bars(tops, "recall@1, %"),
        ),
    ]


def _over_time(nets: ByNet) -> Section:
    sentences, figures = [], []
    for net, name in (("NetA", "over_time"), (CLASSIFIED, "over_time_classification")):
        curves = nets.get(net, {}).get("curves", [])
        layers = [row["layer"] for row in nets.get(net, {}).get("layers", [])][-CURVES:]
        series: dict[str, list[Point]] = {}
        dashed = []
        for layer in layers:
            for split, title in (("validation", "unseen"), ("train", "training")):
                known = [c for c in curves if layer in c.get(split, {})]
                if known:
                    line = f"{_paper_name(layer, net)}, {title}"
                    series[line] = [Point(c["epoch"], 100 * c[split][layer]) for c in known]
                    dashed += [line] if split == "train" else []
        if series:
            figures.append(_curves_figure(net, name, series, dashed))
        if curves and "validation" in curves[-1]:
            last = curves[-1]["validation"]
            sentences.append(
                f"{net}: at the end {100 * last[POOLED]:.1f} % at the pooled layer and "
                f"{100 * last[EMBEDDING]:.1f} % at fc6 on validation classes."
            )
    sentences.append("The source draws these curves (figures 2 and 3) without numbers.")
    return Section("Over time, and under classification", sentences, [], figures)


def _curves_figure(
    net: str, name: str, series: Mapping[str, Sequence[Point]], dashed: Sequence[str]
) -> Drawn:
    caption = (
        f"{net}: recall@1 of its last layers after each epoch; solid on validation classes, dashed "
        "on as many training classes."
    )
    return drawn(name, caption, lambda: lines(series, "epoch", "recall@1, %", dashed))


def _foreign(result: ByNet, ask: Ask) -> Section:
    rows, words = [], []
    for name, model in result.items():
        for layer, title in ((EMBEDDING, "output"), (POOLED, "penultimate")):
            row = next((r for r in model["layers"] if r["layer"] == layer), None)
            if row is not None:
                values = [f"{100 * row[split]:.1f}" for split in ("train", "test")]
                rows.append([f"ours: {name}", title, str(row["size"]), *values])
        words.append(f"{name} {_gain_words(model['gain'])}")
    theirs: dict[str, dict[str, float]] = {}
    for line in table("vo_hays_table3"):
        scores = [line.get(f"{ask.published_data}_{split}") for split in ("train", "test")]
        if scores == [None, None]:  # nothing is published of these data
            continue
        size = line["dim"]
        shown = f"{size:.0f}" if isinstance(size, float) else ""
        texts = [number(v if isinstance(v, float) else None) for v in scores]
        rows.append([f"published: {line['model']}", str(line["layer"]), shown, *texts])
        if isinstance(scores[1], float):
            theirs.setdefault(str(line["model"]), {})[str(line["layer"])] = scores[1]
    changes = [each["penultimate"] - each["output"] for each in theirs.values()]
    ends = f"{min(changes):+.1f} to {max(changes):+.1f}" if changes else "–"
    caption = (
        "Penultimate layer against output on unseen classes, in points of recall@1: "
        f"{'; '.join(words) or 'no run has finished'}. Published: {ends} over "
        f"{len(changes)} models."
    )
    heads = ["model", "layer", "size", "train R@1 %", "test R@1 %"]
    return Section("Other models", [caption], [Table(heads, rows)])
