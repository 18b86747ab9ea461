"""Area under the ROC curve of known against unknown queries."""

from unseen.metrics.base import OpenAnswers, Rejection
from unseen.metrics.roc_auc import RocAuc


class UnknownAuroc(Rejection):
    """Area under the ROC curve of known against unknown queries by their nearest similarity.

    Formula:
        P(nearest similarity of a query whose class the gallery has > that of one whose class it
        does not have) + P(equal) / 2.

    Use:
        open sets (`unseen evaluate run RUN --open-set`), without choosing a threshold: 0.5 is
        chance. Whether the known ones get the right answer does not matter here, see dir_at_far.
        NaN without known or unknown queries.

    Example:
        >>> import torch
        >>> from unseen.metrics import UnknownAuroc
        >>> from unseen.metrics.base import OpenAnswers
        >>> known, similarities = torch.tensor([True, False]), torch.tensor([0.9, 0.8])
        >>> UnknownAuroc()(OpenAnswers(similarities, known, known, labels=torch.arange(2)))
        1.0
    """

    def __call__(self, answers: OpenAnswers) -> float:
        return RocAuc()(answers.as_pairs())
