"""Whose label is probably wrong: every item judged by others that it had no part in.

Formula  items are cut into folds, class by class. For the items of a fold, from the other folds:

         space       the covariance within classes made round (`classical/rca.py`), so that what
                     differs among items of one class counts little
         centres     p[c] = softmax over classes of (z . m[c] - |m[c]|^2 / 2) / T, z an item and
                     m[c] the centre of class c in that space, less the mean of all: which class's
                     centre dominates. T is the one of a few temperatures under which the given
                     labels are likeliest
         neighbours  v[c] = share of class c among the k nearest, weighted by cosines above 0
         score[c]    = log p[c] + log(v[c] + 0.05)
         suspicion   = sigmoid(max over c other than the label of score[c] - score[label])

         Above 0.5 another class is likelier than the label. The classes that an item could move to
         are those of the highest scores.
Counts   an item alone in its class cannot be confirmed and comes last (suspicion NaN).
Values   5 folds, 10 neighbours, shrinkage 0.5, 0.05: ours, by the share of changed labels of CUB
         that come first (docs/wrong_labels.md); shrinkage from 0.1 to 0.8 made little difference.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from unseen.classical.rca import Rca
from unseen.contracts import Progress
from unseen.diagnostics.base import by_class, class_sums
from unseen.geometry import full_precision
from unseen.neighbours.nearest import nearest
from unseen.neighbours.space import make_space, precise, require_finite, to_sphere

FOLDS, K, SHRINKAGE, FEWEST_VOTES = 5, 10, 0.5, 0.05
TEMPERATURES = (1.0, 2.0, 4.0, 8.0, 12.0, 16.0, 24.0, 32.0, 64.0, 128.0)
SUGGESTED = 3  # classes that an item could move to
ROWS = 1024  # items whose scores are held at a time


@dataclass(frozen=True)
class Suspect:
    """An item to look at. suggested: labels it could get, likeliest first. own, near: examples of
    its class, and of each suggested one."""

    item: int
    label: int
    suggested: list[int]
    suspicion: float
    own: list[int]
    near: list[list[int]]


@dataclass(frozen=True)
class Suspicion:
    """`order`: places, the most suspicious first. centres, neighbours: how much speaks for the
    label, 0 to 1."""

    order: Tensor  # [N]
    suspicion: Tensor  # [N] float64
    suggested: Tensor  # [N, up to 3] labels
    centres: Tensor  # [N]
    neighbours: Tensor  # [N]


def suspects(
    embeddings: Tensor,
    labels: Tensor,
    *,
    normalise: bool = True,
    seed: int = 0,
    progress: Progress | None = None,
) -> Suspicion:
    """Every item of [N, D] with its label [N]; two classes of two items or more."""
    require_finite(embeddings, "embeddings")
    classes, own, sizes = by_class(labels, len(embeddings))
    if int((sizes > 1).sum()) < 2:
        raise ValueError("suspects are found among two classes or more of at least two items each")
    x = full_precision(embeddings.detach())
    x = to_sphere(x) if normalise else x
    fold, parts = _folds(own, sizes, seed), []
    with precise(x.device):
        for number in range(FOLDS):
            asked = (fold == number).nonzero()[:, 0]
            if len(asked):
                learned = (fold != number).nonzero()[:, 0]
                parts.append((asked, *_judged(x, own, asked, learned, len(classes))))
            if progress is not None:
                progress(number + 1, FOLDS)
    asked, gap, best, centres, neighbours = (torch.cat(each) for each in zip(*parts, strict=True))
    place = asked.argsort()
    suspicion = gap[place].double().sigmoid().masked_fill(sizes[own] == 1, torch.nan)
    order = suspicion.nan_to_num(-1.0).argsort(descending=True, stable=True)
    return Suspicion(order, suspicion, classes[best[place]], centres[place], neighbours[place])


def _folds(own: Tensor, sizes: Tensor, seed: int) -> Tensor:  # [N]
    """The items of each class in turn, in random order, each class from a random fold on."""
    generator = torch.Generator().manual_seed(seed)
    shuffled = torch.randperm(len(own), generator=generator).to(own.device)
    order = shuffled[own[shuffled].argsort(stable=True)]  # class by class
    first = (sizes.cumsum(0) - sizes).repeat_interleave(sizes)  # where each one's class begins
    begins = torch.randint(FOLDS, (len(sizes),), generator=generator).to(own.device)
    turn = torch.arange(len(own), device=own.device) - first + begins.repeat_interleave(sizes)
    return torch.empty_like(own).scatter_(0, order, turn % FOLDS)


def _judged(
    x: Tensor, own: Tensor, asked: Tensor, learned: Tensor, num_classes: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Of the asked items: by how much another class is likelier, the likeliest others, and what
    centres and neighbours give the label."""
    z = Rca(SHRINKAGE).fit(x[learned], own[learned]).transform(x)
    z = z - z[learned].mean(dim=0)
    counts = torch.bincount(own[learned], minlength=num_classes)
    sums = class_sums(z[learned], own[learned], num_classes)
    means = sums / counts.clamp(min=1)[:, None]  # [C, D]
    shift = (means.square().sum(dim=1) / 2).masked_fill(counts == 0, torch.inf)
    k = min(K, len(learned))
    sim, items = nearest(make_space(z[asked], z[learned]), k)  # [n, k]
    weight, votes = sim.clamp(min=0), own[learned][items]
    weight = weight / weight.sum(dim=1, keepdim=True).clamp(min=1e-12)
    temperature = _temperature(z[asked[:ROWS]] @ means.T - shift, own[asked[:ROWS]])
    found = []
    for rows in torch.arange(len(asked), device=x.device).split(ROWS):
        label = own[asked[rows], None]
        p = torch.softmax((z[asked[rows]] @ means.T - shift) / temperature, dim=1)  # [n, C]
        v = torch.zeros_like(p).scatter_add_(1, votes[rows], weight[rows].to(p.dtype))
        score = p.clamp(min=1e-30).log() + (v + FEWEST_VOTES).log()
        others = score.scatter(1, label, -torch.inf).topk(min(SUGGESTED, num_classes - 1), dim=1)
        gap = others.values[:, 0] - score.gather(1, label)[:, 0]
        given = (p.gather(1, label)[:, 0], v.gather(1, label)[:, 0])
        found.append((gap, others.indices, *given))
    gap, best, centres, neighbours = (torch.cat(each) for each in zip(*found, strict=True))
    return gap, best, centres, neighbours


def _temperature(logits: Tensor, own: Tensor) -> float:
    """Under which the labels are likeliest; of some items, whose class has a centre."""
    known = logits.gather(1, own[:, None])[:, 0].isfinite()
    logits, own = logits[known], own[known]

    def likelihood(temperature: float) -> float:
        return float((logits / temperature).log_softmax(1).gather(1, own[:, None]).sum())

    return max(TEMPERATURES, key=likelihood)
