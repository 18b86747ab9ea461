"""What the vectors at the places of a run's last map look like: how far they scatter, what is left
when some are missing, and how far apart images are as sets of them.

Source   P. Jacob et al., Metric Learning with HORDE, ICCV 2019, figure 1: local features of a
         image should agree with their mean

missing    of every image a random part of the places is averaged, embedded and evaluated; 5 draws
scatter    variance of unit vectors within an image over that of all (`diagnostics/scatter.py`)
bounds     theorems 1 and 2: squared mean discrepancy and squared Wasserstein distance of two images
           against the sum of their squared moment differences, over random pairs
image    vectors of some training images with their mean, in the plane (t-SNE)
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from scipy.optimize import linear_sum_assignment
from scipy.stats import spearmanr
from torch import Tensor

from unseen.config import build
from unseen.core.contracts import IntArray
from unseen.core.geometry import squared_distance, unit
from unseen.diagnostics.scatter import Scatter
from unseen.evaluation.evaluate import evaluate
from unseen.models.network import EmbeddingNetwork
from unseen.reports.embedding_map import class_colors, flatten
from unseen.reports.tables import Table
from unseen.reproductions.against_source import drawn, fisher
from unseen.reproductions.charts import Point, bare, lines
from unseen.runs.prepare import RunContext
from unseen.studies.findings import Section

FRACTIONS = (1, 2, 3, 6, 12)  # 1 / fraction of the places are kept
DRAWS, SCATTERED = 5, 300
BOUND_PAIRS, MOMENTS = 200, 5
SHOWN_CLASSES, SHOWN_IMAGES = 4, 3
SEED = 0


@torch.no_grad()
def measure(context: RunContext, network: EmbeddingNetwork) -> dict[str, Any]:
    """Everything above for one trained network, as plain values."""
    test, labels = context.split.test, context.dataset.labels
    some = np.random.default_rng(SEED).permutation(test)[:SCATTERED]
    local = torch.cat(list(_places(context, network, np.sort(some))))  # [n, hw, c]
    shown = _shown_items(context)
    return {
        "places": local.shape[1],
        "missing": _missing(context, network),
        "scatter": _scatter(local),
        "bounds": bounds(local),
        "image": _image(torch.cat(list(_places(context, network, shown))), labels[shown]),
    }


def _places(
    context: RunContext, network: EmbeddingNetwork, items: IntArray
) -> Iterator[Tensor]:  # each [N, hw, c]
    _, transform = build.image_transforms(context.config, network)
    network.eval()
    for batch in context.batches(transform, items):
        maps = network(batch.images.to(context.device)).maps
        if maps is None:
            raise ValueError("local features need a network with a last map or patch tokens")
        yield maps.flatten(2).mT.cpu()


def _missing(context: RunContext, network: EmbeddingNetwork) -> dict[str, list[float]]:
    """Fraction -> recall@1 of each draw; one draw of all places."""
    generator = torch.Generator().manual_seed(SEED)
    result: dict[tuple[int, int], list[Tensor]] = {}
    for local in _places(context, network, context.split.test):
        num = local.shape[1]
        for fraction in FRACTIONS:
            count = math.ceil(num / fraction)
            for draw in range(DRAWS if fraction > 1 else 1):
                order = torch.rand(local.shape[:2], generator=generator).argsort(dim=1)
                chosen = local.gather(1, order[:, :count, None].expand(-1, -1, local.shape[2]))
                result.setdefault((fraction, draw), []).append(network.head(chosen.mean(dim=1)))
    task = context.retrieval_task(context.split.test)
    values: dict[str, list[float]] = {}
    for (fraction, _), components in result.items():
        arguments = task.arguments(torch.cat(components))
        score = evaluate(**arguments, metrics=("recall@1",), resamples=0, missing="count")
        values.setdefault(str(fraction), []).append(score.values["recall@1"].value)
    return values


def _scatter(local: Tensor) -> dict[str, float]:  # [n, hw, c]
    rows = local.flatten(0, 1)
    return Scatter()(rows, torch.arange(len(local)).repeat_interleave(local.shape[1]))


def _discrepancy(x: Tensor, y: Tensor, width: float) -> Tensor:  # two [P, hw, c] -> [P]
    """Squared, biased: the distance of the mean features of the kernel."""

    def kernel(a: Tensor, b: Tensor) -> Tensor:  # unit vectors: |a - b|^2 = 2 - 2 <a, b>
        return torch.exp(-width * (2 - 2 * a @ b.mT)).mean(dim=(1, 2))

    return kernel(x, x) + kernel(y, y) - 2 * kernel(x, y)


def bounds(local: Tensor) -> dict[str, dict[str, float]]:  # [n, hw, c]
    """Of the theorems on pairs of images: rank correlation of each distance with the sum of squared
    moment differences, its 95 % interval, and the share of pairs that break the printed bound.

    With kernel exp(-g |x - y|^2), a_k = (2 g)^k / k! and b the largest squared moment:
    MMD^2 <= max a_k * M + 1 and W1^2 >= exp(-2 g b) * min a_k / b * M, remainders left out.
    """
    rows = unit(local).double()
    generator = torch.Generator().manual_seed(SEED)
    first = torch.randint(len(rows), (BOUND_PAIRS,), generator=generator)
    second = (first + 1 + torch.randint(len(rows) - 1, (BOUND_PAIRS,), generator=generator)) % len(
        rows
    )
    x, y = rows[first], rows[second]
    sample = rows.flatten(0, 1)[torch.randperm(rows[..., 0].numel(), generator=generator)[:1000]]
    width = float(1 / squared_distance(sample).median().clamp(min=1e-12))
    inner = [x @ x.mT, y @ y.mT, x @ y.mT]  # moments of tensors need no tensor
    powers = [[each.pow(k).mean(dim=(1, 2)) for each in inner] for k in range(1, MOMENTS + 1)]
    moments = sum((xx + yy - 2 * xy for xx, yy, xy in powers), torch.zeros(len(x)).double())
    largest = float(torch.stack([torch.stack(each[:2]) for each in powers]).max())
    factors = [(2 * width) ** k / math.factorial(k) for k in range(1, MOMENTS + 1)]
    transport = torch.tensor([_wasserstein(a, b) for a, b in zip(x, y, strict=True)]).square()
    discrepancy = _discrepancy(x, y, width)
    lower = math.exp(-2 * width * largest) * min(factors) / largest * moments
    broken = {
        "mmd": discrepancy > max(factors) * moments + 1 + 1e-12,
        "wasserstein": transport < lower - 1e-12,
    }
    values = {"mmd": discrepancy, "wasserstein": transport}
    return {name: _correlated(values[name], moments, broken[name]) for name in values}


def _wasserstein(x: Tensor, y: Tensor) -> float:  # two [hw, c]
    """Exact: of two sets of equally many points an assignment is the best transport."""
    cost = squared_distance(x, y).clamp(min=0).sqrt().numpy()
    return float(cost[linear_sum_assignment(cost)].mean())


def _correlated(values: Tensor, moments: Tensor, broken: Tensor) -> dict[str, float]:
    result: Any = spearmanr(values.numpy(), moments.numpy())
    r = float(result.statistic)
    low, high = fisher(r, len(values))
    return {"r": r, "low": low, "high": high, "broken": float(broken.double().mean())}


def _shown_items(context: RunContext) -> IntArray:
    """A few training images of a few classes."""
    train, labels = context.split.train, context.dataset.labels
    classes = np.unique(labels[train])[:SHOWN_CLASSES]
    rows = [train[labels[train] == c][:SHOWN_IMAGES] for c in classes]
    chosen: IntArray = np.concatenate(rows)
    return chosen


def _image(local: Tensor, labels: IntArray) -> dict[str, Any]:  # [n, hw, c]
    """Places in the plane of all vectors, then of the images' means."""
    num, places, _ = local.shape
    everyone = torch.cat([local.flatten(0, 1), local.mean(dim=1)])
    flat = flatten(everyone.float().numpy(), normalize=True)
    flat -= (flat.max(axis=0) + flat.min(axis=0)) / 2
    flat /= np.abs(flat).max() or 1.0
    return {
        "vectors": np.round(flat[: num * places], 3).tolist(),
        "means": np.round(flat[num * places :], 3).tolist(),
        "classes": labels.tolist(),
    }


