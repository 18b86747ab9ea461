"""PRISM: items of a batch whose label looks wrong are left out of the step."""

import torch
from torch import Tensor, nn

from unseen.core.geometry import full_precision, unit
from unseen.training.cross_batch_memory import CrossBatchMemory


class Prism(nn.Module):
    """PRISM: items of a batch whose label looks wrong are left out of the step.

    share: of each batch that is taken for wrong. window: thresholds that are averaged. size: of
    the memory. start_step: before it all items stay. Its state is part of a checkpoint.

    Paper:
        C. Liu et al., Noise-resistant Deep Metric Learning with Ranking-based Instance Selection,
        CVPR 2021, https://arxiv.org/abs/2103.16047

    Formula:
        x[i] the unit embedding of item i, w[c] the mean of the unit embeddings of class c in a
        memory of the last items that were kept:

            P[i] = exp(x[i] . w[y]) / sum over classes c in the memory of exp(x[i] . w[c])

        the probability that label y of item i is right. An item of a class that is not in the
        memory yet has P = 1, and stays. In each batch of N the threshold is the floor(share * N)-
        th smallest P, unless that is 1; an item stays if its P lies above the mean of the last
        `window` thresholds (the smooth top-R of the paper). Where none would stay, all but the
        floor(share * N) of the smallest P do, and the window begins anew. What stays is priced
        and enters the memory; the rest does neither. (The authors' code also counts classes the
        memory does not hold, each with exp(0) = 1; here they do not count.)

    Values:
        share: of wrong labels, as far as one knows it; the authors set the true one, 0.5 for their
        noisiest data; 0.2 is ours. window 30, size 9,500 of 9,558 items (authors' config for
        Cars98N), 8,192 here as in their defaults. start_step 0 (theirs).

    Use:
        `label_filter=prism`, with any loss, miner and memory. Batches should hold several items of
        a class: half of them may be left out.
    """

    sums: Tensor  # [C, D] float64, of the memory's embeddings by class
    counts: Tensor  # [C]
    thresholds: Tensor  # [window] float64, the newest last; NaN where there is none yet
    num_steps: Tensor

    def __init__(
        self,
        num_classes: int,
        embedding_size: int,
        fraction: float = 0.2,
        window: int = 30,
        size: int = 8192,
        start_step: int = 0,
    ) -> None:
        super().__init__()
        if not 0 < fraction < 1 or window < 1 or start_step < 0:
            raise ValueError(
                "label_filter needs a share between 0 and 1, a window from 1 and start_step from "
                f"0, got fraction={fraction}, window={window}, start_step={start_step}"
            )
        self.fraction, self.start_step = fraction, start_step
        self.memory = CrossBatchMemory(size, embedding_size)
        zeros = torch.zeros(num_classes, embedding_size, dtype=torch.float64)
        self.register_buffer("sums", zeros)
        self.register_buffer("counts", torch.zeros(num_classes, dtype=torch.int64))
        self.register_buffer("thresholds", torch.full((window,), torch.nan, dtype=torch.float64))
        self.register_buffer("num_steps", torch.tensor(0))

    @torch.no_grad()
    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:  # [N, D], [N] -> bool [N]
        """Which items of a batch stay; the memory takes them up."""
        rows = unit(full_precision(embeddings.detach()))
        stays = torch.ones_like(labels, dtype=torch.bool)
        if int(self.num_steps) >= self.start_step:
            stays = self._chosen(self.probabilities(rows, labels))
        self._remember(rows[stays], labels[stays])
        self.num_steps += 1
        return stays

    def probabilities(self, rows: Tensor, labels: Tensor) -> Tensor:  # [N] float64
        """That each label is right, by the memory as it is; rows: unit embeddings."""
        means = self.sums / self.counts.clamp(min=1)[:, None]  # [C, D]
        logits = (rows.double() @ means.T).masked_fill(self.counts == 0, -torch.inf)  # [N, C]
        own = logits.gather(1, labels[:, None])[:, 0]
        probability = (own - logits.logsumexp(dim=1)).exp()
        return probability.masked_fill(self.counts[labels] == 0, 1.0)

    def _remember(self, rows: Tensor, labels: Tensor) -> None:
        """The sums follow the memory, so that a step costs nothing of its size."""
        rows, labels = rows[-self.memory.size :], labels[-self.memory.size :]
        forgotten, classes = self.memory.next_to_go(len(labels))
        self._count(forgotten, classes, -1)
        self.memory.add(rows, labels)
        self._count(rows.to(self.memory.embeddings.dtype), labels, 1)

    def _count(self, rows: Tensor, labels: Tensor, sign: int) -> None:
        self.sums.index_add_(0, labels, rows.double(), alpha=sign)
        self.counts.index_add_(0, labels, torch.ones_like(labels), alpha=sign)

    def _chosen(self, probability: Tensor) -> Tensor:  # bool [N]
        place = int(self.fraction * len(probability))
        if place == 0:
            return torch.ones_like(probability, dtype=torch.bool)
        threshold = probability.kthvalue(place).values
        if threshold < 1:
            self.thresholds.copy_(torch.cat([self.thresholds[1:], threshold[None]]))
        new = probability == 1  # of a class that the memory does not hold
        stays = new | (probability > self.thresholds.nanmean())
        if not stays.any():
            self.thresholds.fill_(torch.nan)
            self.thresholds[-1] = threshold
            stays[probability.argsort(stable=True)[place:]] = True  # of equals, too, some
        return stays
