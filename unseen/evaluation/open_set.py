"""Queries of classes that the gallery does not have: are they recognised as unknown, and can they
be grouped?

    found = open_set(embeddings, labels, unknown=some_labels, thresholds={"calibrated": 0.71})
    found.scores["unknown_auroc"], found.at["calibrated"].baus, found.groups.ari

known      a query for which the gallery has another item of its class. Classes in `unknown` leave
           the gallery; a split by time (`by_time`) has new classes of its own
answer     the nearest gallery item, itself excluded; believed where its similarity reaches a
           threshold
curve      share of unknown queries believed (FAR), of known ones answered rightly and believed
           (DIR), and both by class (BAKS, BAUS), at thresholds from the highest to the lowest
thresholds come from elsewhere: calibrated on validation classes, or `best_threshold` of an open set
           made of those. Nothing is chosen on the queries that are evaluated
grouping   the unknown queries by average linkage, cut where validation classes come out best
           (`best_cut`), against their classes: how many groups, and the adjusted Rand index
interval   95 %, known and unknown classes drawn with replacement
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.cluster.hierarchy import fcluster, linkage
from torch import Tensor

from unseen.core.contracts import IntArray, Progress
from unseen.core.statistics import Interval
from unseen.evaluation.metric_names import OPEN_SET, parse_rejection
from unseen.evaluation.retrieval_task import RetrievalTask
from unseen.evaluation.retrieve import retrieve
from unseen.metrics.ari import Ari
from unseen.metrics.baks import Baks
from unseen.metrics.base import OpenAnswers
from unseen.metrics.baus import Baus
from unseen.neighbors.space import to_sphere

RESAMPLES = 200
POINTS = 200  # of the curve that are kept
MOST_GROUPED = 5000  # unknown queries; the memory of linkage grows with their square
CUTS = 60  # tried on validation classes
UNKNOWN = 0.5  # share of the classes that leave the gallery


@dataclass(frozen=True)
class RejectionPoint:
    """What follows from one threshold."""

    threshold: float
    far: float  # share of unknown queries believed
    dir: float  # share of known queries answered rightly and believed
    baks: float
    baus: float

    @property
    def balance(self) -> float:
        """The geometric mean of BAKS and BAUS."""
        return math.sqrt(self.baks * self.baus)


@dataclass(frozen=True)
class Grouping:
    """Unknown queries in groups of two or more: how many there are, how many classes the queries
    have."""

    number: int
    classes: int
    items: int
    ari: float


@dataclass(frozen=True)
class OpenSet:
    """How queries of known and unknown classes are answered. how: who is unknown, in words."""

    how: str
    gallery: int
    known_queries: int
    known_classes: int
    unknown_queries: int
    unknown_classes: int
    scores: dict[str, Interval]
    curve: list[RejectionPoint]
    at: dict[str, RejectionPoint] = field(default_factory=dict)  # by the threshold's name
    groups: Grouping | None = None


def open_set(
    embeddings: Tensor,
    labels: Tensor,
    *,
    unknown: Tensor | None = None,
    query: Tensor | None = None,
    gallery: Tensor | None = None,
    groups: Tensor | None = None,
    thresholds: Mapping[str, float] | None = None,
    cut: float | None = None,
    how: str = "",
    normalize: bool = True,
    seed: int = 0,
    progress: Progress | None = None,
) -> OpenSet:
    """Of embeddings [n, D] with labels [n]. unknown: classes that leave the gallery; query,
    gallery: positions of who asks and who answers, all without them; groups: do not answer each
    other; thresholds, cut: chosen on other classes."""
    task = RetrievalTask(labels, query, without(labels, gallery, unknown), groups)
    answers = nearest_answers(embeddings, task, normalize, progress)
    if answers.known.all() or not answers.known.any():
        which = "unknown" if answers.known.all() else "known"
        raise ValueError(f"an open set needs known and unknown queries; there are no {which} ones")
    every = rejection_curve(answers)
    return OpenSet(
        how,
        gallery=len(embeddings) if task.gallery is None else len(task.gallery),
        known_queries=int(answers.known.sum()),
        known_classes=len(answers.labels[answers.known].unique()),
        unknown_queries=int((~answers.known).sum()),
        unknown_classes=len(answers.labels[~answers.known].unique()),
        scores=_scores(answers, seed),
        curve=[every[i] for i in np.unique(np.linspace(0, len(every) - 1, POINTS).astype(int))],
        at={name: point_at(answers, value) for name, value in (thresholds or {}).items()},
        groups=None if cut is None else _grouping(embeddings, task, answers, normalize, cut),
    )


def without(labels: Tensor, gallery: Tensor | None, unknown: Tensor | None) -> Tensor | None:
    """The gallery's positions but for some classes."""
    if unknown is None:
        return gallery
    everyone = torch.arange(len(labels)) if gallery is None else gallery
    return everyone[~torch.isin(labels[everyone], unknown)]


