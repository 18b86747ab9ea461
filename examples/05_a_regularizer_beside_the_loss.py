"""An objective: loss, miner and weighted regularizers, each term by its name.

python examples/05_a_regularizer_beside_the_loss.py
"""

import torch

from unseen.contracts import Output
from unseen.losses.margin import Margin
from unseen.miners.distance_weighted import DistanceWeighted
from unseen.objective import MinedObjective
from unseen.regularizers.global_orthogonal import GlobalOrthogonal

generator = torch.Generator().manual_seed(0)
pooled = torch.randn(24, 32, generator=generator)
labels = torch.arange(6).repeat_interleave(4)
head = torch.nn.Linear(32, 16)

objective = MinedObjective(
    Margin(num_classes=6),
    DistanceWeighted(),
    [("global_orthogonal", 1.0, GlobalOrthogonal())],
)
terms = objective(Output(head(pooled), pooled), labels)
terms["total"].backward()
for name, value in terms.items():
    print(f"{name}: {value.item():.4f}")
