"""Search over vectors of which 8-bit integers alone are kept, mapped into memory: exact for what is
left of them (neighbors/int8_codes.py). Similarities differ from those of the vectors that were
given by at most what rounding took, `Segment.rest`."""

from collections.abc import Sequence

import torch
from torch import Tensor

from unseen.neighbors.block_products import WorkCounter
from unseen.neighbors.int8_codes import Codes, nearest_in_codes
from unseen.search.backends.exact import Mask, Nearest


class Rounded:
    """Rows counted through all chunks, in their order."""

    def __init__(self, chunks: Sequence[Codes]) -> None:
        self.chunks = [chunk for chunk in chunks if len(chunk)]

    def search(
        self,
        queries: Tensor,
        k: int,
        allowed: Mask | None = None,
        counter: WorkCounter | None = None,
    ) -> Nearest:
        """The k nearest rows of each query [Q, D] among the allowed ones; row -1: no more. counter:
        of the work."""
        forbidden = None if allowed is None else ~torch.from_numpy(allowed)
        return nearest_in_codes(queries, k, self.chunks, forbidden, counter)