def section(result: Mapping[str, Any]) -> Section:
    """The first of `found` is without the regularizer, the second with it."""
    if len(result) < 2:
        return Section("Local features", ["The two runs to compare have not both finished."])
    rows, series = [], {}
    for name, values in result.items():
        means = {p: 100 * float(np.mean(values["missing"][str(p)])) for p in FRACTIONS}
        stds = {p: 100 * float(np.std(v, ddof=1)) if len(v := values["missing"][str(p)]) > 1 else
                math.nan for p in FRACTIONS}  # fmt: skip
        series[name] = [Point(_fraction_text(p), means[p], stds[p]) for p in FRACTIONS]
        rows.append([name, *[_with_std(means[p], stds[p]) for p in FRACTIONS],
                     f"{values['scatter']['ratio']:.3f}", *_broken(values)])  # fmt: skip
    sentences = [
        "Recall@1 when a part of the places of each image is averaged (5 draws); the source "
        "draws it, without numbers."
    ]
    heads = ["run", *[f"R@1 % with {_fraction_text(p)}" for p in FRACTIONS]]
    heads += ["scatter ratio"]
    heads += ["pairs that break the bound on MMD² %", "on Wasserstein %"]
    figures = [
        drawn("missing", "Recall@1 on unseen classes when only a part of the places of each "
              "image is averaged; bars: standard deviation over 5 draws.",
              lambda: lines(series, "part of the places kept", "recall@1, %")),
        drawn("scattering", "Vectors at the places of the last map of some training images "
              "(dots) and their means (stars), t-SNE, a colour per class, same axes.",
              lambda: _scattering({n: each["image"] for n, each in result.items()})),
    ]  # fmt: skip
    return Section("Local features", sentences, [Table(heads, rows)], figures)


