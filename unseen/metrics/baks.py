"""BAKS: balanced accuracy on known samples, of the AnimalCLEF challenges.

Formula  for each class that the gallery has, the share of its queries whose nearest answer has
         their class and reaches the threshold; the mean over these classes.
Use      open sets, at a threshold that was chosen on other classes; with baus, of which the
         challenge takes the geometric mean. NaN without a threshold or known queries.
"""

import math

from unseen.metrics.base import OpenAnswers, Rejection, by_class


class Baks(Rejection):
    """No parameters."""

    def __call__(self, answers: OpenAnswers) -> float:
        if math.isnan(answers.threshold):
            return math.nan
        right = answers.right & (answers.similarities >= answers.threshold)
        return by_class(right[answers.known], answers.labels[answers.known])
