"""Some of the queries instead of all: an estimate for those who cannot wait.

Items stand in the order of their classes, shuffled within each, and every n/count-th asks, from a
random start on. So every item is as likely as any other to ask, and the plain mean over those that
do estimates the mean over all without bias; and every class has its share of the queries, one more
or less. The bootstrap over the queries that asked treats them as drawn without regard to classes,
and from without end: its interval is, if anything, too long. Everybody still answers.
"""

import torch
from torch import Tensor


def sampled(labels: Tensor, count: int, seed: int = 0) -> Tensor:  # [count] rising positions
    """Which items ask, of items with labels [n]."""
    if count < 1:
        raise ValueError(f"the number of queries must be at least 1, got {count}")
    generator = torch.Generator().manual_seed(seed)
    shuffled = torch.randperm(len(labels), generator=generator)
    by_class = shuffled[labels[shuffled].argsort(stable=True)]
    if count >= len(labels):
        return torch.arange(len(labels))
    step = len(labels) / count
    start = float(torch.rand(1, generator=generator, dtype=torch.float64)) * step
    place = (start + step * torch.arange(count, dtype=torch.float64)).long()
    return by_class[place.clamp_(max=len(labels) - 1)].sort().values
