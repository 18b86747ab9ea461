"""Search over vectors of which 8-bit integers alone are kept, mapped into memory: exact for what is
left of them (neighbours/codes.py). Similarities differ from those of the vectors that were given by
at most what rounding took, `Segment.rest`."""

from collections.abc import Sequence

import torch
from torch import Tensor

from unseen.neighbours.codes import Codes, nearest_in_codes
from unseen.neighbours.product import Tally
from unseen.search.stores.exact import Mask, Nearest


class Rounded:
    """Rows counted through all parts, in their order."""

    def __init__(self, parts: Sequence[Codes]) -> None:
        self.parts = [part for part in parts if len(part)]

    def search(
        self, queries: Tensor, k: int, allowed: Mask | None = None, tally: Tally | None = None
    ) -> Nearest:
        """The k nearest rows of each query [Q, D] among the allowed ones; row -1: no more. tally:
        counts."""
        forbidden = None if allowed is None else ~torch.from_numpy(allowed)
        return nearest_in_codes(queries, k, self.parts, forbidden, tally)
