"""What a similarity means on classes the network never saw: a threshold and a probability.

threshold    the lowest similarity t that at most a share `fmr` of the wrong pairs reaches: pairs
             of pictures of two different validation classes.
bound        with 95 % confidence (`confidence`), no larger a share of the wrong pairs of *new*
             classes, drawn as the validation classes were, reaches t. Classes are the sample, not
             pairs: two confusable classes bring hundreds of wrong pairs at once. The jackknife
             over classes gives the variance, variance gives the number of independent pairs that
             would be as uncertain, and Clopper-Pearson the bound for that number (E. L. Korn, B.
             I. Graubard, Survey Methodology 24, 1998). No wrong pair at all: each class is
             counted in one of C/2 pairs of classes. It bounds pairs, not searches: `strangers`
             says how many of all pictures find some wrong picture at t or above among `gallery`
             pictures, and grows with an index.
probability  that a picture found with similarity s, among the ten nearest of a gallery of N
             pictures, has the query's class, given that the gallery holds about as many of that
             class as the validation classes have. The more pictures, the more wrong ones are
             similar by chance, so N takes part: the logit is a + b s + c log N, by maximum
             likelihood on the validation classes as a gallery, and on the same gallery thinned
             to a half, a quarter and an eighth of the wrong pictures.
reliability  said and true probability in ten equal groups, whole gallery; said by fits that did
             not see the class of the query (five folds of classes).
"""

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor

from unseen.contracts import Neighbours, Progress
from unseen.evaluation.judges import judge_of
from unseen.evaluation.pairs import RAW_UNITS, pair_scores
from unseen.evaluation.retrieve import retrieve
from unseen.neighbours.space import Space, make_space, precise
from unseen.relevance import AnyLabels, Related
from unseen.statistics import MIN_CLASSES

FOUND = 10  # neighbours of each query the probability is fitted on
THINNED = (1.0, 0.5, 0.25, 0.125)
FOLDS = 5
GROUPS = 10
ROWS = 1024


@dataclass(frozen=True)
class Bin:
    """Neighbours of about equal said probability."""

    said: float  # mean
    true: float  # share that were right
    count: int


@dataclass(frozen=True)
class Calibration:
    """A threshold with its error rates and bound, and a probability with its reliability."""

    fmr: float  # wanted
    threshold: float
    measured_fmr: float
    bound: float
    confidence: float
    fnmr: float  # share of right pairs below the threshold
    strangers: float  # share of pictures that some wrong picture matches
    gallery: int
    classes: int
    wrong_pairs: int
    weights: list[float]  # of 1, s and log N
    error: float  # mean distance between said and true probability
    reliability: list[Bin]

    def probability(self, similarities: NDArray[Any], gallery: int) -> NDArray[np.float64]:
        """That pictures found with these similarities among so many have the query's class."""
        constant, slope, size = self.weights
        logit = constant + slope * np.asarray(similarities, dtype=np.float64)
        logit = logit + size * math.log(max(2, gallery))
        return np.asarray(0.5 * (1 + np.tanh(logit / 2)))  # no overflow at either end

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Calibration":
        bins = [Bin(**group) for group in values["reliability"]]
        return cls(**(values | {"reliability": bins}))


@dataclass(frozen=True)
class Rates:
    """How often pairs reach a threshold."""

    fmr: float
    bound: float
    fnmr: float
    strangers: float
    wrong_pairs: int


def calibrate(
    embeddings: Tensor,
    labels: AnyLabels,
    *,
    fmr: float = 1e-3,
    confidence: float = 0.95,
    normalise: bool = True,
    seed: int = 0,
    progress: Progress | None = None,
) -> Calibration:
    """From embeddings [N, D] of validation classes [N]; `seed` deals the classes to the folds.
    Where the same is more than a class, right and wrong pairs are those of the relevance, and the
    classes say which pictures belong together when the bound is drawn and folds are dealt."""
    if not 0 < fmr < 1:
        raise ValueError(f"fmr must lie between 0 and 1, got {fmr}")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie between 0 and 1, got {confidence}")
    num_classes, gallery = len(_classes(labels).unique()), len(labels)
    if num_classes < MIN_CLASSES or num_classes == gallery:
        raise ValueError(
            f"calibration needs at least {MIN_CLASSES} validation classes, and one with two "
            f"pictures, got {gallery} pictures of {num_classes} classes"
        )
    with precise(embeddings.device):
        space = make_space(embeddings, normalise=normalise)
        threshold = _threshold(space, labels, fmr, progress)
        rates = rates_at(space, labels, threshold, confidence)
    weights, bins = _probability(embeddings, labels, normalise, seed)
    return Calibration(
        fmr=fmr,
        threshold=threshold,
        measured_fmr=rates.fmr,
        bound=rates.bound,
        confidence=confidence,
        fnmr=rates.fnmr,
        strangers=rates.strangers,
        gallery=gallery,
        classes=num_classes,
        wrong_pairs=rates.wrong_pairs,
        weights=weights,
        error=sum(b.count * abs(b.said - b.true) for b in bins) / sum(b.count for b in bins),
        reliability=bins,
    )


