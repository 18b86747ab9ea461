"""ProxyNCA loss."""

import math
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unseen.core.geometry import scaled_cosine
from unseen.losses.base import LabelLoss


class ProxyNcaLoss(LabelLoss):
    """ProxyNCA: each item near its class's proxy, compared with the proxies of the other classes.

    Formula:
        q[i,c] the squared distance between unit embedding i and unit proxy c, y the class of i:

            L = mean over i of  scale * q[i,y] + log sum over c != y of exp(-scale * q[i,c])

        which has no lower bound at 0: negative values are normal. `include_positive` lets c = y
        into the sum, a cross entropy that is never negative. (Equation 13 of Roth et al. has
        neither the square nor the length 3 of its code; Psomas' sums over the batch are means.)

    Paper:
        Y. Movshovitz-Attias et al., No Fuss Distance Metric Learning Using Proxies, ICCV 2017,
        https://arxiv.org/abs/1703.07464

    Args:
        num_classes: number of training classes; a run fills it in.
        embedding_size: dimensions of the embeddings; a run fills it in.
        scale: of squared distances; 9 (Roth et al. 2020: vectors of length 3). Psomas' thesis
            prints inner products (scale 0.5); its code has 32.
        include_positive: the own proxy is in the sum too (Psomas' code).
        lr: of the proxies; 5e-4 (Roth et al. 2020), 1e-5 (Psomas' thesis, whose code never trains
            them). None: the run's.

    Use:
        any sampler, no miner.

    Example:
        >>> import torch
        >>> from unseen.losses import ProxyNcaLoss
        >>> loss = ProxyNcaLoss(num_classes=2, embedding_size=4)
        >>> loss(torch.eye(4), torch.tensor([0, 0, 1, 1])).backward()
        >>> [tuple(each.shape) for each in loss.parameters()]
        [(2, 4)]
    """

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "revisit": {"scale": 9.0, "lr": 5e-4},
        "revisit_code": {"scale": 9.0, "lr": 5e-4},
        "thesis": {"scale": 0.5, "lr": 1e-5},
        "thesis_code": {"scale": 32.0, "include_positive": True, "lr": 0.0},
    }

    def __init__(
        self,
        num_classes: int,
        embedding_size: int,
        scale: float = 9.0,
        include_positive: bool = False,
        lr: float | None = 5e-4,
    ) -> None:
        super().__init__(num_classes, embedding_size, lr)
        if num_classes < 2 and not include_positive:
            raise ValueError(
                f"num_classes must be at least 2 to compare proxies, got {num_classes}"
            )
        if scale <= 0:
            raise ValueError(f"scale must be positive, got {scale}")
        self.scale, self.include_positive = scale, include_positive
        self.proxies = nn.Parameter(torch.randn(num_classes, embedding_size) / 8)

    def on_labels(self, embeddings: Tensor, labels: Tensor) -> Tensor:  # [N, D], [N]
        # -q = 2 cos - 2, and the constant cancels between the two terms
        proxies = self.proxies.to(embeddings.dtype)
        logits = scaled_cosine(embeddings, proxies, 2 * self.scale)  # [N, C]
        if self.include_positive:
            return F.cross_entropy(logits, labels)
        own = labels[:, None]
        others = logits.scatter(1, own, -math.inf).logsumexp(dim=1)  # [N]
        return (others - logits.gather(1, own)[:, 0]).mean()
