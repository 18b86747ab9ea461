"""Detection and identification rate at a false alarm rate."""

import math

import torch

from unseen.metrics.base import OpenAnswers, Rejection


class DirAtFar(Rejection):
    """Detection and identification rate at a false alarm rate: known found, unknown refused.

    Formula:
        DIR(t): share of the known queries whose nearest answer has their class and a similarity
        of t or more. FAR(t): share of the unknown queries with a nearest similarity of t or more.
        DIR at the lowest t whose FAR does not exceed `far`.

    Paper:
        P. J. Phillips, P. Grother, R. Micheals, Evaluation Methods in Face Recognition, Handbook
        of Face Recognition, 2011 (open-set identification, rank 1)

    Args:
        far: the share of unknown queries that may be believed; 0.01. `dir_at_far@0.1` sets it.

    Use:
        open sets (`unseen evaluate run RUN --open-set`); `dir_at_far@0.1` sets far. NaN without
        known or unknown queries.

    Example:
        >>> import torch
        >>> from unseen.metrics import DirAtFar
        >>> from unseen.metrics.base import OpenAnswers
        >>> known, similarities = torch.tensor([True, False]), torch.tensor([0.9, 0.8])
        >>> DirAtFar()(OpenAnswers(similarities, known, known, labels=torch.arange(2)))
        1.0
    """

    def __init__(self, far: float = 0.01) -> None:
        if not 0 <= far <= 1:
            raise ValueError(f"far must lie in [0, 1], got {far}")
        self.far = far

    def __call__(self, answers: OpenAnswers) -> float:
        pairs = answers.as_pairs()
        if not pairs.right.any() or not pairs.wrong.any():
            return math.nan
        allowed = int(torch.nonzero(pairs.false_match_rate() <= self.far)[-1])
        if not allowed:  # not even the most similar may be believed
            return 0.0
        threshold = pairs.similarities[allowed - 1]
        result = answers.right & (answers.similarities >= threshold)
        return float(result[answers.known].double().mean())
