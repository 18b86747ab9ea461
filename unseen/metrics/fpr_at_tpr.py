"""Share of unknown queries that are believed where most known ones are: FPR95.

Formula  with t the highest threshold that at least a share `tpr` of the known queries reaches with
         their nearest similarity: the share of unknown queries that reach t too.
Use      open sets (`unseen evaluate RUN --open-set`); `fpr_at_tpr@0.95` sets tpr. Smaller is
         better. NaN without known or unknown queries.
"""

import math

import torch

from unseen.metrics.base import OpenAnswers, Rejection


class FprAtTpr(Rejection):
    """tpr: the share of known queries that must be accepted."""

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
