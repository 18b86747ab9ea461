"""A threshold and a probability, calibrated on classes the network never saw."""

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import special
from torch import Tensor

from unseen.core.contracts import Neighbors, Progress
from unseen.core.relevance import AnyLabels, Related
from unseen.core.statistics import MIN_CLASSES
from unseen.evaluation.pair_similarities import RAW_UNITS, pair_scores
from unseen.evaluation.relevance_filters import filter_of
from unseen.evaluation.retrieve import retrieve
from unseen.neighbors.space import Space, make_space, precise

RESULT = 10  # neighbours of each query the probability is fitted on
THINNED = (1.0, 0.5, 0.25, 0.125)
FOLDS = 5
GROUPS = 10
ROWS = 1024


@dataclass(frozen=True)
class Bin:
    """Neighbours of about equal predicted probability."""

    predicted: float  # mean
    true: float  # share that were right
    count: int


@dataclass(frozen=True)
class Calibration:
    """A threshold with its error rates and bound, and a probability with its reliability.

    threshold    the lowest similarity t that at most a share `fmr` of the wrong pairs reaches:
                 pairs of images of two different validation classes.
    bound        with 95 % confidence (`confidence`), no larger a share of the wrong pairs of *new*
                 classes, drawn as the validation classes were, reaches t; see `upper_bound`. It
                 bounds pairs, not searches: `images_with_false_match` says how many of all images
                 find some wrong image at t or above among `gallery` images, and grows with an
                 index.
    probability  that an image of similarity s, among the ten nearest of a gallery of N images, has
                 the query's class, given that the gallery holds about as many of that class as the
                 validation classes have. The more images, the more wrong ones are similar by
                 chance, so N takes part: the logit is a + b s + c log N, by maximum likelihood on
                 the validation classes as a gallery, and on the same gallery thinned to a half, a
                 quarter and an eighth of the wrong images.
    reliability  predicted and true probability in ten equal groups, whole gallery; predicted by
                 fits that did not see the class of the query (five folds of classes).
    """

    fmr: float  # wanted
    threshold: float
    measured_fmr: float
    bound: float
    confidence: float
    fnmr: float  # share of right pairs below the threshold
    images_with_false_match: float  # share of images that some wrong image matches
    gallery: int
    classes: int
    wrong_pairs: int
    weights: list[float]  # of 1, s and log N
    error: float  # mean distance between predicted and true probability
    reliability: list[Bin]

    def probability(self, similarities: NDArray[Any], gallery: int) -> NDArray[np.float64]:
        """That images found with these similarities among so many have the query's class."""
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
    images_with_false_match: float
    wrong_pairs: int


def calibrate(
    embeddings: Tensor,
    labels: AnyLabels,
    *,
    fmr: float = 1e-3,
    confidence: float = 0.95,
    normalize: bool = True,
    seed: int = 0,
    progress: Progress | None = None,
) -> Calibration:
    """A threshold with a false match rate, its upper bound, and the probability of a match at each
    similarity, from validation classes.

    Where the same is more than a class, right and wrong pairs are those of the relevance, and the
    classes say which images belong together when the bound is drawn and folds are dealt.

    Args:
        embeddings: [N, D] of validation images.
        labels: [N] their classes, or a relevance.
        fmr: The share of wrong pairs that may be called a match; 0.001.
        confidence: Of the upper bound of that share; 0.95.
        normalize: Compare by the cosine; False: by the Euclidean distance.
        seed: Deals the classes to folds.
        progress: Called with what is done and the whole.

    Example:
        >>> import torch
        >>> from unseen import calibrate
        >>> classes = torch.arange(20).repeat_interleave(5)
        >>> embeddings = torch.eye(20)[classes] + 0.1 * torch.randn(100, 20)
        >>> calibrate(embeddings, classes, fmr=0.01).threshold > 0.2
        True
    """
    if not 0 < fmr < 1:
        raise ValueError(f"fmr must lie between 0 and 1, got {fmr}")
    if not 0.5 < confidence < 1:
        raise ValueError(f"confidence must lie between 0.5 and 1, got {confidence}")
    num_classes, gallery = len(_classes(labels).unique()), len(labels)
    if num_classes < MIN_CLASSES or num_classes == gallery:
        raise ValueError(
            f"calibration needs at least {MIN_CLASSES} validation classes, and one with two "
            f"images, got {gallery} images of {num_classes} classes"
        )
    with precise(embeddings.device):
        space = make_space(embeddings, normalize=normalize)
        threshold = _threshold(space, labels, fmr, progress)
        rates = rates_at(space, labels, threshold, confidence)
    weights, bins = _probability(embeddings, labels, normalize, seed)
    return Calibration(
        fmr=fmr,
        threshold=threshold,
        measured_fmr=rates.fmr,
        bound=rates.bound,
        confidence=confidence,
        fnmr=rates.fnmr,
        images_with_false_match=rates.images_with_false_match,
        gallery=gallery,
        classes=num_classes,
        wrong_pairs=rates.wrong_pairs,
        weights=weights,
        error=sum(b.count * abs(b.predicted - b.true) for b in bins) / sum(b.count for b in bins),
        reliability=bins,
    )


