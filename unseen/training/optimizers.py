"""Optimizers by name, and one step of them: scaled, clipped, scheduled."""

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from unseen.training.distributed import Processes

Optimizer = Literal["adamw", "adam", "sgd"]
Precision = Literal["float32", "bf16", "fp16"]
Group = dict[str, Any]
SHARDED = "sharded"  # a group of which other processes hold other rows
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def network_groups(
    network: Any, lr: float, backbone_factor: float, layer_decay: float = 1.0
) -> list[Group]:
    """The network's trainable parameters: new layers at `lr`, pretrained ones at a factor of it.
    A warm-up tells them apart: it trains the new ones alone. layer_decay: layer l of 0..L has

        lr * backbone_factor * layer_decay^(L - l)

    by the layers that timm counts (BEiT: H. Bao et al., https://arxiv.org/abs/2106.08254)."""
    network.warm_up(True)
    new = {id(p) for p in network.parameters() if p.requires_grad}
    network.warm_up(False)
    trained = [p for p in network.parameters() if p.requires_grad]
    if backbone_factor == layer_decay == 1:
        return [{"params": trained, "lr": lr}]
    old = [p for p in trained if id(p) not in new]
    depth = {} if layer_decay == 1 else _layers_below_the_last(network.backbone.body)
    below = [depth.get(id(p), 0) for p in old]
    groups = [{"params": [p for p in trained if id(p) in new], "lr": lr}]
    for place in sorted(set(below)):
        rate = lr * backbone_factor * layer_decay**place
        some = [p for p, at in zip(old, below, strict=True) if at == place]
        groups.append({"params": some, "lr": rate})
    return groups


def _layers_below_the_last(body: Any) -> dict[int, int]:
    """Of each parameter (by its identity), how many layers lie between its own and the last."""
    from timm.models import group_parameters  # noqa: PLC0415 - slow to import, seldom needed

    if not hasattr(body, "group_matcher"):
        raise ValueError(
            "optimizer.layer_decay needs a network of timm (backbone=timm:<model>), which says "
            "where its layers end; leave it at 1"
        )
    place: dict[str, int] = group_parameters(body, body.group_matcher(coarse=False), reverse=True)
    last = max(place.values())
    return {id(p): last - place.get(name, last) for name, p in body.named_parameters()}


def create_optimizer(
    name: str, groups: list[Group], weight_decay: float, momentum: float = 0.9
) -> torch.optim.Optimizer:
    """An optimiser of groups that each bring their learning rate.

    Optimisers by name, and one step of them: scaled, clipped, at the learning rate of the moment,
    which is the config's times the factor of a schedule at that step.

    adamw  Adam with weight decay beside the gradient (Psomas)
    adam   Adam with weight decay as an L2 term of the gradient (Roth, HORDE, density adaptivity)
    sgd    with momentum and an L2 term (Vo and Hays)
    """
    groups = [group for group in groups if group["params"]]
    if name == "adamw":
        return torch.optim.AdamW(groups, weight_decay=weight_decay)
    if name == "adam":
        return torch.optim.Adam(groups, weight_decay=weight_decay)
    if name == "sgd":
        return torch.optim.SGD(groups, weight_decay=weight_decay, momentum=momentum)
    raise ValueError(f"optimizer must be one of {', '.join(get_args(Optimizer))}, got {name!r}")


