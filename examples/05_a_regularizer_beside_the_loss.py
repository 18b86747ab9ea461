"""An objective: loss, miner and weighted regularizers, each term by its name.

python examples/05_a_regularizer_beside_the_loss.py
"""

import torch

from unseen import Output, losses, miners, regularizers
from unseen.training.objective import MinedObjective

generator = torch.Generator().manual_seed(0)
pooled = torch.randn(24, 32, generator=generator)
labels = torch.arange(6).repeat_interleave(4)
head = torch.nn.Linear(32, 16)

objective = MinedObjective(
    losses.MarginLoss(num_classes=6),
    miners.DistanceWeightedMiner(),
    [("global_orthogonal", 1.0, regularizers.GlobalOrthogonalRegularizer())],
)
terms = objective(Output(head(pooled), pooled), labels)
terms["total"].backward()
for name, value in terms.items():
    print(f"{name}: {value.item():.4f}")
