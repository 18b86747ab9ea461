"""Label issues: how probable it is that an item belongs to another class.

Formula  items are cut into folds, class by class. For the items of a fold, from the other folds:

         space       the covariance within classes made round (`classical/rca.py`), so that what
                     differs among items of one class counts little
         centers     p[c] = softmax over classes of (z . m[c] - |m[c]|^2 / 2) / T, z an item and
                     m[c] the centre of class c in that space, less the mean of all: which class's
                     centre dominates. T is the one of a few temperatures under which the given
                     labels are likeliest
         neighbors   v[c] = share of class c among the k nearest, weighted by cosines above 0
         score[c]    = log p[c] + log(v[c] + 0.05)
         issue_score = sigmoid(max over c other than the label of score[c] - score[label])

         Above 0.5 another class is likelier than the label. The classes that an item could move to
         are those of the highest scores.
Counts   an item alone in its class cannot be confirmed and comes last (issue_score NaN).
Values   5 folds, 10 neighbours, shrinkage 0.5, 0.05: ours, by the share of changed labels of CUB
         that come first (docs/wrong_labels.md); shrinkage from 0.1 to 0.8 made little difference.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from unseen.classical.rca import Rca
from unseen.core.contracts import Progress
from unseen.core.geometry import full_precision
from unseen.diagnostics.base import by_class, class_sums
from unseen.neighbors.nearest import nearest
from unseen.neighbors.space import make_space, precise, require_finite, to_sphere

FOLDS, K, SHRINKAGE, FEWEST_VOTES = 5, 10, 0.5, 0.05
TEMPERATURES = (1.0, 2.0, 4.0, 8.0, 12.0, 16.0, 24.0, 32.0, 64.0, 128.0)
SUGGESTED = 3  # classes that an item could move to
ROWS = 1024  # items whose scores are held at a time


@dataclass(frozen=True)
class LabelIssueScores:
    """`order`: places, the highest score first."""

    order: Tensor  # [N]
    issue_score: Tensor  # [N] float64
    suggested: Tensor  # [N, up to 3] labels


def label_issues(
    embeddings: Tensor,
    labels: Tensor,
    *,
    normalize: bool = True,
    seed: int = 0,
    progress: Progress | None = None,
) -> LabelIssueScores:
    """Every item of [N, D] with its label [N]; two classes of two items or more."""
    require_finite(embeddings, "embeddings")
    classes, own, sizes = by_class(labels, len(embeddings))
    if int((sizes > 1).sum()) < 2:
        raise ValueError(
            "label issues are found among two classes or more of at least two items each"
        )
    x = full_precision(embeddings.detach())
    x = to_sphere(x) if normalize else x
    fold, parts = _folds(own, sizes, seed), []
    with precise(x.device):
        for number in range(FOLDS):
            request = (fold == number).nonzero()[:, 0]
            if len(request):
                learned = (fold != number).nonzero()[:, 0]
                parts.append((request, *_evaluated(x, own, request, learned, len(classes))))
            if progress is not None:
                progress(number + 1, FOLDS)
    request, gap, best = (torch.cat(each) for each in zip(*parts, strict=True))
    place = request.argsort()
    issue_score = gap[place].double().sigmoid().masked_fill(sizes[own] == 1, torch.nan)
    order = issue_score.nan_to_num(-1.0).argsort(descending=True, stable=True)
    return LabelIssueScores(order, issue_score, classes[best[place]])


def _folds(own: Tensor, sizes: Tensor, seed: int) -> Tensor:  # [N]
    """The items of each class in turn, in random order, each class from a random fold on."""
    generator = torch.Generator().manual_seed(seed)
    shuffled = torch.randperm(len(own), generator=generator).to(own.device)
    order = shuffled[own[shuffled].argsort(stable=True)]  # class by class
    first = (sizes.cumsum(0) - sizes).repeat_interleave(sizes)  # where each one's class begins
    begins = torch.randint(FOLDS, (len(sizes),), generator=generator).to(own.device)
    turn = torch.arange(len(own), device=own.device) - first + begins.repeat_interleave(sizes)
    return torch.empty_like(own).scatter_(0, order, turn % FOLDS)


def _evaluated(
    x: Tensor, own: Tensor, request: Tensor, learned: Tensor, num_classes: int
) -> tuple[Tensor, Tensor]:
    """Of the asked items: by how much another class is likelier, and the likeliest others."""
    z = Rca(SHRINKAGE).fit(x[learned], own[learned]).transform(x)
    z = z - z[learned].mean(dim=0)
    counts = torch.bincount(own[learned], minlength=num_classes)
    sums = class_sums(z[learned], own[learned], num_classes)
    means = sums / counts.clamp(min=1)[:, None]  # [C, D]
    shift = (means.square().sum(dim=1) / 2).masked_fill(counts == 0, torch.inf)
    k = min(K, len(learned))
    sim, items = nearest(make_space(z[request], z[learned]), k)  # [n, k]
    weight, votes = sim.clamp(min=0), own[learned][items]
    weight = weight / weight.sum(dim=1, keepdim=True).clamp(min=1e-12)
    temperature = _temperature(z[request[:ROWS]] @ means.T - shift, own[request[:ROWS]])
    result = []
    for rows in torch.arange(len(request), device=x.device).split(ROWS):
        label = own[request[rows], None]
        p = torch.softmax((z[request[rows]] @ means.T - shift) / temperature, dim=1)  # [n, C]
        v = torch.zeros_like(p).scatter_add_(1, votes[rows], weight[rows].to(p.dtype))
        score = p.clamp(min=1e-30).log() + (v + FEWEST_VOTES).log()
        others = score.scatter(1, label, -torch.inf).topk(min(SUGGESTED, num_classes - 1), dim=1)
        result.append((others.values[:, 0] - score.gather(1, label)[:, 0], others.indices))
    gap, best = (torch.cat(each) for each in zip(*result, strict=True))
    return gap, best


def _temperature(logits: Tensor, own: Tensor) -> float:
    """Under which the labels are likeliest; of some items, whose class has a centre."""
    known = logits.gather(1, own[:, None])[:, 0].isfinite()
    logits, own = logits[known], own[known]

    def likelihood(temperature: float) -> float:
        return float((logits / temperature).log_softmax(1).gather(1, own[:, None]).sum())

    return max(TEMPERATURES, key=likelihood)
