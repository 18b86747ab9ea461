"""False non-match rate at a false match rate."""

import math

import torch

from unseen.metrics.base import PairScores, Verification


class FnmrAtFmr(Verification):
    """False non-match rate at a given false match rate: what a promise to strangers costs friends.

    Formula:
        FNMR(t) at the lowest threshold t whose FMR(t) does not exceed `fmr`.
        FMR(t): share of wrong pairs with similarity >= t; FNMR(t): share of right pairs below t.

    Ties:
        pairs of equal similarity are accepted together, so a collapsed embedding scores 1.

    Args:
        fmr: the share of wrong pairs that may be accepted; 0.001. `fnmr_at_fmr@0.01` sets it.

    Use:
        verification; `fnmr_at_fmr@0.001` sets fmr. Smaller is better. NaN without right or wrong
        pairs.

    Example:
        >>> import unseen
        >>> embeddings = [[1.0, 0.0], [0.8, 0.6], [0.0, 1.0], [0.6, 0.8]]
        >>> scores = unseen.evaluate(embeddings, [0, 0, 1, 1], metrics=["fnmr_at_fmr"])
        >>> round(scores.values["fnmr_at_fmr"].value, 3)
        1.0
    """

    worst = 1.0

    def __init__(self, fmr: float = 0.001) -> None:
        if not 0 <= fmr <= 1:
            raise ValueError(f"fmr must lie in [0, 1], got {fmr}")
        self.fmr = fmr

    def __call__(self, scores: PairScores) -> float:
        if not scores.right.any() or not scores.wrong.any():
            return math.nan
        allowed = torch.nonzero(scores.false_match_rate() <= self.fmr)[-1]
        return float(scores.false_non_match_rate()[allowed])
