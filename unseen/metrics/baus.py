"""Balanced accuracy on unknown samples."""

import math

from unseen.metrics.base import OpenAnswers, Rejection, by_class


class Baus(Rejection):
    """BAUS: balanced accuracy on unknown samples, of the AnimalCLEF challenges.

    Formula:
        for each class that the gallery does not have, the share of its queries whose nearest
        answer stays below the threshold: they are called new; the mean over these classes.

    Use:
        open sets, at a threshold that was chosen on other classes; with baks. NaN without a
        threshold or unknown queries.

    Example:
        >>> import torch
        >>> from unseen.metrics import Baus
        >>> from unseen.metrics.base import OpenAnswers
        >>> known, similarities = torch.tensor([True, False]), torch.tensor([0.9, 0.8])
        >>> Baus()(OpenAnswers(similarities, known, known, labels=torch.arange(2), threshold=0.5))
        0.0
    """

    def __call__(self, answers: OpenAnswers) -> float:
        if math.isnan(answers.threshold):
            return math.nan
        refused, unknown = answers.similarities < answers.threshold, ~answers.known
        return by_class(refused[unknown], answers.labels[unknown])
