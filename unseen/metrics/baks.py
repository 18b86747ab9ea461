"""Balanced accuracy on known samples."""

import math

from unseen.metrics.base import OpenAnswers, Rejection, by_class


class Baks(Rejection):
    """BAKS: balanced accuracy on known samples, of the AnimalCLEF challenges.

    Formula:
        for each class that the gallery has, the share of its queries whose nearest answer has
        their class and reaches the threshold; the mean over these classes.

    Use:
        open sets, at a threshold that was chosen on other classes; with baus, of which the
        challenge takes the geometric mean. NaN without a threshold or known queries.

    Example:
        >>> import torch
        >>> from unseen.metrics import Baks
        >>> from unseen.metrics.base import OpenAnswers
        >>> known, similarities = torch.tensor([True, False]), torch.tensor([0.9, 0.8])
        >>> Baks()(OpenAnswers(similarities, known, known, labels=torch.arange(2), threshold=0.5))
        1.0
    """

    def __call__(self, answers: OpenAnswers) -> float:
        if math.isnan(answers.threshold):
            return math.nan
        right = answers.right & (answers.similarities >= answers.threshold)
        return by_class(right[answers.known], answers.labels[answers.known])