class ScheduledOptimizer:
    """`zero`, then `backward` once or more often, then `step`. clip_norm: the longest gradient of
    all parameters together. precision fp16 scales the loss, so that small gradients survive.
    processes: those that hold the rows of SHARDED groups in parts."""

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        schedule: Callable[[int], float],
        clip_norm: float | None = None,
        precision: Precision = "float32",
        device: str = "cpu",
        processes: Processes | None = None,
    ) -> None:
        self.optimizer, self.schedule, self.clip_norm = optimizer, schedule, clip_norm
        self.processes = processes or Processes()
        self.autocast = lambda: torch.autocast(
            device, DTYPES.get(precision), enabled=precision in DTYPES
        )
        self.scaler = torch.amp.GradScaler(device, enabled=precision == "fp16")
        for group in optimizer.param_groups:
            group["initial_lr"] = group["lr"]

    def zero(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)  # without a gradient there is no decay either

    def backward(self, loss: Tensor) -> None:
        self.scaler.scale(loss).backward()

    def step(self, number: int) -> float:
        """Moves the parameters; returns the gradient's norm before clipping. A norm that is not
        finite moves nothing: with fp16 the scale is lowered, otherwise the caller must stop."""
        self.scaler.unscale_(self.optimizer)
        with touched_rows(self.optimizer):
            groups = self.optimizer.param_groups
            norm = self._norm(groups)
            length = float(norm)
            if math.isfinite(length) or self.scaler.is_enabled():
                if self.clip_norm is not None:
                    moved = [p for group in groups for p in group["params"]]
                    nn.utils.clip_grads_with_norm_(moved, self.clip_norm, norm)
                for group in groups:
                    group["lr"] = group["initial_lr"] * self.schedule(number)
                self.scaler.step(self.optimizer)
                self.scaler.update()
        return length

    def _norm(self, groups: list[Group]) -> Tensor:
        """The length of the gradient of all parameters, those of other processes included."""
        whole, parts = (
            [
                p.grad
                for group in groups
                if group.get(SHARDED, False) == sharded
                for p in group["params"]
                if p.grad is not None
            ]
            for sharded in (False, True)
        )
        norm = nn.utils.get_total_norm(whole)
        if not parts:
            return norm
        others = self.processes.added(nn.utils.get_total_norm(parts).square())
        return (norm.square() + others).sqrt()

    def lr(self, number: int) -> float:
        """The learning rate of the first group at a step."""
        rate: float = self.optimizer.param_groups[0]["initial_lr"] * self.schedule(number)
        return rate

    def state_dict(self) -> dict[str, Any]:
        return {"optimizer": self.optimizer.state_dict(), "scaler": self.scaler.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.optimizer.load_state_dict(state["optimizer"])
        if state["scaler"]:  # empty where nothing is scaled
            self.scaler.load_state_dict(state["scaler"])


def constant() -> Callable[[int], float]:
    """Always 1."""
    return lambda step: 1.0


def cosine(total_steps: int) -> Callable[[int], float]:
    """From 1 to 0 along half a cosine, after a short linear rise (the first 2 % of the steps)."""
    rise = max(1, round(0.02 * total_steps))

    def factor(step: int) -> float:
        if step < rise:
            return (step + 1) / rise
        return 0.5 * (1 + math.cos(math.pi * min(1.0, (step - rise) / max(1, total_steps - rise))))

    return factor


def stepwise(milestones: Sequence[int], gamma: float) -> Callable[[int], float]:
    """Times `gamma` from each milestone (a step) on."""
    rising = sorted(milestones)
    return lambda step: gamma ** bisect_right(rising, step)


@contextmanager
def touched_rows(optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """In the block parameters with sparse gradients are their touched rows, with dense ones.

        with touched_rows(optimiser):
            optimiser.step()

    A parameter with a sparse gradient (of rows: `F.embedding(..., sparse=True)`) is replaced by
    those rows while the block runs, and so is its state: any optimiser of torch moves and decays
    them as it would a parameter of that size. The other rows and their state stay as they are (X.
    An et al., Partial FC, https://arxiv.org/abs/2203.15565); the count of steps is the parameter's.
    """
    replaced = []
    for group in optimizer.param_groups:
        for place, whole in enumerate(group["params"]):
            if whole.grad is not None and whole.grad.is_sparse:
                gradient = whole.grad.coalesce()
                rows = gradient.indices()[0]
                touched = nn.Parameter(whole.detach().index_select(0, rows))
                touched.grad = gradient.values()
                state = optimizer.state.pop(whole, {})
                if state:
                    optimizer.state[touched] = _rows_of(state, whole, rows)
                group["params"][place] = touched
                replaced.append((group["params"], place, whole, touched, rows, state))
    try:
        yield
    finally:
        for params, place, whole, touched, rows, state in replaced:
            params[place] = whole
            moved = optimizer.state.pop(touched, {})
            if moved:
                optimizer.state[whole] = _with_rows(state, moved, whole, rows)
            with torch.no_grad():
                whole.index_copy_(0, rows, touched)


def _rows_of(state: dict[str, Any], whole: Tensor, rows: Tensor) -> dict[str, Any]:
    return {
        name: value.index_select(0, rows) if _is_by_row(value, whole) else value
        for name, value in state.items()
    }


def _with_rows(
    state: dict[str, Any], moved: dict[str, Any], whole: Tensor, rows: Tensor
) -> dict[str, Any]:
    """The state of all rows; of those never touched it is 0."""
    for name, value in moved.items():
        if _is_by_row(value, whole):
            state.setdefault(name, torch.zeros_like(whole)).index_copy_(0, rows, value)
        else:
            state[name] = value
    return state


def _is_by_row(value: Any, whole: Tensor) -> bool:
    return isinstance(value, Tensor) and value.ndim == whole.ndim
