"""The head: from the pooled descriptor to the embedding, linear or with hidden layers between."""

from collections.abc import Sequence

from torch import Tensor, nn


class Head(nn.Module):
    """Linear layers with ReLU between them; its output is raw: losses and evaluation normalise."""

    def __init__(self, num_features: int, embedding_size: int, hidden: Sequence[int] = ()) -> None:
        super().__init__()
        sizes = [num_features, *hidden, embedding_size]
        if min(sizes) < 1:
            raise ValueError(f"layer sizes must be positive, got {sizes}")
        layers: list[nn.Module] = []
        for before, after in zip(sizes, sizes[1:], strict=False):
            layers += [nn.Linear(before, after), nn.ReLU()]
        self.layers = nn.Sequential(*layers[:-1])

    def forward(self, pooled: Tensor) -> Tensor:
        embeddings: Tensor = self.layers(pooled)
        return embeddings
