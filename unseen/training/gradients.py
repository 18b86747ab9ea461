"""The gradient of the objective on the whole batch where the batch is computed in parts."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from unseen.core.contracts import Batch, Network, Output
from unseen.core.geometry import full_precision
from unseen.models.frozen_batch_norm import batch_norms
from unseen.training.distributed import Processes
from unseen.training.objective import MinedObjective

Rows = dict[str, Tensor]  # [N, ...] each, by name


class Outcome(NamedTuple):
    """The terms of the whole batch, and its images' positions and embeddings."""

    terms: dict[str, Tensor]
    indices: Tensor  # [N]
    embeddings: Tensor  # [N, D], without gradient


class WholeBatch:
    """Fills in the gradients of network and objective. micro_batch: images that pass the network
    at a time, None for all. backward, autocast: how the total is taken back, and what the network
    runs under, for half precision.

        in chunks          micro_batch images at a time: large batches fit a small memory
        several processes  each with its share of the batch

    Both cut the way at the rows the objective needs of each image. The rows of all images come
    first, in chunks without a graph; the objective on all of them gives the gradient of every row;
    each chunk then runs again, with the same random state, and takes the gradient of its rows back
    through the network (GradCache: L. Gao et al., Scaling Deep Contrastive Learning Batch Size
    under Memory Limited Setup, RepL4NLP 2021, https://arxiv.org/abs/2101.06983). Pair losses, whose
    terms reach across chunks, get the gradient of the trainer's plain step: no other way of
    accumulating does that.
    """

    def __init__(
        self,
        network: Network,
        objective: MinedObjective,
        processes: Processes | None = None,
        micro_batch: int | None = None,
        backward: Callable[[Tensor], None] = Tensor.backward,
        autocast: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        self.network, self.objective = network, objective
        self.backward, self.autocast = backward, autocast
        self.processes, self.micro_batch = processes or Processes(), micro_batch
        if micro_batch is not None and micro_batch < 1:
            raise ValueError(f"micro_batch must be at least 1, got {micro_batch}")
        self.is_chunked = self.processes.are_several or micro_batch is not None
        if self.is_chunked:
            refuse_batch_statistics(network, micro_batch)

    def __call__(self, images: Tensor, labels: Tensor, indices: Tensor, seed: int) -> Outcome:
        """`images` and so on are this process's share; torch's global generator is reseeded."""
        size = self.micro_batch or len(images)
        chunks = images.split(size)
        with torch.set_grad_enabled(len(chunks) == 1):  # a lone chunk need not run again
            first = [self._rows(chunk, seed, number) for number, chunk in enumerate(chunks)]
        own = {name: torch.cat([rows[name] for rows in first]) for name in first[0]}
        outcome, gradients = self._objective(own, labels, indices, seed)
        split = {name: gradient.split(size) for name, gradient in gradients.items()}
        for number, chunk in enumerate(chunks):
            rows = first[0] if len(chunks) == 1 else self._rows(chunk, seed, number)
            reached = [name for name in gradients if rows[name].requires_grad]
            torch.autograd.backward(
                [rows[name] for name in reached], [split[name][number] for name in reached]
            )
        self._sum()
        return outcome

    def takes_at_once(self, num_images: int) -> bool:
        """Whether a batch of so many images is one part: the trainer's plain step does."""
        return not self.processes.are_several and (self.micro_batch or num_images) >= num_images

    def gathered(self, batch: Batch) -> Batch:
        """The batch of all processes."""
        lengths = self.processes.lengths(len(batch.labels), batch.labels.device)
        tensors = (tensor.to(batch.labels.device) for tensor in batch)
        return Batch(*(self.processes.gather(tensor, lengths) for tensor in tensors))

    def _rows(self, images: Tensor, seed: int, number: int) -> Rows:
        """What the objective needs of each image of a chunk."""
        # every process and chunk draws its own, and the same when a chunk runs again
        mixed = np.random.SeedSequence([seed, self.processes.rank, number])
        reseed(int(mixed.generate_state(1, np.uint64)[0]), images.device)
        with self.autocast():
            output = self.network(images)
            halves = self.objective.local_halves(output)
        rows = {"embeddings": output.embeddings, "pooled": output.pooled}
        if output.heads is not None:
            rows["heads"] = output.heads
        return {name: full_precision(row) for name, row in rows.items()} | halves

    def _objective(
        self, own: Rows, labels: Tensor, indices: Tensor, seed: int
    ) -> tuple[Outcome, Rows]:
        """The objective on the rows of all processes, and the gradient of the own rows."""
        lengths = self.processes.lengths(len(labels), labels.device)
        every = {name: self.processes.gather(rows.detach(), lengths) for name, rows in own.items()}
        labels = self.processes.gather(labels, lengths)
        indices = self.processes.gather(indices.to(labels.device), lengths).cpu()
        leaves = {name: rows.requires_grad_() for name, rows in every.items()}
        output = Output(leaves["embeddings"], leaves["pooled"], heads=leaves.get("heads"))
        reseed(seed, labels.device)  # every process draws alike
        with self.autocast():
            terms = self.objective.terms(output, leaves, labels, indices)
        self.backward(terms["total"])
        start = sum(lengths[: self.processes.rank])
        place = slice(start, start + lengths[self.processes.rank])
        gradients = {
            name: leaf.grad[place] for name, leaf in leaves.items() if leaf.grad is not None
        }
        return Outcome(terms, indices, leaves["embeddings"].detach()), gradients

    def _sum(self) -> None:
        local = list(self.objective.local_parameters())
        known = {id(parameter) for parameter in local}
        sharded = self.objective.sharded()  # each process has the gradient of its own rows
        whole = [
            p
            for name, p in self.objective.named_parameters()
            if id(p) not in known and name not in sharded
        ]
        self.processes.sum_gradients([*self.network.parameters(), *local], whole)


def reseed(seed: int, device: torch.device) -> None:
    """The generator of the device alone: `torch.manual_seed` also formats the whole stack for each
    kind of device that has not been used, which takes a good part of a short step."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        with torch.cuda.device(device):  # it seeds the current one, which need not be the run's
            torch.cuda.manual_seed(seed)


def refuse_batch_statistics(network: nn.Module, micro_batch: int | None) -> None:
    """Statistics of a part of the batch are not those of the batch."""
    was_training = network.training
    network.train()
    # those of GPUs may be shared by all processes, but not by chunks that come one after the other
    shared = nn.SyncBatchNorm if micro_batch is None else ()
    moving = [n for n in batch_norms(network) if n.training and not isinstance(n, shared)]
    network.train(was_training)
    if moving:
        parts = "several processes" if micro_batch is None else f"micro_batch={micro_batch}"
        raise ValueError(
            f"with {parts} batch norm would see parts of the batch, and the result would depend on "
            "how it is cut: set frozen_bn=stats or frozen_bn=full, or choose a backbone without "
            "batch norm (small_conv, vision transformers)"
        )
