"""From neighbours to answers: paths, similarity, the probability of the same class, a decision.

    answer = ask(index, model.embed(["query.jpg"]), k=10, calibration=read_calibration(model))[0]
    answer.decision        # a label, "unlabelled", "several labels", or "unknown": no image matches

An image is matched when its similarity reaches the calibrated threshold; the decision is the
label of the matched images among the k nearest, and the ten nearest where k is smaller. Where these
have several labels, none of them is the answer: `answer.labels` names them.

Threshold and probability answer two questions (how often are wrong pairs so similar; how often is
what is found so near of the same class), so they may differ: the conclusion is one word for both,
`reason` the sentence behind it.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from unseen.evaluation.calibration import Calibration
from unseen.search.index import Ids, Index, Neighbors

UNKNOWN = "unknown"
UNLABELLED = "unlabelled"
SEVERAL = "several labels"
DECIDING = 10  # nearest images, at least, whose labels decide
MATCH, MAYBE, NO_MATCH, COMPATIBLE = "match", "maybe", "no match", "compatible"
NO_CONCLUSION = "Its vector comes from an older model: no conclusion until it is embedded again."


@dataclass(frozen=True)
class Hit:
    """An image that was found. Without a calibration there is no probability and no conclusion, nor
    for one that comes from an older model: the calibration is not of such."""

    id: int
    path: str
    label: str | None
    similarity: float
    probability: float | None = None
    matched: bool | None = None
    compatible: bool = False

    @property
    def conclusion(self) -> str | None:
        """One word for threshold and probability together: "maybe" where they disagree;
        "compatible" where neither holds."""
        if self.compatible:
            return COMPATIBLE
        if self.matched is None or self.probability is None:
            return None
        if self.matched != (self.probability >= 0.5):
            return MAYBE
        return MATCH if self.matched else NO_MATCH


@dataclass(frozen=True)
class Answer:
    """What a query found, nearest first. compared_twice: share of the images (of the pairs, where
    several ask together), first in integers, then in floats. labels: of the images that match."""

    hits: list[Hit]
    compared_twice: float = 0.0
    labels: tuple[str, ...] = ()

    @classmethod
    def of(cls, hits: Sequence[Hit], k: int, compared_twice: float = 0.0) -> "Answer":
        """The k nearest of some images; all of these decide."""
        names = dict.fromkeys(hit.label for hit in hits if hit.matched and hit.label)
        return cls(list(hits[:k]), compared_twice, tuple(filter(None, names)))

    @property
    def decision(self) -> str | None:
        """The label of the images that match; None without a calibration, or where the nearest
        image is compatible."""
        if not self.hits:
            return UNKNOWN
        first = self.hits[0]
        if first.matched is None:
            return None
        if len(self.labels) > 1:
            return SEVERAL
        matched = [hit.label for hit in self.hits if hit.matched] or list(self.labels)
        return (matched[0] or UNLABELLED) if matched else UNKNOWN

    def to_dict(self) -> dict[str, Any]:
        return {
            "decision": self.decision,
            "labels": self.labels,
            "compared_twice": self.compared_twice,
            "hits": [asdict(hit) for hit in self.hits],
        }


def reason(hit: Hit, calibration: Calibration) -> str:
    """Why an image that was found has its conclusion, in a sentence."""
    if hit.compatible:
        return NO_CONCLUSION
    assert hit.probability is not None
    reaches = "reaches" if hit.matched else "is below"
    return (
        f"Similarity {hit.similarity:.3f} {reaches} the threshold {calibration.threshold:.3f}, "
        f"which at most {100 * calibration.bound:.3g} % of pairs of different classes reach; of "
        f"images found so near, about {100 * hit.probability:.0f} % are of the same class."
    )


def ask(
    index: Index,
    vectors: NDArray[np.float32] | Tensor,
    k: int = 10,
    calibration: Calibration | None = None,
    filter: Collection[int] | Ids | None = None,
    where: str | None = None,
    search: Callable[..., Neighbors] | None = None,
) -> list[Answer]:
    """One answer per vector [Q, D]; filter, where: as `Index.search` takes them. search: in its
    place (`rerank.reranker`)."""
    depth = k if calibration is None else max(k, DECIDING)
    result = (search or index.search)(vectors, depth, filter, where)
    probabilities: Any = None
    if calibration is not None:
        probabilities = calibration.probability(result.similarities, len(index))
    return [
        Answer.of(
            [
                _hit(
                    index,
                    int(id),
                    float(result.similarities[query, rank]),
                    None if probabilities is None else float(probabilities[query, rank]),
                    calibration,
                )
                for rank, id in enumerate(ids)
                if id >= 0
            ],
            k,
            result.compared_twice,
        )
        for query, ids in enumerate(result.ids)
    ]


def _hit(
    index: Index,
    id: int,
    similarity: float,
    probability: float | None,
    calibration: Calibration | None,
) -> Hit:
    image = index.image(id)
    if calibration is None or image.compatible:
        return Hit(id, image.path, image.label, similarity, compatible=image.compatible)
    matched = similarity >= calibration.threshold
    return Hit(id, image.path, image.label, similarity, probability, matched)
