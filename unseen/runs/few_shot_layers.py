"""The layers that a few labelled images adapt: the last linear one, or low-rank adapters."""

import copy
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from unseen.config import build
from unseen.config.resolve import USUAL_LR
from unseen.config.tables import Adapter
from unseen.core.contracts import Output
from unseen.core.names import by_front_end
from unseen.models.lora import adaptable, hang, merge
from unseen.models.network import EmbeddingNetwork, LayeredNetwork
from unseen.runs.batch_source import source_of
from unseen.runs.prepare import Callbacks, RunContext
from unseen.training.optimizers import ScheduledOptimizer, constant, create_optimizer

LAST, LORA = "last", "lora"
MOST = 512  # images in a step, of the last layer; adapters take the run's batches


class ShotLayers(Protocol):
    """Layers that shots move. The test items are read by `evaluated` alone.

    Both kinds start from the trained values and take the loss, miner and optimizer of the run,
    with fresh class parameters where the loss has some, and its learning rate.
    """

    def evaluated(self, shots: Tensor, rest: Tensor, steps: int) -> tuple[Tensor, Tensor]:
        """Embeddings of some test items before and after so many steps on others [C, s]; both are
        positions among the test items."""
        ...


class LastLayer:
    """The last linear layer."""

    def __init__(self, context: RunContext, network: LayeredNetwork, callbacks: Callbacks) -> None:
        last = list(network.head.children())[-1:] if isinstance(network, EmbeddingNetwork) else []
        if not last or not isinstance(last[0], nn.Linear):
            raise ValueError("the run has no linear last layer that shots could adapt")
        self.context, self.network, self.callbacks = context, network, callbacks
        self.layer = last[0]

    @cached_property
    def inputs(self) -> Tensor:  # [n, P]
        """What the layer is given, of the test items."""
        assert isinstance(self.network, EmbeddingNetwork), "checked before"
        source = source_of(self.context, self.network, self.callbacks)
        pooled = self.callbacks.of("embedding test classes")
        inputs = source.embed(self.context.split.test, pooled, field="pooled")
        inputs = inputs.to(self.context.device)
        with torch.no_grad():
            for layer in list(self.network.head.children())[:-1]:
                inputs = layer(inputs)
        self.layer.cpu()
        return inputs.cpu()

    def evaluated(self, shots: Tensor, rest: Tensor, steps: int) -> tuple[Tensor, Tensor]:
        rows = self.inputs[rest]
        moved = adapted(self.context, self.inputs, self.layer, shots, steps)
        with torch.no_grad():
            return self.layer(rows), moved(rows)


class LowRankLayers:
    """Adapters beside the layers; each call begins with new ones."""

    def __init__(self, context: RunContext, network: LayeredNetwork, callbacks: Callbacks) -> None:
        self.context, self.callbacks, config = context, callbacks, context.config
        if config.model.kind in ("ensemble", "preset"):
            raise ValueError(
                "ensembles and net_a to net_f take no adapters: use "
                + by_front_end("--adapt last", f"adapt={LAST!r}")
            )
        request = config.model.adapter or Adapter()
        merge(network)
        prefix, _ = build.cut(config, network)
        frozen = [] if prefix is None else list(prefix.modules())
        layers = adaptable(network, request.layers, frozen)
        network.requires_grad_(False)
        with build.seeded(config.training.seed):
            self.added = hang(layers.values(), request.rank, request.alpha)
        self.source = source_of(context, network, callbacks)
        self.rate = USUAL_LR if config.model.adapter is None else config.optimizer.lr

    @cached_property
    def before(self) -> Tensor:  # [n, D]
        """Embeddings of the test items."""
        return self.source.embed(
            self.context.split.test, self.callbacks.of("embedding test classes")
        )

    def evaluated(self, shots: Tensor, rest: Tensor, steps: int) -> tuple[Tensor, Tensor]:
        before, test, model = self.before[rest], self.context.split.test, self.source.model
        with build.seeded(self.context.config.training.seed):
            for each in self.added:
                each.reset()
        model.eval()

        def output(rows: Tensor) -> Output:
            batches = self.source.batches(test[rows.numpy()])
            images = torch.cat([batch.images for batch in batches])
            return model(images.to(self.context.device))

        moved = [parameter for each in self.added for parameter in each.parameters()]
        most = self.context.config.training.batch_size
        _descend(self.context, shots, steps, output, moved, rate=self.rate, most=most)
        return before, self.source.embed(test[rest.numpy()])


KINDS: dict[str, Callable[[RunContext, LayeredNetwork, Callbacks], ShotLayers]] = {
    LAST: LastLayer,
    LORA: LowRankLayers,
}


def noted(adapt: str) -> str:
    """What is said of shots that adapt more than the last layer."""
    return "" if adapt == LAST else f" ({adapt})"


def adapted(
    context: RunContext, inputs: Tensor, layer: nn.Linear, shots: Tensor, steps: int
) -> nn.Linear:
    """A copy of the last layer, moved by the shots [C, s], which are rows of what it is given."""
    moved = copy.deepcopy(layer).requires_grad_()

    def output(rows: Tensor) -> Output:
        pooled = inputs[rows]
        return Output(moved(pooled), pooled)

    _descend(context, shots, steps, output, list(moved.parameters()))
    return moved.requires_grad_(False)


def _descend(
    context: RunContext,
    shots: Tensor,
    steps: int,
    output: Callable[[Tensor], Output],
    moved: Sequence[nn.Parameter],
    *,
    rate: float | None = None,
    most: int = MOST,
) -> None:
    """Steps on all shots [C, s], or on those of as many classes as make `most`."""
    plain: dict[str, Any] = {"regularizers": [], "memory": None, "label_filter": None}
    config = context.config.with_values(plain)
    rate = config.optimizer.lr if rate is None else rate
    objective = build.objective(config, len(shots)).to(moved[0].device)
    groups = [{"params": list(moved), "lr": rate}, *objective.parameter_groups(rate)]
    optimizer = create_optimizer(config.optimizer.name, groups, config.optimizer.weight_decay)
    scheduled_optimizer = ScheduledOptimizer(optimizer, constant(), config.optimizer.clip_norm)
    generator = torch.Generator().manual_seed(config.training.seed)
    at_once = max(2, min(len(shots), most // shots.shape[1]))
    with build.seeded(config.training.seed):
        for step in range(steps):
            classes = torch.randperm(len(shots), generator=generator)[:at_once]
            labels = classes.repeat_interleave(shots.shape[1]).to(moved[0].device)
            scheduled_optimizer.zero()
            scheduled_optimizer.backward(
                objective(output(shots[classes].flatten()), labels)["total"]
            )
            scheduled_optimizer.step(step)