def _broken(values: Mapping[str, Any]) -> list[str]:
    known = values.get("bounds", {})
    kinds = ("mmd", "wasserstein")
    return [f"{100 * known[kind]['broken']:.0f}" if kind in known else "–" for kind in kinds]


def _fraction_text(fraction: int) -> str:
    return "all" if fraction == 1 else f"1/{fraction}"


def _with_std(mean: float, std: float) -> str:
    return f"{mean:.1f}" + ("" if math.isnan(std) else f" ±{std:.1f}")


def _scattering(images: Mapping[str, Any]) -> Figure:
    figure = Figure(figsize=(8, 4), layout="constrained")
    for ax, (name, each) in zip(figure.subplots(1, 2), images.items(), strict=True):
        vectors, means = np.asarray(each["vectors"]), np.asarray(each["means"])
        kinds, of_image = np.unique(each["classes"], return_inverse=True)
        colors = np.array(class_colors(len(kinds)))[of_image]
        of_vector = np.repeat(colors, len(vectors) // len(means))
        ax.scatter(vectors[:, 0], vectors[:, 1], s=5, c=of_vector, lw=0, alpha=0.6)
        ax.scatter(means[:, 0], means[:, 1], s=110, c=colors, marker="*", edgecolor="#1b2026")
        ax.set(xlim=(-1.05, 1.05), ylim=(-1.05, 1.05))
        ax.set_title(name, fontsize=9, loc="left")
        bare(ax)
    return figure
