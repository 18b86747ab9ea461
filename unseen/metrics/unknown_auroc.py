"""How well the nearest similarity tells known queries from unknown ones: area under the ROC curve.

Formula  P(nearest similarity of a query whose class the gallery has > that of one whose class it
         does not have) + P(equal) / 2.
Use      open sets (`unseen evaluate RUN --open-set`), without choosing a threshold: 0.5 is chance.
         Whether the known ones get the right answer does not matter here, see dir_at_far. NaN
         without known or unknown queries.
"""

from unseen.metrics.base import OpenAnswers, Rejection
from unseen.metrics.roc_auc import RocAuc


class UnknownAuroc(Rejection):
    """No parameters."""

    def __call__(self, answers: OpenAnswers) -> float:
        return RocAuc()(answers.as_pairs())
