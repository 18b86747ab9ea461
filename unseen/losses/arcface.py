"""ArcFace."""

import math
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from unseen.core.contracts import Shards
from unseen.core.derivatives import Back, differentiable
from unseen.core.geometry import scaled_cosine
from unseen.losses.class_centers.base import CenterLoss
from unseen.losses.class_centers.sampling import Drawn


class ArcfaceLoss(CenterLoss):
    """ArcFace: softmax over class directions, the own class's angle made harder by a margin.

    Formula:
        theta[i,c] the angle between embedding i and class vector c, y the class of i:

            L = cross entropy of logits  scale * cos(theta[i,y] + margin)  for c = y,
                                         scale * cos(theta[i,c])           elsewhere

        averaged over the batch. cos(theta + margin) = cos theta cos margin - sin theta sin margin
        needs no arccos. Beyond theta = pi - margin the cosine would rise again: there the own
        logit is scale * (cos theta - margin sin margin), which keeps falling. (Equation 6 of Roth
        et al. takes the cosine of a cosine and sums over the batch's items instead of classes.)

    Paper:
        J. Deng et al., ArcFace: Additive Angular Margin Loss for Deep Face Recognition, CVPR 2019,
        https://arxiv.org/abs/1801.07698

    Args:
        num_classes: number of training classes; a run fills it in.
        embedding_size: dimensions of the embeddings; a run fills it in.
        scale: of the cosines; 64 (paper), 16 (Roth et al. 2020), 220 (the code of Psomas' thesis).
        margin: in radians, 0 to pi; 0.5 (paper), 28.6 degrees (Psomas' thesis). In the code of Roth
            et al. the margin cancelled before February 2021, so that their printed scores are
            probably those of margin 0.
        clamp: cosines below 0 count as 0, as in the code of Roth et al.
        sample_rate: the share of the classes that a step compares with (losses/class_centers);
            None: all.
        lr: of the class vectors; 5e-4 (Roth et al. 2020), 1e-4 (Psomas' thesis, whose code never
            trains them). None: the run's.
        seed: of the drawing of classes by `sample_rate`.
        shards: processes that share the classes; a run fills it in.

    Use:
        any sampler, no miner.

    Example:
        >>> import torch
        >>> from unseen.losses import ArcfaceLoss
        >>> loss = ArcfaceLoss(num_classes=2, embedding_size=4)
        >>> loss(torch.eye(4), torch.tensor([0, 0, 1, 1])).backward()
        >>> [tuple(each.shape) for each in loss.parameters()]
        [(2, 4)]
    """

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "revisit": {"scale": 16.0, "margin": 0.5, "lr": 5e-4},
        "revisit_code": {"scale": 16.0, "margin": 0.5, "clamp": True, "lr": 5e-4},
        "thesis": {"scale": 64.0, "margin": math.radians(28.6), "lr": 1e-4},
        "thesis_code": {"scale": 220.0, "margin": math.radians(28.6), "lr": 0.0},
    }

    def __init__(
        self,
        num_classes: int,
        embedding_size: int,
        scale: float = 64.0,
        margin: float = 0.5,
        clamp: bool = False,
        sample_rate: float | None = None,
        lr: float | None = 5e-4,
        seed: int = 0,
        shards: Shards | None = None,
    ) -> None:
        super().__init__(num_classes, embedding_size, lr, sample_rate, seed, shards)
        if scale <= 0:
            raise ValueError(f"scale must be positive, got {scale}")
        if not 0 <= margin < math.pi:
            raise ValueError(f"margin is an angle in radians, 0 to pi, got {margin}")
        self.scale, self.margin, self.clamp = scale, margin, clamp
        bound = embedding_size**-0.5
        self.weight = self.centers(lambda rows: rows.uniform_(-bound, bound))

    def on_labels(self, embeddings: Tensor, labels: Tensor) -> Tensor:  # [N, D], [N]
        if self.sampling is not None:
            drawn: Drawn = self.sampling(self.weight, embeddings, labels)
            logits = self._logits(drawn.embeddings, drawn.centers)  # [N, S]
            if len(drawn.item):
                own = drawn.item.new_zeros(len(labels), 1)
                own[drawn.item, 0] = drawn.place
                here = torch.zeros_like(own, dtype=torch.bool).index_fill_(0, drawn.item, True)
                logits = with_margin(logits, own, self.scale, self.margin, here)
            return drawn.cross_entropy(logits)
        logits = self._logits(embeddings, self.weight.to(embeddings.dtype))  # [N, C]
        return F.cross_entropy(
            with_margin(logits, labels[:, None], self.scale, self.margin), labels
        )

    def _logits(self, embeddings: Tensor, centers: Tensor) -> Tensor:
        logits = scaled_cosine(embeddings, centers, self.scale)
        return logits.clamp(min=self.scale * 1e-10) if self.clamp else logits


def with_margin(
    logits: Tensor, own: Tensor, scale: float, margin: float, here: Tensor | None = None
) -> Tensor:
    """The logits [N, C], scaled cosines, with the margin on their own class's [N, 1], of items that
    are here."""

    def turned_of(logits: Tensor) -> tuple[Tensor, Tensor]:
        cos = logits.gather(1, own) / scale
        harder, slope = turned(cos, margin)
        if here is None:
            return harder, slope
        return torch.where(here, harder, cos), torch.where(here, slope, 1.0)

    def formula(logits: Tensor) -> Tensor:
        harder, _ = turned_of(logits)
        return logits.scatter(1, own, scale * harder)

    def written(logits: Tensor) -> tuple[Tensor, Back]:
        harder, slope = turned_of(logits)
        return (
            logits.scatter(1, own, scale * harder),
            lambda grad: (grad.scatter(1, own, grad.gather(1, own) * slope),),
        )

    made: Tensor = differentiable(formula, written, logits)
    return made


def turned(cos: Tensor, margin: float) -> tuple[Tensor, Tensor]:
    """cos(theta + margin), continued downwards beyond theta = pi - margin, and its slope."""
    sine, cosine = math.sin(margin), math.cos(margin)
    square = 1 - cos.square()
    sin = square.clamp(min=1e-12).sqrt()
    within = cos > -cosine
    made = torch.where(within, cos * cosine - sin * sine, cos - margin * sine)
    rising = (square > 1e-12) & within  # where the sine counts
    slope = torch.full_like(cos, cosine).where(within, 1.0)  # in the precision of the cosines
    return made, slope + torch.where(rising, sine * cos / sin, 0.0)
