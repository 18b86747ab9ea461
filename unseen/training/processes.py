"""Several processes that together compute what one would; only this file says torch.distributed.

Every process embeds its slice of the batch, the embeddings are gathered, and each process evaluates
the same objective on the whole batch. The gather's backward keeps the process's own slice; the
network's gradients are then summed over the processes. The objective's own parameters see the whole
batch everywhere, so their gradients are already equal and are left alone. The sum is the gradient
of one process with the whole batch.

Started by torchrun: `torchrun --nproc-per-node 2 -m unseen train ...`; without it there is one
process.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd import Function

PATIENCE = timedelta(seconds=60)  # a process that says nothing for so long counts as dead


@dataclass(frozen=True)
class Processes:
    """This process among all of them."""

    rank: int = 0
    count: int = 1

    @property
    def is_first(self) -> bool:
        """The one that writes files and prints."""
        return self.rank == 0

    def share(self, total: int) -> slice:
        """This process's part of `total` items; the parts follow each other in rank order."""
        return slice(self.rank * total // self.count, (self.rank + 1) * total // self.count)

    def gather(self, x: Tensor, total: int) -> Tensor:
        """All processes' rows, in rank order; the gradient of the own rows comes back."""
        if self.count == 1:
            return x
        gathered: Tensor = _Gather.apply(x, self, total)
        return gathered

    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Adds up the gradients of all processes, in one message."""
        if self.count == 1:
            return
        gradients = [p.grad for p in parameters if p.grad is not None]
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        dist.all_reduce(flat)
        offset = 0
        for gradient in gradients:
            gradient.copy_(flat[offset : offset + gradient.numel()].view_as(gradient))
            offset += gradient.numel()

    def wait(self) -> None:
        """Until all processes are here."""
        if self.count > 1:
            dist.barrier()

    def leave(self) -> None:
        if self.count > 1:
            dist.destroy_process_group()


class _Gather(Function):
    """Rows of all processes forward, the own rows' gradient backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, processes: Processes, total: int) -> Tensor:
        ctx.own = processes.share(total)
        whole = x.new_zeros((total, *x.shape[1:]))
        whole[ctx.own] = x
        dist.all_reduce(whole)  # slices may differ in length, which all_gather does not allow
        return whole

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return gradients[0][ctx.own], None, None


def join(device: torch.device) -> Processes:
    """Joins the group torchrun started, or stands alone."""
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if count == 1:
        return Processes()
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=PATIENCE)
    return Processes(dist.get_rank(), count)


def check_batch_norm(network: nn.Module, processes: Processes) -> None:
    """Batch statistics of a slice are not those of the batch: refused where they would be used."""
    trained = [
        name
        for name, module in network.named_modules()
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.training
    ]
    if processes.count > 1 and trained:
        raise ValueError(
            f"batch norm ({trained[0]}, ...) would see {processes.count} slices of the batch: "
            "freeze it, choose a network without it, or use one process"
        )
