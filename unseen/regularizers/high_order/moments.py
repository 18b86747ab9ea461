"""Moments of a map by random or learned projections (Random Maclaurin features), for HORDE.

The vectors at the places of a map are projected, the projections multiplied elementwise, the
products averaged over the places. With independent signs as projectors, products of two vectors
have on average the k-th power of their inner product as inner product (times the dimension).
"""

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from unseen.losses.base import check_positive


class Moments(nn.Module):
    """Orders 2 to num_orders. reduce: channels a learned linear layer first brings the map to.
    cascade: an order goes on from the one before it; otherwise order k has k projectors of its own.
    columns: dimensions computed at a time."""

    def __init__(
        self,
        num_channels: int,
        dimension: int,
        num_orders: int,
        cascade: bool,
        trained: bool,
        reduce: int | None,
        columns: int | None,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.columns = dimension if columns is None else columns
        channels = num_channels if reduce is None else reduce
        check_positive(dimension=dimension, columns=self.columns, reduce=channels)
        self.num_channels, self.num_orders, self.cascade = num_channels, num_orders, cascade
        number = num_orders if cascade else sum(range(2, num_orders + 1))
        self.reduction: nn.Parameter | None = None
        if reduce is not None:
            self.reduction = nn.Parameter(glorot(num_channels, channels, generator))
        self.projectors: Tensor
        if trained:
            start = [glorot(channels, dimension, generator) for _ in range(number)]
            self.projectors = nn.Parameter(torch.stack(start))
        else:
            signs = torch.randint(2, (number, channels, dimension), generator=generator)
            self.register_buffer("projectors", 2.0 * signs - 1)

    def forward(self, maps: Tensor) -> Tensor:  # [N, c, h, w] -> [orders - 1, N, dimension]
        if maps.shape[1] != self.num_channels:
            raise ValueError(
                f"horde was made for maps of {self.num_channels} channels, got {maps.shape[1]}"
            )
        places = maps.flatten(2).mT  # [N, h * w, c]
        if self.reduction is not None:
            places = places @ self.reduction.to(maps.dtype)
        blocks = self.projectors.to(maps.dtype).split(self.columns, dim=2)
        if len(blocks) == 1:
            return self._block(places, blocks[0])
        # each dimension needs its own columns only: what a block computed is not kept but redone
        parts = [
            checkpoint(self._block, places, b, use_reentrant=False, preserve_rng_state=False)
            for b in blocks
        ]
        return torch.cat(parts, dim=2)

    def _block(self, places: Tensor, projectors: Tensor) -> Tensor:  # -> [orders - 1, N, columns]
        factors = iter(projectors)
        moments: list[Tensor] = []
        product: Tensor | None = None
        for order in range(2, self.num_orders + 1):
            if product is None or not self.cascade:
                product, missing = places @ next(factors), order - 1
            else:
                missing = 1
            for _ in range(missing):
                product = product * (places @ next(factors))
            moments.append(product.mean(dim=1))
        return torch.stack(moments)


def glorot(rows: int, columns: int, generator: torch.Generator) -> Tensor:  # [rows, columns]
    """Uniform starting values that keep the size of what passes through."""
    return nn.init.xavier_uniform_(torch.empty(rows, columns), generator=generator)