def rates_at(space: Space, labels: AnyLabels, threshold: float, confidence: float = 0.95) -> Rates:
    """Error rates of a self-retrieval space at a threshold, each pair of two items once."""
    _, group = torch.unique(_classes(labels), return_inverse=True)
    accepted = torch.zeros(int(group.max()) + 1, dtype=torch.float64)  # [C]
    pairs, right, right_pairs, images_with_false_match = torch.zeros_like(accepted), 0.0, 0.0, 0
    for rows in torch.arange(len(labels)).split(ROWS):
        reached = space.left[rows] @ space.right.T >= threshold  # [R, N]
        same, different = _relation(labels, group, rows)
        right += float((reached & same).sum())
        right_pairs += float(same.sum())
        wrong = (reached & different).sum(dim=1)  # [R]
        accepted.index_add_(0, group[rows], wrong.double())
        pairs.index_add_(0, group[rows], different.sum(dim=1).double())
        images_with_false_match += int((wrong > 0).sum())
    return Rates(
        fmr=float(accepted.sum() / pairs.sum()),
        bound=upper_bound(accepted, pairs, torch.bincount(group), confidence),
        fnmr=1 - right / max(1.0, right_pairs),
        images_with_false_match=images_with_false_match / len(labels),
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


def upper_bound(accepted: Tensor, pairs: Tensor, sizes: Tensor, confidence: float) -> float:
    """Of the share of wrong pairs that are accepted, over all classes of the population.

    Classes are the sample. Pairs of images that share a class are accepted together, and two
    confusable classes bring many at once, so neither images nor their pairs are independent.

    Variance  jackknife over classes, which is never too small on average (Efron and Stein, 1981),
              times (t / z)^2 of C - 1 degrees of freedom: it is itself uncertain
    Unseen    one more unit of pairs counts as accepted (Fay and Feuer, 1997, use the largest
              weight of any count): the largest pair of classes, and the class that has most
              accepted pairs once more, unit = hypot(sizes[0] sizes[1], max(accepted))
    Bound     quantile of the beta distribution that has this mean and variance, and never below
              that of no accepted pair: 1 - (1 - confidence)^(1 / M) of M pairs of equal classes

    It presumes that classes differ by degrees. A class that matches everything, and is so rare
    that no validation class is like it, cannot be excluded below 1 - (1 - confidence)^(2 / C).

    Args:
        accepted, pairs: of each class [C]; a pair counts for both of its classes.
        sizes: images of each class [C].
        confidence: that the bound holds, above 0.5.

    Example:
        >>> pairs, sizes = torch.full((8,), 448.0), torch.full((8,), 8)
        >>> round(upper_bound(torch.zeros(8), pairs, sizes, 0.95), 3)
        0.101
    """
    total, number = float(accepted.sum()) / 2, float(pairs.sum()) / 2
    if total == number:
        return 1.0
    without = (total - accepted) / (number - pairs).clamp(min=1)  # [C], each class left out
    freedom = len(pairs) - 1
    student = special.stdtrit(freedom, confidence) / special.ndtri(confidence)
    largest = float(sizes.double().topk(2).values.prod())
    unit = math.hypot(largest, float(accepted.max()))
    mean = (total + unit) / (number + unit)
    variance = student**2 * freedom * float(without.var(correction=0))
    variance += (1 - mean) * (unit / (number + unit)) ** 2
    size = mean * (1 - mean) / variance
    quantile = float(special.betaincinv(mean * size, (1 - mean) * size, confidence))
    return max(quantile, 1 - (1 - confidence) ** (largest / number))


def _threshold(space: Space, labels: AnyLabels, fmr: float, progress: Progress | None) -> float:
    """Halfway between the last similarity that is accepted and the first that is not."""
    scores = pair_scores(space, filter_of(space, labels), progress)
    accepted = int(torch.nonzero(scores.false_match_rate() <= fmr)[-1])
    step = space.grid if space.center is None else RAW_UNITS * space.grid
    bounds = torch.cat(
        [scores.similarities[:1] + step, scores.similarities, scores.similarities[-1:] - step]
    )
    return float(bounds[accepted : accepted + 2].mean())


@dataclass(frozen=True)
class _Result:
    """Neighbours of queries whose class is in the gallery, one row each."""

    terms: Tensor  # [n, 3]: 1, s, log N
    right: Tensor  # [n] bool
    label: Tensor  # [n] of the query


def _probability(
    embeddings: Tensor, labels: AnyLabels, normalize: bool, seed: int
) -> tuple[list[float], list[Bin]]:
    """Weights fitted on everything, and how reliable fits are on classes left out."""
    generator = torch.Generator().manual_seed(seed)
    deepest = min(len(labels) - 1, round(2 * RESULT / min(THINNED)))
    nearest = retrieve(embeddings, labels, deepest, normalize=normalize)
    _, group = torch.unique(_classes(labels), return_inverse=True)
    wrong = _num_wrong(labels, group)
    galleries = [_thinned(nearest, group, wrong, fraction, generator) for fraction in THINNED]
    every = _Result(
        torch.cat([result.terms for result in galleries]),
        torch.cat([result.right for result in galleries]),
        torch.cat([result.label for result in galleries]),
    )
    fold = torch.randperm(int(group.max()) + 1, generator=generator) % FOLDS
    whole = galleries[0]
    predicted = torch.zeros(len(whole.right), dtype=torch.float64)
    for number in range(FOLDS):
        seen, left_out = fold[every.label] != number, fold[whole.label] == number
        if left_out.any():
            predicted[left_out] = torch.sigmoid(
                whole.terms[left_out] @ _logistic(every.terms[seen], every.right[seen])
            )
    weights: list[float] = _logistic(every.terms, every.right).tolist()
    return weights, _groups(predicted, whole.right.double())


def _num_wrong(labels: AnyLabels, group: Tensor) -> Tensor:  # [N]
    """How many of the others are different from each item."""
    if not isinstance(labels, Related):
        return len(labels) - torch.bincount(group)[group]
    parts = torch.arange(len(labels)).split(ROWS)
    return torch.cat([_relation(labels, group, rows)[1].sum(dim=1) for rows in parts])


def _thinned(
    nearest: Neighbors, labels: Tensor, wrong: Tensor, fraction: float, generator: torch.Generator
) -> _Result:
    """The nearest of each query when only a share of the wrong images were there."""
    drawn = torch.rand(nearest.matches.shape, generator=generator) < fraction
    near = (nearest.matches | drawn) & (nearest.indices >= 0)
    near &= (near.cumsum(dim=1) <= RESULT) & (nearest.num_relevant > 0)[:, None]
    size = (nearest.num_relevant + fraction * wrong).clamp(min=2).double().log()
    sim, log_size = nearest.similarities[near].double(), size[:, None].expand_as(near)[near]
    terms = torch.stack([torch.ones_like(sim), sim, log_size], dim=1)
    return _Result(terms, nearest.matches[near], labels[:, None].expand_as(near)[near])


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
        predicted = torch.sigmoid(x @ weights)
        curvature = (x * (predicted * (1 - predicted))[:, None]).T @ x + ridge
        step = torch.linalg.solve(curvature, x.T @ (target - predicted) - ridge @ weights)
        weights += step * min(1.0, 4.0 / float(step.norm().clamp(min=1e-12)))
        if float(step.norm()) < 1e-9:
            break
    return weights / scale


def _groups(predicted: Tensor, right: Tensor) -> list[Bin]:
    order = predicted.argsort(stable=True)
    parts = zip(
        predicted[order].tensor_split(GROUPS), right[order].tensor_split(GROUPS), strict=True
    )
    return [Bin(float(s.mean()), float(r.mean()), len(s)) for s, r in parts if len(s)]
