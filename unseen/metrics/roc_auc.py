"""Area under the ROC curve."""

import math

import torch

from unseen.metrics.base import PairScores, Verification


class RocAuc(Verification):
    """Area under the ROC curve: how often a right pair is more similar than a wrong one.

    Formula:
        P(similarity of a random right pair > that of a random wrong pair) + P(equal) / 2: the area
        under 1 - FNMR(t) drawn over FMR(t), straight lines between thresholds.

    Ties:
        count half, as is the rule for this area; a collapsed embedding scores 0.5, chance.

    Use:
        verification, without choosing a threshold. NaN without right or wrong pairs.

    Example:
        >>> import unseen
        >>> embeddings = [[1.0, 0.0], [0.8, 0.6], [0.0, 1.0], [0.6, 0.8]]
        >>> scores = unseen.evaluate(embeddings, [0, 0, 1, 1], metrics=["roc_auc"])
        >>> round(scores.values["roc_auc"].value, 3)
        0.75
    """

    def __call__(self, scores: PairScores) -> float:
        if not scores.right.any() or not scores.wrong.any():
            return math.nan
        return float(torch.trapezoid(1 - scores.false_non_match_rate(), scores.false_match_rate()))
