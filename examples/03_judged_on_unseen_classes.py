"""A head trained on some classes, evaluated on others, with an interval over classes.

python examples/03_evaluated_on_unseen_classes.py
"""

import torch

from unseen import evaluate, losses, miners

generator = torch.Generator().manual_seed(0)
labels = torch.arange(80).repeat_interleave(8)  # 80 classes of 8 items
signal = torch.randn(80, 16, generator=generator)[labels]
signal = signal + 0.5 * torch.randn(640, 16, generator=generator)
features = torch.cat([signal, 3 * torch.randn(640, 48, generator=generator)], dim=1)
seen, new = labels < 40, labels >= 40

head = torch.nn.Linear(64, 32)
loss, miner = losses.MultiSimilarityLoss(), miners.MultiSimilarityMiner()
optimizer = torch.optim.AdamW(head.parameters(), lr=1e-2)
for _ in range(100):
    embeddings = head(features[seen])
    optimizer.zero_grad()
    loss(embeddings, labels[seen], miner(embeddings, labels[seen])).backward()
    optimizer.step()

for name, space in {"features": features, "trained head": head(features).detach()}.items():
    score = evaluate(space[new], labels[new]).values["recall@1"]
    print(f"{name}: recall@1 {score.value:.2f}, 95 % interval {score.low:.2f} to {score.high:.2f}")
