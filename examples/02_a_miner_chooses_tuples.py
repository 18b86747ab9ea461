"""A miner says which tuples of a batch count; the loss prices those only.

python examples/02_a_miner_chooses_tuples.py
"""

import torch

from unseen import losses, miners

generator = torch.Generator().manual_seed(0)
embeddings = torch.randn(12, 16, generator=generator)
labels = torch.arange(4).repeat_interleave(3)

loss = losses.TripletLoss()
print(f"all triplets: {loss(embeddings, labels).item():.4f}")
switched = miners.DistanceWeightedMiner(switch=0.35)
for miner in (miners.SemiHardMiner(), miners.DistanceWeightedMiner(), switched):
    mined = miner(embeddings, labels)
    price = loss(embeddings, labels, mined).item()
    print(f"{type(miner).__name__}: {len(mined.anchor)} triplets, {price:.4f}")
