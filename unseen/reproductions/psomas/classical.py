"""Linear metrics from before deep networks, on frozen features: plain, and after kernel PCA.

Source   B. Psomas, Metric Learning: A Deep Dive, Master's thesis, National and Kapodistrian
         University of Athens, 2020, chapter 2
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from unseen.classical.kernel.features import KernelFeatures
from unseen.config import build
from unseen.config import schema as configs
from unseen.core import registry
from unseen.core.contracts import FeatureDataset, IntArray
from unseen.core.geometry import unit
from unseen.core.statistics import compare
from unseen.evaluation.evaluate import Evaluation, evaluate
from unseen.reports.tables import Table
from unseen.reproductions.against_source import drawn
from unseen.reproductions.charts import Cloud, clouds
from unseen.reproductions.published_study import ByPlan, Evidence, Message, PublishedStudy
from unseen.reproductions.request import Ask
from unseen.runs.prepare import RunContext, prepare
from unseen.studies.findings import Section

METHODS = ("whitening", "rca", "nca", "lmnn", "mcml")
SPACES = ("plain", "gaussian", "polynomial")
NONE = "no metric"
SIZE = 128  # principal components, and components of a kernel
MOST_ITEMS, ITERATIONS = 30, 30  # of a class, of a fit, in the quick budget
METRICS = ("recall@1", "map_at_r")
Row = dict[str, Any]


class Classical(PublishedStudy):
    source = "Psomas 2020, chapter 2 (the methods; the thesis prints no scores of them)"
    shows = "whitening, RCA, NCA, LMNN, MCML on frozen features, plain and after kernel PCA"

    def measure(self, ask: Ask, results: ByPlan, progress: Message) -> dict[str, Any]:
        context = prepare(configs.make(_values(ask)))
        with torch.random.fork_rng(devices=[]):
            return _compared(ask, context, progress) | {"xor": _exclusive_or()}

    def sections(self, evidence: Evidence) -> list[Section]:
        measured = evidence.measured
        rows: list[Row] = measured.get("rows", [])
        if not rows:
            return [Section("Metrics", ["Nothing has been fitted yet."])]
        how = (
            f"Fitted once on {measured['train_items']:,} items of {measured['train_classes']} "
            "training classes; intervals are over test classes."
        )
        return [
            Section("Metrics", [how], [_table(rows)]),
            _xor_section(measured["xor"]),
        ]


def _values(ask: Ask) -> dict[str, Any]:
    values = {"data": ask.table, "protocol": "fixed_validation"}
    return configs.override(values, list(ask.settings))


def _frozen(
    context: RunContext, items: IntArray, progress: Message
) -> Tensor:  # [n, P], unit length
    """Features, or what an untrained (pretrained, if there are weights) network makes of
    images."""
    if isinstance(context.dataset, FeatureDataset):
        return unit(torch.from_numpy(np.asarray(context.dataset.features[items])).float())
    network = build.network(context.config).to(context.device)
    _, transform = build.image_transforms(context.config, network)
    shown = lambda done, total: progress("features of the images", done, total)  # noqa: E731
    return unit(context.embed(network, transform, items, shown, field="pooled").cpu().float())


def _compared(ask: Ask, context: RunContext, progress: Message) -> dict[str, Any]:
    """Every metric in every space, fitted on training and evaluated on test classes."""
    train, test = context.split.train, context.split.test
    if ask.is_quick:
        train = _at_most(train, context.dataset.labels, MOST_ITEMS)
    fit, evaluated = _frozen(context, train, progress), _frozen(context, test, progress)
    labels = torch.from_numpy(context.dataset.labels[train])
    request = torch.from_numpy(context.dataset.labels[test])
    rows: list[Row] = [{"space": "given", "method": NONE} | _scores(evaluated, request)[1]]
    mean, size = fit.mean(dim=0), min(SIZE, len(fit) - 1, fit.shape[1])
    axes = torch.linalg.svd(fit - mean, full_matrices=False)[2][:size]  # [size, P]
    fit, evaluated = (fit - mean) @ axes.T, (evaluated - mean) @ axes.T
    done, total = 0, len(SPACES) * len(METHODS)
    for space in SPACES:
        seen, unseen = fit, evaluated
        if space != "plain":
            kernel = KernelFeatures(space, size, landmarks=max(size, 2000)).fit(fit)
            seen, unseen = kernel.transform(fit), kernel.transform(evaluated)
        base, scores = _scores(unseen, request)
        rows.append({"space": space, "method": NONE} | scores)
        for method in METHODS:
            progress(f"fitting {method}, {space}", done, total)
            learned = _method(method, ask).fit(seen, labels)
            result, scores = _scores(learned.transform(unseen), request)
            rows.append({"space": space, "method": method} | scores | _gain(base, result, request))
            done += 1
    progress("fitting metrics", total, total)
    counted = {"train_items": len(train), "train_classes": len(labels.unique())}
    return {
        "rows": rows,
        "size": size,
        "test_classes": len(request.unique()),
    } | counted


def _method(name: str, ask: Ask) -> Any:
    steps = {p.name for p in registry.parameters(registry.find("classical", name))}
    short = ask.is_quick and "max_iterations" in steps
    values = {"max_iterations": ITERATIONS} if short else {}
    return registry.create("classical", name, values)


def _scores(space: Tensor, labels: Tensor) -> tuple[Evaluation, Row]:
    result = evaluate(space, labels, metrics=METRICS, intervals="classes")
    values = result.values
    row: Row = {m: [values[m].value, values[m].low, values[m].high] for m in METRICS}
    plain = evaluate(space, labels, metrics=("recall@1",), normalize=False, resamples=0)
    return result, row | {"euclidean": plain.values["recall@1"].value}


def _gain(base: Evaluation, result: Evaluation, labels: Tensor) -> Row:
    """What a metric adds in its space, query by query, over test classes."""
    paired = compare(base.per_query["recall@1"], result.per_query["recall@1"], labels)
    ends = paired.difference
    return {"gain": [ends.value, ends.low, ends.high], "p": paired.p}


def _at_most(items: IntArray, labels: IntArray, most: int) -> IntArray:
    """The first items of every class."""
    order = np.argsort(labels[items], kind="stable")
    _, first, counts = np.unique(labels[items][order], return_index=True, return_counts=True)
    place = np.arange(len(items)) - np.repeat(first, counts)
    chosen: IntArray = np.sort(items[order[place < most]])
    return chosen


def _percent(ends: list[float]) -> str:
    return f"{100 * ends[0]:.1f} ±{50 * (ends[2] - ends[1]):.1f}"


def _table(rows: list[Row]) -> Table:
    heads = ["space", "metric", "R@1 %", "mAP@R %", "R@1 % Euclidean", "gain in R@1", "p"]
    cells = [
        [
            row["space"],
            row["method"],
            _percent(row["recall@1"]),
            _percent(row["map_at_r"]),
            f"{100 * row['euclidean']:.1f}",
            f"{100 * row['gain'][0]:+.1f}" if "gain" in row else "",
            ("<0.001" if row["p"] < 0.001 else f"{row['p']:.3f}") if "p" in row else "",
        ]
        for row in rows
    ]
    caption = (
        "±: half of the 95 % interval over test classes. Gain and p: against no metric in the same "
        "space, over test classes. R@1 and mAP@R by cosine, except where Euclidean."
    )
    return Table(heads, cells, caption)


def _exclusive_or(num: int = 40) -> dict[str, Any]:
    """Four clusters at the corners of a square, opposite corners one class: how far each method
    brings a class together, and where the points go."""
    generator = torch.Generator().manual_seed(0)
    corners = torch.tensor([[0, 0], [1, 1], [0, 1], [1, 0]], dtype=torch.float64)
    place = torch.arange(4).repeat_interleave(num)
    noise = 0.1 * torch.randn(4 * num, 2, generator=generator, dtype=torch.float64)
    points, labels = corners[place] + noise, place // 2
    lifted = KernelFeatures(size=8).fit(points).transform(points)
    spaces = {"linear": points, "gaussian kernel": lifted}
    precision: dict[str, dict[str, float]] = {}
    moved: dict[str, Any] = {"data": points.tolist()}
    for name, space in spaces.items():
        result = {method: _method_of_all(method, space, labels) for method in METHODS}
        precision[name] = {method: _r_precision(x, labels) for method, x in result.items()}
        best = max(precision[name], key=lambda method: precision[name][method])
        moved[f"{name}, {best}"] = _flat(result[best]).tolist()
    return {"labels": labels.tolist(), "together": precision, "moved": moved}


def _method_of_all(method: str, space: Tensor, labels: Tensor) -> Tensor:
    learned: Tensor = registry.create("classical", method, {}).fit(space, labels).transform(space)
    return learned


def _r_precision(space: Tensor, labels: Tensor) -> float:
    score = evaluate(space, labels, metrics=("r_precision",), normalize=False, resamples=0)
    return score.values["r_precision"].value


def _flat(space: Tensor) -> Tensor:  # [n, 2]
    """Its first two principal components."""
    centered = space - space.mean(dim=0)
    return centered @ torch.linalg.svd(centered, full_matrices=False)[2][:2].T


def _xor_section(xor: dict[str, Any]) -> Section:
    linear, kernel = (xor["together"][name] for name in ("linear", "gaussian kernel"))
    caption = (
        "R-precision of four corners of a square, opposite ones a class. NCA and LMNN ask for "
        "near neighbours of the own class alone, which every corner has; a metric at 0 has put all "
        "points in one place, where ties count against it."
    )
    rows = [[m, f"{100 * linear[m]:.1f}", f"{100 * kernel[m]:.1f}"] for m in METHODS]
    order = sorted(xor["moved"], key=lambda title: (title != "data", title[0] != "l"))
    panels = [Cloud(title, xor["moved"][title], xor["labels"]) for title in order]
    figure = drawn(
        "exclusive_or",
        "Left: two classes at opposite corners of a square. Middle: after the best linear metric. "
        "Right: after the best metric on Gaussian kernel features, first two components.",
        lambda: clouds(panels),
    )
    heads = ["metric", "R-precision %, linear", "R-precision %, Gaussian kernel"]
    return Section("What a linear metric cannot do", [caption], [Table(heads, rows)], [figure])
