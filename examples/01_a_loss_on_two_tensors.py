"""A loss is a function of embeddings and labels: try any of them in a shell.

python examples/01_a_loss_on_two_tensors.py
"""

import torch

from unseen import losses

generator = torch.Generator().manual_seed(0)
embeddings = torch.randn(12, 16, generator=generator, requires_grad=True)
labels = torch.arange(4).repeat_interleave(3)  # 4 classes of 3 items

for loss in (losses.TripletLoss(), losses.MultiSimilarityLoss(), losses.MarginLoss(num_classes=4)):
    value = loss(embeddings, labels)  # every tuple of the batch counts
    value.backward()
    print(f"{type(loss).__name__}: {value.item():.4f}")
