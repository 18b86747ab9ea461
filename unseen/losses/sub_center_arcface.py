"""Sub-centre ArcFace."""

import math
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unseen.core.geometry import scaled_cosine
from unseen.losses.arcface import with_margin
from unseen.losses.base import LabelLoss, check_positive


class SubCenterArcfaceLoss(LabelLoss):
    """Sub-centre ArcFace: each class has several directions, an item need be near one of them.

    Formula:
        s[i,c,k] the cosine between embedding i and sub-centre k of class c, y the class of i:

            S[i,c] = max over k of s[i,c,k]
            L      = ArcFace's cross entropy of S:  scale * cos(arccos S[i,y] + margin)  for c = y,
                                                    scale * S[i,c]                       elsewhere

        averaged over the batch. Items with a wrong label gather at sub-centres of their own
        instead of pulling the class's one direction astray.
        Dropping: the dominant sub-centre of a class is the one that most of its items are nearest
        to. After `drop_after` steps only dominant ones are left, and items that are farther than
        `drop_angle` from the dominant one of their class no longer count. The authors drop after
        a whole training and train ArcFace anew on what is left; here one training does both
        (ours), and the items counted are those of the second half of the steps before (ours).

    Paper:
        J. Deng et al., Sub-center ArcFace: Boosting Face Recognition by Large-scale Noisy Web
        Faces, ECCV 2020

    Args:
        num_classes: number of training classes; a run fills it in.
        embedding_size: dimensions of the embeddings; a run fills it in.
        centers: of each class; 3 (authors' code).
        scale: of the cosines; 64 (as ArcFace).
        margin: in radians; 0.5 (as ArcFace).
        drop_after: steps after which the dominant sub-centres alone are left; None: never (ours):
            how many steps a network needs to tell items apart, only its curve says.
        drop_angle: in radians; 75 degrees (authors' code).
        lr: of the class vectors; 5e-4, as arcface here. None: the run's.

    Use:
        any sampler, no miner. One sub-centre is arcface.

    Example:
        >>> import torch
        >>> from unseen.losses import SubCenterArcfaceLoss
        >>> loss = SubCenterArcfaceLoss(num_classes=2, embedding_size=4)
        >>> loss(torch.eye(4), torch.tensor([0, 0, 1, 1])).backward()
        >>> [tuple(each.shape) for each in loss.parameters()]
        [(2, 3, 4)]
    """

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "deng": {"centers": 3, "scale": 64.0, "margin": 0.5, "drop_angle": math.radians(75)}
    }
    counts: Tensor  # [C, K] items that were nearest to each sub-centre of their class
    num_steps: Tensor

    def __init__(
        self,
        num_classes: int,
        embedding_size: int,
        centers: int = 3,
        scale: float = 64.0,
        margin: float = 0.5,
        drop_after: int | None = None,
        drop_angle: float = math.radians(75),
        lr: float | None = 5e-4,
    ) -> None:
        super().__init__(num_classes, embedding_size, lr)
        if centers < 1:
            raise ValueError(f"centers must be at least 1, got {centers}")
        check_positive(scale=scale)
        for name, angle in (("margin", margin), ("drop_angle", drop_angle)):
            if not 0 <= angle < math.pi:
                raise ValueError(f"{name} is an angle in radians, 0 to pi, got {angle}")
        if drop_after is not None and drop_after < 1:
            raise ValueError(f"drop_after must be None or at least 1 step, got {drop_after}")
        self.scale, self.margin = scale, margin
        self.drop_after, self.drop_angle = drop_after, drop_angle
        bound = embedding_size**-0.5
        start = torch.empty(num_classes, centers, embedding_size).uniform_(-bound, bound)
        self.weight = nn.Parameter(start)
        if drop_after is not None:
            self.register_buffer("counts", torch.zeros(num_classes, centers))
            self.register_buffer("num_steps", torch.tensor(0))

    def on_labels(self, embeddings: Tensor, labels: Tensor) -> Tensor:  # [N, D], [N]
        # classes last: the maximum over sub-centres then runs over long rows, as in soft_triple
        columns = self.weight.to(embeddings.dtype).transpose(0, 1).flatten(0, 1)  # [K * C, D]
        sim = scaled_cosine(embeddings, columns, self.scale)  # [N, K * C]
        sim = sim.view(len(embeddings), -1, self.num_classes)  # [N, K, C]
        if self.drop_after is None:
            return self._item_losses(sim.amax(dim=1), labels).mean()
        own = sim.detach().gather(2, labels[:, None, None].expand(-1, sim.shape[1], 1))[:, :, 0]
        dropping = int(self.num_steps) >= self.drop_after
        if not dropping and 2 * int(self.num_steps) >= self.drop_after:
            self.counts.index_put_((labels, own.argmax(dim=1)), self._one(), accumulate=True)
        self.num_steps += 1
        if not dropping:
            return self._item_losses(sim.amax(dim=1), labels).mean()
        dominant = self.counts.argmax(dim=1)  # [C]
        near = own.gather(1, dominant[labels, None])[:, 0] >= self.scale * math.cos(self.drop_angle)
        chosen = sim.gather(1, dominant.expand(len(sim), 1, -1))[:, 0]  # [N, C]
        near_losses = self._item_losses(chosen, labels).masked_fill(~near, 0)
        return near_losses.sum() / near.sum().clamp(min=1)

    def _item_losses(self, logits: Tensor, labels: Tensor) -> Tensor:  # [N, C], [N] -> [N]
        harder = with_margin(logits, labels[:, None], self.scale, self.margin)
        return F.cross_entropy(harder, labels, reduction="none")

    def _one(self) -> Tensor:
        return torch.ones((), dtype=self.counts.dtype, device=self.counts.device)
