"""The head: from the pooled descriptor to the embedding, linear or with hidden layers between.

Starting values  default: PyTorch's (Roth); kaiming: normal, fan-out, zero bias (Proxy-Anchor,
                 Psomas). HORDE has no bias.
Layers           fc1, fc2, ...: each is linear, so as a tap it is what stands before the next ReLU.
"""

from collections.abc import Sequence
from typing import Literal, get_args

from torch import Tensor, nn

Start = Literal["default", "kaiming"]


class Head(nn.Module):
    """Linear layers with ReLU between them; its output is raw: losses and evaluation normalise.
    `embedding_size` None: no layer at all, the pooled descriptor is the embedding."""

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

    def forward(self, pooled: Tensor) -> Tensor:
        embeddings = pooled
        for layer in self.children():
            embeddings = layer(embeddings)
        return embeddings
