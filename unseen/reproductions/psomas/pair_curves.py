"""How hard each loss pulls and pushes pairs, by their similarity: curves of `PairWeights`.

One batch for all losses: training items as a finished run embeds them, five of each of twenty
classes. Weights are divided by their mean over the pairs of the batch, since losses differ in
scale. Losses with class parameters have no pairs and are left out.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from unseen.config import build
from unseen.core.contracts import Output
from unseen.diagnostics.pair_weights import PairWeights
from unseen.losses.base import LabelLoss
from unseen.reproductions.charts import COLORS, logarithmic
from unseen.runs.prepare import stored_config
from unseen.studies.results import Run
from unseen.studies.study_figures import LINE
from unseen.training.run_folder import RunFolder

CLASSES, PER_CLASS, BINS = 20, 5, 12
FEWEST = 3  # pairs for a point of a curve
SIDES = ("positive", "negative")
Curves = dict[str, dict[str, list[list[float]]]]  # loss -> side -> [similarity, weight]


def batch_of(embeddings: Tensor, labels: Tensor) -> dict[str, Any]:
    """A batch of training items, as plain values."""
    classes = labels.unique()[:CLASSES]
    rows = torch.cat([(labels == c).nonzero()[:PER_CLASS, 0] for c in classes])
    return {"embeddings": embeddings[rows].double().tolist(), "labels": labels[rows].tolist()}


def curves(runs: Sequence[Run], batch: dict[str, Any]) -> Curves:
    """Mean weight by similarity for the loss and miner of each run."""
    embeddings = torch.tensor(batch["embeddings"], dtype=torch.float64)
    labels = torch.unique(torch.tensor(batch["labels"]), return_inverse=True)[1]
    result: Curves = {}
    for run in runs:
        folder = RunFolder(run.folder)
        if not folder.is_started:
            continue
        objective = build.objective(stored_config(folder), int(labels.max()) + 1)
        if isinstance(objective.loss, LabelLoss):
            continue

        def loss_of(rows: Tensor, of: Tensor, made: Any = objective) -> Tensor:
            total: Tensor = made(Output(rows, rows), of)["total"]
            return total

        weights = PairWeights(loss_of)(embeddings, labels)
        result[run.planned.labels["loss"]] = {side: _binned(weights, side) for side in SIDES}
    return result


def _binned(weights: dict[str, Tensor], side: str) -> list[list[float]]:
    """Mean weight in bins of similarity, over the mean of all pairs."""
    everyone = torch.cat([weights[f"{s}_weight"] for s in SIDES])
    similarity = weights[f"{side}_similarity"].numpy()
    weight = (weights[f"{side}_weight"] / everyone.mean().clamp(min=1e-30)).numpy()
    edges = np.linspace(similarity.min(), similarity.max() + 1e-9, BINS + 1)
    place = np.digitize(similarity, edges) - 1
    points = []
    for each in range(BINS):
        inside = place == each
        if inside.sum() >= FEWEST:
            points.append([float(similarity[inside].mean()), float(weight[inside].mean())])
    return points


def figure(result: Curves) -> Figure:
    """Pairs of one class at the left, of two classes at the right."""
    made = Figure(figsize=(9, 3.6), layout="constrained")
    for ax, side in zip(made.subplots(1, 2), SIDES, strict=True):
        for place, (loss, sides) in enumerate(result.items()):
            points = np.array(sides[side]).reshape(-1, 2)
            label = loss if side == SIDES[0] else None
            ax.plot(*points.T, "o-", ms=3, color=COLORS[place % len(COLORS)], label=label)
        same = "pairs of one class" if side == "positive" else "pairs of two classes"
        ax.set_title(same, fontsize=9, loc="left")
        logarithmic(ax, "symlog", linthresh=0.01)
        ax.set_ylim(bottom=0)
        ax.set(xlabel="cosine similarity", ylabel="|dL/dS| over its mean")
        ax.grid(axis="y", color=LINE, lw=0.8)
    made.legend(loc="outside upper right", ncols=6)
    return made
