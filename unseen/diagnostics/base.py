"""What diagnostics share: checked embeddings in float64 and sums over classes."""

import torch
from torch import Tensor

from unseen.core.relevance import AnyLabels, classes_of
from unseen.neighbors.space import require_finite, to_sphere


def prepared(embeddings: Tensor, normalize: bool = True) -> Tensor:  # [N, D] float64
    """Detached, finite, and of unit length if wanted."""
    require_finite(embeddings, "embeddings")
    x = embeddings.detach().double()
    return to_sphere(x) if normalize else x


def by_class(labels: AnyLabels, num_items: int) -> tuple[Tensor, Tensor, Tensor]:
    """Distinct labels [C], the class 0..C-1 of each item [N], class sizes [C]; of a relevance the
    classes it was divided by."""
    labels = classes_of(labels, "diagnostics go")
    if labels.ndim != 1 or len(labels) != num_items or labels.is_floating_point():
        raise ValueError(
            f"labels must be {num_items} integers, got {labels.dtype} of shape {list(labels.shape)}"
        )
    classes, item_class, sizes = torch.unique(labels, return_inverse=True, return_counts=True)
    return classes, item_class, sizes


def class_sums(x: Tensor, item_class: Tensor, num_classes: int) -> Tensor:  # [C, D]
    """Sum of the rows of each class."""
    return x.new_zeros(num_classes, x.shape[1]).index_add_(0, item_class, x)


def singular_values(x: Tensor) -> Tensor:  # [D] falling
    """Of the matrix as it is (not centred), from its D x D Gram matrix in float64."""
    return torch.linalg.eigvalsh(x.T @ x).clamp_(min=0).sqrt_().flip(0)
