"""What stops a run that has gone wrong, and what warns of one that learns nothing."""

import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor
from torch.nn import functional as F

from unseen.core.contracts import Batch

EXPLODED = 1e8  # no loss of the catalogue comes near it while it learns
COLLAPSED = 1e-4  # spread of unit embeddings below which they count as alike


class NonFiniteStepError(FloatingPointError):
    """A step that must not be taken. `batch`: its images, training classes and positions in the
    data set; `miners`: the state they drew from; `terms`: of the objective.

    A step breaks when its loss or gradient is not finite, or its loss beyond all measure. It breaks
    before the weights move: with the batch, the random states and the weights of that moment it can
    be repeated (`unseen inspect replay`).
    """

    def __init__(
        self,
        why: str,
        step: int,
        batch: Batch,
        miners: Mapping[str, Any],
        terms: Mapping[str, float],
    ) -> None:
        shown = ", ".join(map(str, batch.indices.tolist()[:8]))
        super().__init__(
            f"{why} at step {step}: lower lr, or look at the images of that batch ({shown}, ...)"
        )
        self.why, self.step, self.batch, self.miners = why, step, batch, dict(miners)
        self.terms = dict(terms)


def trouble_with(loss: float, gradient_norm: float = 0.0) -> str | None:
    """What is wrong with a step, or None."""
    if not math.isfinite(loss):
        return f"the loss became {loss}"
    if abs(loss) > EXPLODED:
        return f"the loss exploded to {loss:.3g}"
    if not math.isfinite(gradient_norm):
        return f"the loss is {loss:.6g}, but its gradient became {gradient_norm}"
    return None


def collapse(embeddings: Tensor) -> str | None:  # [n, D]
    """Advice where all embeddings are alike, or None: 1 - |mean|^2 of unit vectors is near 0."""
    unit = F.normalize(embeddings.double(), dim=1)
    spread = 1 - float(unit.mean(dim=0).square().sum())
    if spread > COLLAPSED:  # not a number is no collapse: the loss's guard stops at that
        return None
    return (
        f"all embeddings are alike (spread {spread:.1e}): nothing can be significantly "
        "different. Lower lr, "
        "choose a miner that is less hard (semi_hard, distance_weighted), or warm up the head "
        "first (schedule.warm_up=1)"
    )
