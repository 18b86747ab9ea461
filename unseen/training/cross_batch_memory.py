"""Cross-batch memory: embeddings of earlier batches as further references for pair losses."""

import torch
from torch import Tensor, nn

from unseen.core.geometry import full_precision


class CrossBatchMemory(nn.Module):
    """A ring of the last `size` embeddings; its state is part of a checkpoint.

    Paper:
        X. Wang et al., Cross-Batch Memory for Embedding Learning, CVPR 2020,
        https://arxiv.org/abs/1912.06798

    Formula:
        total = loss(batch) + weight * loss(batch against memory), the second with positives and
        negatives, mined or all, from the memory alone. Then the batch's embeddings replace the
        oldest ones. They have no gradient: networks drift so slowly that those of some hundred
        steps ago still serve.
        The authors put the batch into the memory first, so that each of its pairs counts in both
        terms and each item meets itself; here a pair counts once.

    Values:
        size: as many as the training set has on small data, a tenth or more on large (paper).
        weight 1 (the authors' code). start_step: when drift has slowed; 1,000 steps from random
        weights, 0 for a pretrained backbone.

    Use:
        losses and miners on pairs or triplets, for batches too small to hold hard negatives.
        Losses with proxies see all classes anyway, and refuse it.
    """

    embeddings: Tensor  # [size, D]
    labels: Tensor  # [size]
    num_steps: Tensor  # batches seen
    num_stored: Tensor  # embeddings stored, those since forgotten among them

    def __init__(
        self, size: int, embedding_size: int, start_step: int = 0, weight: float = 1.0
    ) -> None:
        super().__init__()
        if size < 1 or start_step < 0 or weight <= 0:
            raise ValueError(
                "a memory needs size from 1, start_step from 0 and weight above 0, "
                f"got size={size}, start_step={start_step}, weight={weight}"
            )
        self.size, self.start_step, self.weight = size, start_step, weight
        self.register_buffer("embeddings", torch.zeros(size, embedding_size))
        self.register_buffer("labels", torch.full((size,), -1))
        self.register_buffer("num_steps", torch.tensor(0))
        self.register_buffer("num_stored", torch.tensor(0))

    def __len__(self) -> int:
        return min(self.size, int(self.num_stored))

    def references(self) -> tuple[Tensor, Tensor]:  # [M, D], [M]
        """What the memory holds, as a copy: the next `add` must not change a graph."""
        return self.embeddings[: len(self)].clone(), self.labels[: len(self)].clone()

    def next_to_go(self, number: int) -> tuple[Tensor, Tensor]:  # [m, D], [m]
        """What the next `number` embeddings would replace, at most the whole memory."""
        places = torch.arange(number, device=self.labels.device) + self.num_stored
        places = places[places >= self.size] % self.size
        return self.embeddings[places], self.labels[places]

    @torch.no_grad()
    def add(self, embeddings: Tensor, labels: Tensor) -> None:
        """After each batch [N, D], [N]; before `start_step` nothing is kept."""
        if int(self.num_steps) >= self.start_step:
            embeddings, labels = embeddings[-self.size :], labels[-self.size :]
            places = torch.arange(len(labels), device=labels.device) + self.num_stored
            self.embeddings[places % self.size] = full_precision(embeddings).to(
                self.embeddings.dtype
            )
            self.labels[places % self.size] = labels
            self.num_stored += len(labels)
        self.num_steps += 1
