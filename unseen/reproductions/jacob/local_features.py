"""What the vectors at the places of a run's last map look like: how far they scatter, what is left
when some are missing, and how far apart images are as sets of them.

Source   P. Jacob et al., Metric Learning with HORDE, ICCV 2019, figure 1: local features of a
         image should agree with their mean

missing    of every image a random part of the places is averaged, embedded and evaluated; 5 draws
scatter    variance of unit vectors within an image over that of all (`diagnostics/scatter.py`)
mmd        squared maximum mean discrepancy between two images' vectors (Gaussian kernel, width
           by the median), for random pairs of one class and of two classes
image    vectors of some training images with their mean, in the plane (t-SNE)
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from unseen.config import build
from unseen.core.contracts import IntArray
from unseen.core.geometry import squared_distance, unit
from unseen.diagnostics.scatter import Scatter
from unseen.evaluation.evaluate import evaluate
from unseen.models.network import EmbeddingNetwork
from unseen.reports.embedding_map import class_colors, flatten
from unseen.reports.tables import Table
from unseen.reproductions.against_source import drawn
from unseen.reproductions.charts import Point, bare, lines
from unseen.runs.prepare import RunContext
from unseen.studies.findings import Section

FRACTIONS = (1, 2, 3, 6, 12)  # 1 / fraction of the places are kept
DRAWS, PAIRS, SCATTERED = 5, 400, 300
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
        "mmd": _mmd(local, torch.from_numpy(labels[np.sort(some)])),
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
            raise ValueError("local features need a network with maps: a convolutional backbone")
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
    for (fraction, _), parts in result.items():
        arguments = task.arguments(torch.cat(parts))
        score = evaluate(**arguments, metrics=("recall@1",), resamples=0, missing="count")
        values.setdefault(str(fraction), []).append(score.values["recall@1"].value)
    return values


def _scatter(local: Tensor) -> dict[str, float]:  # [n, hw, c]
    rows = local.flatten(0, 1)
    return Scatter()(rows, torch.arange(len(local)).repeat_interleave(local.shape[1]))


def _mmd(local: Tensor, labels: Tensor) -> dict[str, Any]:  # [n, hw, c], [n]
    """Mean over pairs with the standard error; their ratio."""
    rows = unit(local).double()
    generator = torch.Generator().manual_seed(SEED)
    first, second = torch.triu_indices(len(rows), len(rows), 1)
    same = labels[first] == labels[second]
    sample = rows.flatten(0, 1)[torch.randperm(rows[..., 0].numel(), generator=generator)[:1000]]
    width = 1 / squared_distance(sample).median().clamp(min=1e-12)
    result: dict[str, Any] = {}
    for name, where in (("same class", same), ("other classes", ~same)):
        pairs = where.nonzero()[:, 0]
        pairs = pairs[torch.randperm(len(pairs), generator=generator)[:PAIRS]]
        values = _discrepancy(rows[first[pairs]], rows[second[pairs]], float(width))
        error = float(values.std() / math.sqrt(len(values))) if len(values) > 1 else math.nan
        result[name] = [float(values.mean()) if len(values) else math.nan, error]
    return result


def _discrepancy(x: Tensor, y: Tensor, width: float) -> Tensor:  # two [P, hw, c] -> [P]
    """Squared, biased: the distance of the mean features of the kernel."""

    def kernel(a: Tensor, b: Tensor) -> Tensor:  # unit vectors: |a - b|^2 = 2 - 2 <a, b>
        return torch.exp(-width * (2 - 2 * a @ b.mT)).mean(dim=(1, 2))

    return kernel(x, x) + kernel(y, y) - 2 * kernel(x, y)


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
    rows, series, drops = [], {}, {}
    for name, values in result.items():
        means = {p: 100 * float(np.mean(values["missing"][str(p)])) for p in FRACTIONS}
        stds = {p: 100 * float(np.std(v, ddof=1)) if len(v := values["missing"][str(p)]) > 1 else
                math.nan for p in FRACTIONS}  # fmt: skip
        series[name] = [Point(_fraction_text(p), means[p], stds[p]) for p in FRACTIONS]
        drops[name] = means[1] - means[6]
        same, other = (values["mmd"][k][0] for k in ("same class", "other classes"))
        rows.append([name, *[_with_std(means[p], stds[p]) for p in FRACTIONS],
                     f"{values['scatter']['ratio']:.3f}", f"{same:.4f}", f"{other:.4f}",
                     f"{other / same:.2f}"])  # fmt: skip
    (plain, first), (regularized, second) = result.items()
    sentences = [
        f"With a sixth of the {first['places']} places of each image recall@1 falls by "
        f"{drops[plain]:.1f} points without HORDE and by {drops[regularized]:.1f} with it (5 "
        "draws; the source prints no numbers).",
        f"Scatter ratio (variance within images over all): {first['scatter']['ratio']:.3f} "
        f"without, {second['scatter']['ratio']:.3f} with HORDE; other classes are "
        f"{rows[0][-1]} and {rows[1][-1]} times as far apart as images of one class by MMD.",
    ]
    heads = ["run", *[f"R@1 % with {_fraction_text(p)}" for p in FRACTIONS]]
    heads += ["scatter ratio", "MMD² same class", "MMD² other classes", "other / same"]
    figures = [
        drawn("missing", "Recall@1 on unseen classes when only a part of the places of each "
              "image is averaged; bars: standard deviation over 5 draws.",
              lambda: lines(series, "part of the places kept", "recall@1, %")),
        drawn("scattering", "Vectors at the places of the last map of some training images "
              "(dots) and their means (stars), t-SNE, a colour per class, same axes.",
              lambda: _scattering({n: each["image"] for n, each in result.items()})),
    ]  # fmt: skip
    return Section("Local features", sentences, [Table(heads, rows)], figures)


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
