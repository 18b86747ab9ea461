"""What a few labelled pictures may move of a trained network, from its trained values on.

last   its last linear layer; all before it is computed once
lora   matrices of low rank (`networks/lora.py`) beside its linear layers and 1x1 convolutions after
       the cut, those of the head among them; all else stays. Rank, alpha and layers are those of
       the run's adapter, or the usual ones; what the run's own adapter has learned is part of the
       layers. Every step and every judgement goes through the network

Both take the run's own loss, miner and optimiser, with fresh class parameters where the loss has
some, and its learning rate; adapters that the run did not have take the usual one of adapters.
"""

import copy
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from unseen import assemble
from unseen.config_tables import Adapter
from unseen.contracts import Output
from unseen.experiment.run_context import RunContext, Watch
from unseen.experiment.source import source_of
from unseen.networks.lora import adaptable, hang, merge
from unseen.networks.network import EmbeddingNetwork, LayeredNetwork
from unseen.settle import USUAL_LR
from unseen.training.optimisers import Descent, constant, create_optimiser

LAST, LORA = "last", "lora"
MOST = 512  # pictures in a step, of the last layer; adapters take the run's batches


class ShotLayers(Protocol):
    """Layers that shots move. The test items are read by `judged` alone."""

    def judged(self, shots: Tensor, rest: Tensor, steps: int) -> tuple[Tensor, Tensor]:
        """Embeddings of some test items before and after so many steps on others [C, s]; both are
        positions among the test items."""
        ...


class LastLayer:
    """The last linear layer."""

    def __init__(self, context: RunContext, network: LayeredNetwork, watch: Watch) -> None:
        last = list(network.head.children())[-1:] if isinstance(network, EmbeddingNetwork) else []
        if not last or not isinstance(last[0], nn.Linear):
            raise ValueError("the run has no linear last layer that shots could adapt")
        self.context, self.network, self.watch = context, network, watch
        self.layer = last[0]

    @cached_property
    def given(self) -> Tensor:  # [n, P]
        """What the layer is given, of the test items."""
        assert isinstance(self.network, EmbeddingNetwork), "checked before"
        source = source_of(self.context, self.network, self.watch)
        pooled = self.watch.of("embedding test classes")
        given = source.embed(self.context.split.test, pooled, field="pooled")
        given = given.to(self.context.device)
        with torch.no_grad():
            for layer in list(self.network.head.children())[:-1]:
                given = layer(given)
        self.layer.cpu()
        return given.cpu()

    def judged(self, shots: Tensor, rest: Tensor, steps: int) -> tuple[Tensor, Tensor]:
        rows = self.given[rest]
        moved = adapted(self.context, self.given, self.layer, shots, steps)
        with torch.no_grad():
            return self.layer(rows), moved(rows)


class LowRankLayers:
    """Adapters beside the layers; each call begins with new ones."""

    def __init__(self, context: RunContext, network: LayeredNetwork, watch: Watch) -> None:
        self.context, self.watch, config = context, watch, context.config
        if config.ensemble is not None or config.has_preset_network:
            raise ValueError("ensembles and net_a to net_f take no adapters: use --adapt last")
        asked = config.adapter or Adapter()
        merge(network)
        prefix, _ = assemble.cut(config, network)
        frozen = [] if prefix is None else list(prefix.modules())
        layers = adaptable(network, asked.layers, frozen)
        network.requires_grad_(False)
        with assemble.seeded(config.seed):
            self.added = hang(layers.values(), asked.rank, asked.alpha)
        self.source = source_of(context, network, watch)
        self.rate = USUAL_LR if config.adapter is None else config.lr

    @cached_property
    def before(self) -> Tensor:  # [n, D]
        """Embeddings of the test items."""
        return self.source.embed(self.context.split.test, self.watch.of("embedding test classes"))

    def judged(self, shots: Tensor, rest: Tensor, steps: int) -> tuple[Tensor, Tensor]:
        before, test, model = self.before[rest], self.context.split.test, self.source.model
        with assemble.seeded(self.context.config.seed):
            for each in self.added:
                each.reset()
        model.eval()

        def output(rows: Tensor) -> Output:
            batches = self.source.batches(test[rows.numpy()])
            images = torch.cat([batch.images for batch in batches])
            return model(images.to(self.context.device))

        moved = [parameter for each in self.added for parameter in each.parameters()]
        most = self.context.config.batch_size
        _descend(self.context, shots, steps, output, moved, rate=self.rate, most=most)
        return before, self.source.embed(test[rest.numpy()])


KINDS: dict[str, Callable[[RunContext, LayeredNetwork, Watch], ShotLayers]] = {
    LAST: LastLayer,
    LORA: LowRankLayers,
}


def noted(adapt: str) -> str:
    """What is said of shots that adapt more than the last layer."""
    return "" if adapt == LAST else f" ({adapt})"


def adapted(
    context: RunContext, given: Tensor, layer: nn.Linear, shots: Tensor, steps: int
) -> nn.Linear:
    """A copy of the last layer, moved by the shots [C, s], which are rows of what it is given."""
    moved = copy.deepcopy(layer).requires_grad_()

    def output(rows: Tensor) -> Output:
        pooled = given[rows]
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
    config = context.config.model_copy(update=plain)
    rate = config.lr if rate is None else rate
    objective = assemble.objective(config, len(shots)).to(moved[0].device)
    groups = [{"params": list(moved), "lr": rate}, *objective.parameter_groups(rate)]
    optimiser = create_optimiser(config.optimiser.name, groups, config.weight_decay)
    descent = Descent(optimiser, constant(), config.optimiser.clip_norm)
    generator = torch.Generator().manual_seed(config.seed)
    at_once = max(2, min(len(shots), most // shots.shape[1]))
    with assemble.seeded(config.seed):
        for step in range(steps):
            classes = torch.randperm(len(shots), generator=generator)[:at_once]
            labels = classes.repeat_interleave(shots.shape[1]).to(moved[0].device)
            descent.zero()
            descent.backward(objective(output(shots[classes].flatten()), labels)["total"])
            descent.step(step)