def draw_unknown(labels: Tensor, seed: int, fraction: float = UNKNOWN) -> Tensor:
    """Some of the classes, drawn: those that will not be in the gallery."""
    classes = labels.unique()
    number = max(1, min(len(classes) - 1, round(fraction * len(classes))))
    generator = torch.Generator().manual_seed(seed)
    return classes[torch.randperm(len(classes), generator=generator)[:number]].sort().values


def by_time(times: IntArray, fraction: float = 0.5) -> tuple[Tensor, Tensor]:
    """Positions of those that ask and those that answer: the later items and the earlier ones.
    Items of one moment stay together."""
    moments = np.sort(times)
    last = moments[max(0, round(fraction * len(times)) - 1)]
    earlier = times <= last
    if earlier.all():
        earlier = times < last
    if not earlier.any():
        raise ValueError("all items have the same time: nothing is earlier")
    return torch.from_numpy(np.flatnonzero(~earlier)), torch.from_numpy(np.flatnonzero(earlier))


def nearest_answers(
    embeddings: Tensor, task: RetrievalTask, normalize: bool, progress: Progress | None = None
) -> OpenAnswers:
    """The nearest gallery item of every query that has one at all."""
    result = retrieve(**task.arguments(embeddings), depth=1, normalize=normalize, progress=progress)
    answered = result.indices[:, 0] >= 0
    return OpenAnswers(
        result.similarities[answered, 0].double(),
        result.matches[answered, 0],
        result.num_relevant[answered] > 0,
        task.query_labels()[answered],
    )


def rejection_curve(answers: OpenAnswers) -> list[RejectionPoint]:
    """A point for each similarity that occurs, from the highest down."""
    order = answers.similarities.argsort(descending=True, stable=True)
    similarity = answers.similarities[order]
    last = torch.cat([similarity[1:] != similarity[:-1], similarity.new_ones(1).bool()])
    known, right = answers.known[order], answers.right[order]
    weight = _class_weights(answers)[order]
    num_known = known.sum()
    columns = {
        "far": (~known).double() / (~known).sum(),
        "dir": (known & right).double() / num_known,
        "baks": weight * (known & right),
        "baus": weight * ~known,
    }
    sums = {name: values.cumsum(0)[last].clamp(max=1) for name, values in columns.items()}
    sums["baus"] = 1 - sums["baus"]
    rows = zip(similarity[last].tolist(), *(v.tolist() for v in sums.values()), strict=True)
    return [RejectionPoint(*row) for row in rows]


def point_at(answers: OpenAnswers, threshold: float) -> RejectionPoint:
    """What a threshold that was chosen elsewhere does here."""
    at = replace(answers, threshold=threshold)
    believed = answers.similarities >= threshold
    return RejectionPoint(
        threshold,
        far=float(believed[~answers.known].double().mean()),
        dir=float((believed & answers.right)[answers.known].double().mean()),
        baks=Baks()(at),
        baus=Baus()(at),
    )


