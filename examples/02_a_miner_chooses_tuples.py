"""A miner says which tuples of a batch count; the loss prices those only.

python examples/02_a_miner_chooses_tuples.py
"""

import torch

from unseen.losses.triplet import Triplet
from unseen.miners.distance_weighted import DistanceWeighted
from unseen.miners.semi_hard import SemiHard

generator = torch.Generator().manual_seed(0)
embeddings = torch.randn(12, 16, generator=generator)
labels = torch.arange(4).repeat_interleave(3)

loss = Triplet()
print(f"all triplets: {loss(embeddings, labels).item():.4f}")
for miner in (SemiHard(), DistanceWeighted(), DistanceWeighted(switch=0.35)):
    mined = miner(embeddings, labels)
    price = loss(embeddings, labels, mined).item()
    print(f"{type(miner).__name__}: {len(mined.anchor)} triplets, {price:.4f}")
