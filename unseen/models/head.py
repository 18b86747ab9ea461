"""The head: from the pooled descriptor to the embedding, linear or with hidden layers between."""

from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from unseen.core.geometry import unit

PRINCIPAL = "principal"
Start = Literal["default", "kaiming", "principal"]


class Head(nn.Module):
    """Linear layers (fc1, fc2, ...) with ReLU between them; its output is raw: losses and
    evaluation normalise.

    Args:
        num_features: Numbers of a pooled descriptor.
        embedding_size: Numbers of an embedding; None: the pooled descriptor is the embedding.
        hidden: Sizes of layers before the last one.
        dropout: Share of the descriptor that is dropped in training.
        bias: Whether layers have one; HORDE's have none.
        start: Starting values. `default`: PyTorch's (Roth). `kaiming`: normal, fan-out, zero bias
            (Proxy-Anchor, Psomas). `principal`: the directions in which unit descriptors of the
            training items are longest; no mean is taken off, so cosines stay. On pretrained
            features a random start loses what they know.

    Example:
        >>> from unseen.models import Head
        >>> Head(256, 16, hidden=[64])(torch.zeros(2, 256)).shape
        torch.Size([2, 16])
    """

    def __init__(
        self,
        num_features: int,
        embedding_size: int | None,
        hidden: Sequence[int] = (),
        *,
        dropout: float = 0.0,
        bias: bool = True,
        start: str = "default",
    ) -> None:
        super().__init__()
        sizes = [num_features, *hidden, *([] if embedding_size is None else [embedding_size])]
        if min(sizes) < 1:
            raise ValueError(f"layer sizes must be positive, got {sizes}")
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout must be in [0, 1), got {dropout}")
        if start not in get_args(Start):
            raise ValueError(f"start must be one of {', '.join(get_args(Start))}, got {start!r}")
        if start == PRINCIPAL and (len(sizes) != 2 or sizes[1] > sizes[0]):
            raise ValueError(
                "start = principal needs one layer that is no larger than what it is given, "
                f"got sizes {sizes}"
            )
        self.embedding_size = sizes[-1]
        if dropout:
            self.dropout = nn.Dropout(dropout)
        for i in range(1, len(sizes)):
            layer = nn.Linear(sizes[i - 1], sizes[i], bias)
            if start == "kaiming":
                nn.init.kaiming_normal_(layer.weight, mode="fan_out")
                nn.init.zeros_(layer.bias) if bias else None
            self.add_module(f"fc{i}", layer)
            if i < len(sizes) - 1:
                self.add_module(f"relu{i}", nn.ReLU())

    @torch.no_grad()
    def start_from(self, pooled: Tensor) -> None:  # [N, P]
        """Puts the principal directions of descriptors into the layer, the longest first."""
        layer = self.get_submodule("fc1")
        assert isinstance(layer, nn.Linear)
        layer.weight.copy_(principal_directions(pooled, layer.out_features))
        if layer.bias is not None:
            layer.bias.zero_()

    def forward(self, pooled: Tensor) -> Tensor:
        embeddings = pooled
        for layer in self.children():
            embeddings = layer(embeddings)
        return embeddings


def principal_directions(pooled: Tensor, size: int) -> Tensor:  # [N, P] -> [size, P] float64
    """The directions in which unit descriptors are longest, the longest first."""
    rows = unit(pooled.double())
    _, directions = torch.linalg.eigh(rows.T @ rows)  # [P, P], rising
    return directions.T.flip(0)[:size]