def best_threshold(answers: OpenAnswers) -> float:
    """Where the geometric mean of BAKS and BAUS is highest; for validation classes alone. Halfway
    to the next similarity below, so that the last one believed is believed clearly."""
    curve = rejection_curve(answers)
    best = max(range(len(curve)), key=lambda place: curve[place].balance)
    below = curve[min(best + 1, len(curve) - 1)].threshold
    return (curve[best].threshold + below) / 2


def _class_weights(answers: OpenAnswers) -> Tensor:  # [Q] float64
    """Of each query, so that classes count alike among the known and among the unknown."""
    weights = torch.zeros_like(answers.similarities)
    for side in (answers.known, ~answers.known):
        _, group = torch.unique(answers.labels[side], return_inverse=True)
        sizes = torch.bincount(group).double()
        weights[side] = 1 / (sizes[group] * len(sizes))
    return weights


def _scores(answers: OpenAnswers, seed: int) -> dict[str, Interval]:
    metrics = {name: parse_rejection(name) for name in OPEN_SET}
    generator = np.random.default_rng([seed, 0x09E2])
    members = [_by_class(answers.labels, side) for side in (answers.known, ~answers.known)]
    drawn = []
    for _ in range(RESAMPLES):
        parts = [m[c] for m in members for c in generator.integers(0, len(m), len(m))]
        rows = torch.from_numpy(np.concatenate(parts))
        some = OpenAnswers(*(getattr(answers, name)[rows] for name in _COLUMNS))
        drawn.append([metric(some) for metric in metrics.values()])
    low, high = np.quantile(np.array(drawn), [0.025, 0.975], axis=0)
    return {
        name: Interval(metric(answers), float(low[place]), float(high[place]))
        for place, (name, metric) in enumerate(metrics.items())
    }


_COLUMNS = ("similarities", "right", "known", "labels")


def _by_class(labels: Tensor, side: Tensor) -> list[NDArray[np.int64]]:
    """Positions of the queries of each class on one side, known or unknown."""
    rows = side.nonzero()[:, 0].numpy()
    own = labels[side].numpy()
    order = np.argsort(own, kind="stable")
    return np.split(rows[order], np.flatnonzero(np.diff(own[order])) + 1)


def _grouping(
    embeddings: Tensor, task: RetrievalTask, answers: OpenAnswers, normalize: bool, cut: float
) -> Grouping | None:
    """None where there are too few to group."""
    labels = task.query_labels()
    unknown = torch.isin(labels, answers.labels[~answers.known].unique()).nonzero()[:, 0]
    if len(unknown) > MOST_GROUPED:
        unknown = unknown[torch.linspace(0, len(unknown) - 1, MOST_GROUPED).long()]
    if len(unknown) < 2:
        return None
    rows = unknown if task.query is None else task.query[unknown]
    assigned = _cut_at(_tree(embeddings[rows], normalize), cut)
    result = int((torch.bincount(assigned) > 1).sum())
    own = labels[unknown]
    return Grouping(result, len(own.unique()), len(rows), Ari()(assigned, own))


def best_cut(embeddings: Tensor, labels: Tensor, normalize: bool) -> float:
    """The distance up to which groups of average linkage are joined so that they agree best with
    the classes; for validation classes alone."""
    tree = _tree(embeddings, normalize)
    heights = np.unique(np.quantile(tree[:, 2], np.linspace(0, 1, CUTS)))
    return float(max(heights, key=lambda height: Ari()(_cut_at(tree, height), labels)))


def _tree(embeddings: Tensor, normalize: bool) -> NDArray[np.float64]:
    rows = to_sphere(embeddings) if normalize else embeddings
    tree: NDArray[np.float64] = linkage(rows.double().numpy(), "average")
    return tree


def _cut_at(tree: NDArray[np.float64], height: float) -> Tensor:  # [n]
    return torch.from_numpy(fcluster(tree, height, "distance").astype(np.int64))