def rates_at(space: Space, labels: AnyLabels, threshold: float, confidence: float = 0.95) -> Rates:
    """Error rates of a self-retrieval space at a threshold, each pair of two items once."""
    _, group = torch.unique(_classes(labels), return_inverse=True)
    accepted = torch.zeros(int(group.max()) + 1, dtype=torch.float64)  # [C]
    pairs, right, right_pairs, strangers = torch.zeros_like(accepted), 0.0, 0.0, 0
    for rows in torch.arange(len(labels)).split(ROWS):
        reached = space.left[rows] @ space.right.T >= threshold  # [R, N]
        same, different = _relation(labels, group, rows)
        right += float((reached & same).sum())
        right_pairs += float(same.sum())
        wrong = (reached & different).sum(dim=1)  # [R]
        accepted.index_add_(0, group[rows], wrong.double())
        pairs.index_add_(0, group[rows], different.sum(dim=1).double())
        strangers += int((wrong > 0).sum())
    return Rates(
        fmr=float(accepted.sum() / pairs.sum()),
        bound=upper_bound(accepted, pairs, confidence),
        fnmr=1 - right / max(1.0, right_pairs),
        strangers=strangers / len(labels),
        wrong_pairs=int(pairs.sum()) // 2,
    )


def _classes(labels: AnyLabels) -> Tensor:  # [N]
    return labels.classes if isinstance(labels, Related) else labels


def _relation(
    labels: AnyLabels, group: Tensor, rows: Tensor
) -> tuple[Tensor, Tensor]:  # two [R, N]
    """Who is the same as some items, and who is different; nobody is compared with himself."""
    if isinstance(labels, Related):
        same, different, _ = labels[rows].to(labels)
    else:
        same = group[rows, None] == group
        different = ~same
    same[torch.arange(len(rows)), rows] = different[torch.arange(len(rows)), rows] = False
    return same, different


