"""S2SD, self-distillation."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unseen.core.contracts import Miner, Output
from unseen.core.geometry import cosine
from unseen.core.relevance import AnyLabels
from unseen.core.tuples import from_indices
from unseen.losses.base import check_not_negative, check_positive
from unseen.regularizers.base import Regularizer


class S2sdRegularizer(Regularizer):
    """S2SD: larger embeddings, trained beside the network's own and dropped after it, teach it.

    Formula:
        g_i: two linear layers with a ReLU between from the pooled descriptor p to sizes[i]; S(x)
        the cosines of a batch's rows x; softmax over each row, its own entry among them:

            KL(x) = temperature^2 mean over rows of
                    sum of q log(q / softmax(S(z) / temperature)),  q = softmax(S(x) / temperature)

            R = mean over i of loss(g_i) + 2 distillation mean over i of KL(g_i)
              + 2 feature_distillation KL(p)

        z are the network's embeddings; the teachers x get no gradient from KL. The loss and R
        together are twice the paper's sum, (loss(z) + mean loss(g_i)) / 2 + ...

    Paper:
        K. Roth et al., Simultaneous Similarity-based Self-Distillation for Deep Metric Learning,
        ICML 2021, https://arxiv.org/abs/2009.08348

    Args:
        make_loss: make_loss(size) gives one teacher's loss; a run fills it in.
        miner: of tuples for all teachers; a run fills it in.
        num_features: of the pooled descriptor; a run fills it in.
        sizes: of the teachers; 512, 1024, 1536 and 2048 (paper).
        temperature: of the softmax over similarities; 1 (paper).
        distillation: weight of the teachers' divergence; 50 (paper).
        feature_distillation: weight of the descriptor's divergence; 50, 5 on products (paper).
        delay: steps before the descriptor's divergence counts; 1000 (paper and code: 1000 steps of
            Adam).

    Notes:
        the authors pool by avg+max for the teachers: set the network's pooling to it.

    Use:
        any loss and miner; each teacher has a loss, and its parameters, of its own. Gains most for
        small embeddings.

    Example:
        >>> from unseen.losses import TripletLoss
        >>> from unseen.regularizers import S2sdRegularizer
        >>> s2sd = S2sdRegularizer(lambda size: TripletLoss(), None, num_features=8, sizes=[16])
        >>> sum(parameter.numel() for parameter in s2sd.parameters())
        416
    """

    own_weight_decay = None
    exact_gradient = False  # what the student learns from is detached
    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "s2sd": {},
        "s2sd_products": {"feature_distillation": 5.0},
        "multiscale": {"feature_distillation": 0.0},
    }
    steps: Tensor

    def __init__(
        self,
        make_loss: Callable[[int], nn.Module],
        miner: Miner | None,
        num_features: int,
        sizes: Sequence[int] = (512, 1024, 1536, 2048),
        temperature: float = 1.0,
        distillation: float = 50.0,
        feature_distillation: float = 50.0,
        delay: int = 1000,
    ) -> None:
        super().__init__()
        if not sizes or min(sizes) < 1:
            raise ValueError(f"sizes must be numbers of at least 1, got {list(sizes)}")
        check_positive(temperature=temperature)
        check_not_negative(
            distillation=distillation, feature_distillation=feature_distillation, delay=delay
        )
        self.miner, self.num_features = miner, num_features
        self.temperature, self.distillation = temperature, distillation
        self.feature_distillation, self.delay = feature_distillation, delay
        self.teachers = nn.ModuleList(
            nn.Sequential(nn.Linear(num_features, size), nn.ReLU(), nn.Linear(size, size))
            for size in sizes
        )
        self.losses = nn.ModuleList(make_loss(size) for size in sizes)
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def on_output(self, output: Output, labels: AnyLabels) -> Tensor:
        if output.pooled.shape[1] != self.num_features:
            raise ValueError(
                f"s2sd was made for pooled descriptors of {self.num_features} values, "
                f"got {output.pooled.shape[1]}"
            )
        student = cosine(output.embeddings)
        loss_values, divergences = [], []
        for teacher, loss in zip(self.teachers, self.losses, strict=True):
            rows = teacher(output.pooled)
            tuples = None if self.miner is None else from_indices(self.miner(rows, labels))
            loss_values.append(loss(rows, labels, tuples))
            divergences.append(self._divergence(student, rows))
        loss_mean, divergence = torch.stack(loss_values).mean(), torch.stack(divergences).mean()
        self.note(loss=loss_mean, divergence=divergence)
        total = loss_mean + 2 * self.distillation * divergence
        if self.feature_distillation and int(self.steps) >= self.delay:
            of_features = self._divergence(student, output.pooled)
            self.note(feature_divergence=of_features)
            total = total + 2 * self.feature_distillation * of_features
        if self.training:
            self.steps += 1
        return total

    def _divergence(self, student: Tensor, rows: Tensor) -> Tensor:
        """KL(teacher | student) of the rows' similarities, the teacher's without gradient."""
        taught = F.softmax(cosine(rows.detach()) / self.temperature, dim=1)
        learned = F.log_softmax(student / self.temperature, dim=1)
        total = F.kl_div(learned, taught, reduction="sum")
        return self.temperature**2 * total / max(1, len(student))
