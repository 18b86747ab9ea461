"""Equal error rate."""

import math

import torch

from unseen.metrics.base import PairScores, Verification


class Eer(Verification):
    """Equal error rate: the error where false matches and false non-matches are equally frequent.

    Formula:
        the rate e with FMR(t) = FNMR(t) = e, on the line between the two thresholds around it.
        FMR(t): share of wrong pairs with similarity >= t; FNMR(t): share of right pairs below t.

    Ties:
        pairs of equal similarity are accepted together; a collapsed embedding scores 0.5, chance.

    Use:
        verification: same or different. Smaller is better. NaN without right or wrong pairs.

    Example:
        >>> import unseen
        >>> embeddings = [[1.0, 0.0], [0.8, 0.6], [0.0, 1.0], [0.6, 0.8]]
        >>> scores = unseen.evaluate(embeddings, [0, 0, 1, 1], metrics=["eer"])
        >>> round(scores.values["eer"].value, 3)
        0.25
    """

    worst = 1.0

    def __call__(self, scores: PairScores) -> float:
        if not scores.right.any() or not scores.wrong.any():
            return math.nan
        fmr, fnmr = scores.false_match_rate(), scores.false_non_match_rate()
        after = int(torch.nonzero(fmr >= fnmr)[0])  # rises from 0 to 1 while fnmr falls from 1 to 0
        before = after - 1
        gap = float(fnmr[before] - fmr[before])
        fraction = gap / (gap + float(fmr[after] - fnmr[after]))
        return float(fmr[before] + fraction * (fmr[after] - fmr[before]))
