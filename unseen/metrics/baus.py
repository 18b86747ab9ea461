"""BAUS: balanced accuracy on unknown samples, of the AnimalCLEF challenges.

Formula  for each class that the gallery does not have, the share of its queries whose nearest
         answer stays below the threshold: they are called new; the mean over these classes.
Use      open sets, at a threshold that was chosen on other classes; with baks. NaN without a
         threshold or unknown queries.
"""

import math

from unseen.metrics.base import OpenAnswers, Rejection, by_class


class Baus(Rejection):
    """No parameters."""

    def __call__(self, answers: OpenAnswers) -> float:
        if math.isnan(answers.threshold):
            return math.nan
        refused, unknown = answers.similarities < answers.threshold, ~answers.known
        return by_class(refused[unknown], answers.labels[unknown])
