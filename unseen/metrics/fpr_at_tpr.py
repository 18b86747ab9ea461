"""Share of unknown queries accepted at a rate of known ones."""

import math

import torch

from unseen.metrics.base import OpenAnswers, Rejection


class FprAtTpr(Rejection):
    """Share of unknown queries that are believed where most known ones are: FPR95.

    Formula:
        with t the highest threshold that at least a share `tpr` of the known queries reaches with
        their nearest similarity: the share of unknown queries that reach t too.

    Args:
        tpr: the share of known queries that must be accepted; 0.95. `fpr_at_tpr@0.9` sets it.

    Use:
        open sets (`unseen evaluate run RUN --open-set`); `fpr_at_tpr@0.95` sets tpr. Smaller is
        better. NaN without known or unknown queries.

    Example:
        >>> import torch
        >>> from unseen.metrics import FprAtTpr
        >>> from unseen.metrics.base import OpenAnswers
        >>> known, similarities = torch.tensor([True, False]), torch.tensor([0.9, 0.8])
        >>> FprAtTpr()(OpenAnswers(similarities, known, known, labels=torch.arange(2)))
        0.0
    """

    def __init__(self, tpr: float = 0.95) -> None:
        if not 0 < tpr <= 1:
            raise ValueError(f"tpr must lie in (0, 1], got {tpr}")
        self.tpr = tpr

    def __call__(self, answers: OpenAnswers) -> float:
        pairs = answers.as_pairs()
        if not pairs.right.any() or not pairs.wrong.any():
            return math.nan
        accepted = 1 - pairs.false_non_match_rate()
        enough = int(torch.nonzero(accepted >= self.tpr - 1e-12)[0])
        return float(pairs.false_match_rate()[enough])
