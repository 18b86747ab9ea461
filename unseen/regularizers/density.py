"""Density adaptivity."""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from unseen.core.contracts import Output
from unseen.core.geometry import unit
from unseen.core.relevance import AnyLabels
from unseen.losses.base import check_choice, check_not_negative, check_positive, class_labels
from unseen.regularizers.base import Regularizer, check_labels

OF_TRAINING = ("initial", "relative")  # D0 of the training items, before the first step


class DensityRegularizer(Regularizer):
    """Density adaptivity (DA): each class learns how densely it may lie, and is held at that.

    Formula:
        spread D of a class in the batch: mean squared distance of its unit embeddings to their
        mean; a learned target alpha per class; q = D0^eta, D0 the spread before the embedding:

            L = mean (D - alpha)^2 - mean alpha
                + 1/C^2 sum over i, j of (q_j alpha_i - q_i alpha_j)^2

        over the C classes with two images or more in the batch (equation 8 prints C for the whole
        set, Algorithm 1 has a batch). The last term keeps targets in proportion to the data and
        equals 2 [(sum q^2)(sum alpha^2) - (sum q alpha)^2] / C^2.
        Without it alpha tends to D + 1/2: a constant pull outwards that the loss must hold.

    Paper:
        Y. Li et al., Deep Metric Learning with Density Adaptivity, IEEE TMM 2020,
        https://arxiv.org/abs/1909.03909

    Args:
        num_classes: number of training classes; a run fills it in.
        eta: power of the spread before the embedding; 0.5 (paper).
        start: first value of the targets; 0.5 (paper).
        d0: "initial": D0 of the raw pooled descriptors of the initial network over the whole
            training set (which network and which items the paper does not say), as it is printed;
            "relative": the same divided by its mean over classes, ours, which weakens the last
            term by that mean; "batch": of the batch at hand, as it is; "none": no last term.
        unbiased: corrects the spread of n images, which comes out (n - 1)/n of the true one.
        floor: a target below 0 counts as 0.
        lr_factor: alpha's learning rate over the run's; at 1e-5 alpha hardly moves, try 10 to 100.

    Weight:
        10 (paper).

    Use:
        10 images per class: a spread of n images comes out (n - 1)/n of the true one (`unbiased`
        corrects that). whole_classes sampler on small classes. Targets take no weight decay;
        Adam's momentum moves them a little after their class has left the batch.

    Example:
        >>> import torch
        >>> from unseen.core.contracts import Output
        >>> from unseen.regularizers import DensityRegularizer
        >>> output = Output(embeddings=torch.eye(4), pooled=torch.eye(4))
        >>> DensityRegularizer(num_classes=2, d0="batch")(output, torch.tensor([0, 0, 1, 1])).item()
        -0.5
    """

    usual_weight = 10.0
    needs_classes = True
    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "density": {"d0": "initial"},
        "targets_only": {"d0": "none"},
    }

    def __init__(
        self,
        num_classes: int,
        eta: float = 0.5,
        start: float = 0.5,
        d0: str = "relative",
        unbiased: bool = False,
        floor: bool = False,
        lr_factor: float = 1.0,
    ) -> None:
        super().__init__()
        check_positive(num_classes=num_classes, lr_factor=lr_factor)
        check_not_negative(eta=eta, start=start)
        check_choice("d0", d0, ("initial", "relative", "batch", "none"))
        self.eta, self.d0, self.unbiased, self.floor = eta, d0, unbiased, floor
        self.lr_factor = lr_factor
        self.alpha = nn.Parameter(torch.full((num_classes,), float(start)))
        self.q: Tensor
        self.register_buffer("q", torch.zeros(num_classes))  # all 0: not prepared yet

    @property
    def is_prepared(self) -> bool:
        return self.d0 not in OF_TRAINING or bool(self.q.any())

    @torch.no_grad()
    def prepare(self, pooled: Tensor, labels: Tensor) -> None:
        """Takes D0 from the initial network's descriptors [n, P] of all training items."""
        check_labels(labels, len(self.alpha))
        spread, classes, counts = spreads(pooled.double(), labels)
        measured = spread[counts > 1]
        if not measured.sum() > 0:  # a network without spread gives no preference
            measured = torch.ones_like(measured)
        mean = measured.mean() if len(measured) else spread.new_ones(())
        initial = mean.repeat(len(self.alpha))  # classes of one image keep the mean
        initial[classes[counts > 1]] = measured
        if self.d0 == "relative":
            initial = initial / mean
        self.q.copy_(initial**self.eta)

    def on_output(self, output: Output, labels: AnyLabels) -> Tensor:
        labels = class_labels(labels, self)
        check_labels(labels, len(self.alpha))
        spread, classes, counts = spreads(unit(output.embeddings), labels)
        several = counts > 1
        spread, classes, counts = spread[several], classes[several], counts[several]  # [C]
        if self.unbiased:
            spread = spread * counts / (counts - 1)
        target = self.alpha.to(spread.dtype)
        if self.floor:  # the value is cut, the gradient is not: a target can come back
            target = target + (target.clamp(min=0) - target).detach()
        alpha, number = target[classes], max(1, len(classes))
        adapted = (spread - alpha).square().sum() / number - alpha.sum() / number
        balance = self._balance(alpha, output.pooled, labels, classes)
        low, high = target.aminmax()
        self.note(alpha_min=low, alpha_median=target.median(), alpha_max=high)
        self.note(mean_spread=spread.sum() / number, balance=balance)
        return adapted + balance

    def _balance(self, alpha: Tensor, pooled: Tensor, labels: Tensor, classes: Tensor) -> Tensor:
        """The last term, over pairs of classes, in one pass over the classes."""
        if self.d0 == "none":
            return alpha.sum() * 0.0
        if self.d0 in OF_TRAINING:
            if not self.is_prepared:
                raise ValueError(
                    "density needs prepare(pooled, labels) once before the first step, "
                    "or d0='batch' or 'none'"
                )
            q = self.q[classes].to(alpha.dtype)
        else:
            spread, _, counts = spreads(pooled.detach(), labels)
            q = spread[counts > 1].clamp(min=0) ** self.eta
        cross = q.square().sum() * alpha.square().sum() - (q * alpha).sum().square()
        return 2 * cross / max(1, len(alpha)) ** 2


def spreads(x: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:  # three [C]
    """Of each class present: mean squared distance to the class mean, its label, its size."""
    classes, owner, counts = labels.unique(return_inverse=True, return_counts=True)
    sums = x.new_zeros(len(classes), x.shape[1]).index_add(0, owner, x)
    means = sums / counts[:, None]  # [C, D]
    squares = (x - means[owner]).square().sum(dim=1)  # [N]
    spread = x.new_zeros(len(classes)).index_add(0, owner, squares) / counts
    return spread, classes, counts