def upper_bound(accepted: Tensor, pairs: Tensor, confidence: float) -> float:
    """Of the share of wrong pairs accepted, from counts per class [C]; a pair counts for both."""
    num_classes = len(pairs)
    share = float(accepted.sum() / pairs.sum())
    if share == 0:
        return float(1 - (1 - confidence) ** (1 / (num_classes // 2)))
    without = (accepted.sum() / 2 - accepted) / (pairs.sum() / 2 - pairs)  # [C], each left out
    variance = float((num_classes - 1) * without.var(correction=0))
    most = float(pairs.sum()) / 2
    # a variance from few classes is itself uncertain: Student's t instead of the normal
    student = stats.t.ppf(confidence, num_classes - 1) / stats.norm.ppf(confidence)
    effective = min(most, share * (1 - share) / max(variance, 1e-300) / student**2)
    return float(stats.beta.ppf(confidence, share * effective + 1, (1 - share) * effective))


def _threshold(space: Space, labels: AnyLabels, fmr: float, progress: Progress | None) -> float:
    """Halfway between the last similarity that is accepted and the first that is not."""
    scores = pair_scores(space, judge_of(space, labels), progress)
    accepted = int(torch.nonzero(scores.false_match_rate() <= fmr)[-1])
    step = space.grid if space.centre is None else RAW_UNITS * space.grid
    bounds = torch.cat(
        [scores.similarities[:1] + step, scores.similarities, scores.similarities[-1:] - step]
    )
    return float(bounds[accepted : accepted + 2].mean())


@dataclass(frozen=True)
class _Found:
    """Neighbours of queries whose class is in the gallery, one row each."""

    terms: Tensor  # [n, 3]: 1, s, log N
    right: Tensor  # [n] bool
    label: Tensor  # [n] of the query


def _probability(
    embeddings: Tensor, labels: AnyLabels, normalise: bool, seed: int
) -> tuple[list[float], list[Bin]]:
    """Weights fitted on everything, and how reliable fits are on classes left out."""
    generator = torch.Generator().manual_seed(seed)
    deepest = min(len(labels) - 1, round(2 * FOUND / min(THINNED)))
    nearest = retrieve(embeddings, labels, deepest, normalise=normalise)
    _, group = torch.unique(_classes(labels), return_inverse=True)
    wrong = _num_wrong(labels, group)
    galleries = [_thinned(nearest, group, wrong, share, generator) for share in THINNED]
    every = _Found(
        torch.cat([found.terms for found in galleries]),
        torch.cat([found.right for found in galleries]),
        torch.cat([found.label for found in galleries]),
    )
    fold = torch.randperm(int(group.max()) + 1, generator=generator) % FOLDS
    whole = galleries[0]
    said = torch.zeros(len(whole.right), dtype=torch.float64)
    for number in range(FOLDS):
        seen, held = fold[every.label] != number, fold[whole.label] == number
        if held.any():
            said[held] = torch.sigmoid(
                whole.terms[held] @ _logistic(every.terms[seen], every.right[seen])
            )
    weights: list[float] = _logistic(every.terms, every.right).tolist()
    return weights, _groups(said, whole.right.double())


def _num_wrong(labels: AnyLabels, group: Tensor) -> Tensor:  # [N]
    """How many of the others are different from each item."""
    if not isinstance(labels, Related):
        return len(labels) - torch.bincount(group)[group]
    parts = torch.arange(len(labels)).split(ROWS)
    return torch.cat([_relation(labels, group, rows)[1].sum(dim=1) for rows in parts])


def _thinned(
    nearest: Neighbours, labels: Tensor, wrong: Tensor, share: float, generator: torch.Generator
) -> _Found:
    """The nearest of each query when only a share of the wrong pictures were there."""
    drawn = torch.rand(nearest.matches.shape, generator=generator) < share
    kept = (nearest.matches | drawn) & (nearest.indices >= 0)
    kept &= (kept.cumsum(dim=1) <= FOUND) & (nearest.num_relevant > 0)[:, None]
    size = (nearest.num_relevant + share * wrong).clamp(min=2).double().log()
    sim, log_size = nearest.similarities[kept].double(), size[:, None].expand_as(kept)[kept]
    terms = torch.stack([torch.ones_like(sim), sim, log_size], dim=1)
    return _Found(terms, nearest.matches[kept], labels[:, None].expand_as(kept)[kept])


def _logistic(terms: Tensor, right: Tensor) -> Tensor:  # [3]
    """Newton's method, with Platt's smoothed targets and a breath of ridge: similarities that say
    nothing get no weight."""
    num_right, num_wrong = int(right.sum()), int((~right).sum())
    target = torch.where(right, (num_right + 1) / (num_right + 2), 1 / (num_wrong + 2)).double()
    scale = terms.square().mean(dim=0).sqrt().clamp(min=1e-12)  # [3]
    x = terms / scale
    ridge = 1e-8 * len(x) * torch.eye(x.shape[1], dtype=x.dtype)
    weights = x.new_zeros(x.shape[1])
    for _ in range(100):
        said = torch.sigmoid(x @ weights)
        curvature = (x * (said * (1 - said))[:, None]).T @ x + ridge
        step = torch.linalg.solve(curvature, x.T @ (target - said) - ridge @ weights)
        weights += step * min(1.0, 4.0 / float(step.norm().clamp(min=1e-12)))
        if float(step.norm()) < 1e-9:
            break
    return weights / scale


def _groups(said: Tensor, right: Tensor) -> list[Bin]:
    order = said.argsort(stable=True)
    parts = zip(said[order].tensor_split(GROUPS), right[order].tensor_split(GROUPS), strict=True)
    return [Bin(float(s.mean()), float(r.mean()), len(s)) for s, r in parts if len(s)]
