"""From a resolved config to objects: the only file that knows both."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from unseen import models, training
from unseen.config.build_relevance import apart, relevance_of
from unseen.config.schema import ResolvedConfig
from unseen.config.tables import Component, NestedSettings, is_on_maps, weighted
from unseen.core import custom_components, registry
from unseen.core.contracts import (
    Dataset,
    EmbeddedSampler,
    FrozenLayers,
    IntArray,
    Network,
    Sampler,
    Split,
    SplitProtocol,
)
from unseen.core.relevance import Relevance
from unseen.data.images import transforms
from unseen.losses.base import LossSum, as_module
from unseen.models.backbone import FEATURES, OWN, create_backbone
from unseen.models.frozen_batch_norm import sync_batch_norm
from unseen.models.head import Head
from unseen.models.network import EmbeddingNetwork, LayeredNetwork
from unseen.protocols.half_split import of_domain
from unseen.training import optimizers
from unseen.training.distributed import Processes
from unseen.training.nested import Nested
from unseen.training.objective import MinedObjective
from unseen.training.optimizers import (
    SHARDED,
    Group,
    ScheduledOptimizer,
    create_optimizer,
    network_groups,
)
from unseen.training.trainer import Mixup, Trainer

if TYPE_CHECKING:
    from unseen.evaluation.shift_splits import ShiftSplits
    from unseen.training.cross_batch_memory import CrossBatchMemory


@dataclass(frozen=True)
class Components:
    """All that trains. `model` takes the output of `frozen`: activations at the freeze point;
    without one it is the network, which takes images or features."""

    network: LayeredNetwork
    frozen: FrozenLayers | None
    model: Network
    objective: MinedObjective
    trainer: Trainer


def build(
    config: ResolvedConfig,
    num_classes: int,
    steps_per_epoch: int,
    processes: Processes | None = None,
    relevance: Relevance | None = None,
) -> Components:
    """Network, objective and trainer, at their start; random values come from the config's seed."""
    net, machine = network(config), config.training.machine
    if processes is not None and processes.are_several and machine.device != "cpu":
        net = sync_batch_norm(net)
    prefix, model = freeze(config, net)
    priced = objective(config, num_classes, net, processes, relevance)
    trainer = Trainer(
        model,
        priced,
        scheduled_optimizer(config, net, priced, steps_per_epoch, processes),
        torch.device(machine.device),
        config.training.seed,
        mixup(config, net),
        config.training.ema,
        processes,
        machine.micro_batch,
    )
    return Components(net, prefix, model, priced, trainer)


def freeze(config: ResolvedConfig, net: LayeredNetwork) -> tuple[FrozenLayers | None, Network]:
    """The layers that run only once, and those after them, which are trained; freezes the first."""
    if config.model.frozen.freeze_until is None:
        return None, net
    return models.split_network(net, config.model.frozen.freeze_until)


def protocol(config: ResolvedConfig) -> SplitProtocol:
    """How the classes are divided."""
    settings = config.evaluation.protocol
    shift = {} if settings.shift is None else settings.shift.model_dump()
    made: SplitProtocol = registry.create(
        "protocols",
        settings.name,
        validation_fraction=settings.validation_fraction,
        split_seed=settings.split_seed,
        folds=settings.folds,
        **shift,
    )
    return made


def shift_splits(config: ResolvedConfig, data: Dataset) -> "ShiftSplits | None":
    """The stages that a run's split is a step of; None: of no one."""
    made: Any = None if config.evaluation.protocol.shift is None else protocol(config)
    return None if made is None else made.splits(data)


def shift(config: ResolvedConfig, data: Dataset) -> float | None:
    """The distance between training and test classes, where it was measured."""
    stages, settings = shift_splits(config, data), config.evaluation.protocol.shift
    return None if stages is None or settings is None else stages.at(settings.step).distance


def split(
    config: ResolvedConfig, data: Dataset, log: Callable[[str], None] = lambda text: None
) -> Split:
    """Class-disjoint train, validation and test items; `log` receives how many items are left out
    because they are the same as some of another subset. With `select = "test"` nothing is set aside
    for validation: as in the papers that do so, all training classes are trained on."""
    settings = config.evaluation.protocol
    sharded = protocol(config)(data, config.training.seed)[settings.fold]
    parts, left_out = apart(sharded, relevance_of(config, data))
    if left_out:
        log(f"left out, because labels of theirs are on both sides of the split: {left_out} items")
    if settings.train_domain is not None:
        parts = of_domain(data, parts, settings.train_domain)
    if config.training.validation.select == "validation":
        return parts
    everything = np.sort(np.concatenate([parts.train, parts.validation]))
    return replace(parts, train=everything, validation=parts.validation[:0])


def network(config: ResolvedConfig) -> LayeredNetwork:
    """The network with its starting weights, adapters among them."""
    with seeded(config.training.seed):
        made = _network(config)
        if config.model.adapter is not None:
            prefix, _ = freeze(config, made)
            frozen = [] if prefix is None else list(prefix.modules())
            values = config.model.adapter.model_dump(exclude={"name"})
            models.adapt(made.backbone, **values, frozen=frozen)
    return made


def _network(config: ResolvedConfig) -> LayeredNetwork:
    model, image_size = config.model, config.data.image_size
    frozen_bn = model.frozen.frozen_bn
    if model.kind == "custom":
        features = model.backbone.removeprefix(FEATURES)
        num_inputs = int(features) if features != model.backbone else None
        return models.create_custom_network(
            model.network, image_size, num_inputs, frozen_bn, model.weights
        )
    if model.kind == "preset":
        return models.create_preset(
            model.network, model.backbone, image_size, model.weights, frozen_bn
        )
    pooling = model.pooling or OWN
    backbone = create_backbone(
        model.backbone, image_size, model.weights, pooling, frozen_bn, model.mirror
    )
    if model.ensemble is not None:
        values = model.ensemble.model_dump()
        return models.AttentionEnsemble(backbone, model.embedding_size, **values)
    values = {} if model.head is None else model.head.model_dump()
    if values.get("start") == "auto":  # not resolved: weights will be loaded, no start is needed
        values["start"] = "default"
    head = Head(backbone.num_features, model.embedding_size, **values)
    return EmbeddingNetwork(backbone, head, model.embedding_size)


def objective(
    config: ResolvedConfig,
    num_classes: int,
    net: LayeredNetwork | None = None,
    processes: Processes | None = None,
    relevance: Relevance | None = None,
) -> MinedObjective:
    """Miner, loss and regularizers for `num_classes` training classes; regularizers on maps also
    need the network. Each component draws its starting values alone: none changes those of another.
    The learners of an ensemble have losses of their own, at their size; regularizers see its
    embedding whole, and the maps of its learners together, reduced to the channels of one."""
    seed = config.training.seed
    model = config.model
    num_heads = model.ensemble.num_heads if model.ensemble is not None else 1
    context: dict[str, Any] = {"num_classes": num_classes, "shards": processes}
    context |= {"embedding_size": model.embedding_size}

    def create(kind: str, component: Component, **more: Any) -> Any:
        return registry.create(
            kind, component.name, component.values, component.preset, **(context | more)
        )

    def miner(seed: int) -> Any:
        return create("miners", config.miner, seed=seed) if config.miner is not None else None

    def loss(embedding_size: int) -> Any:
        more = {"embedding_size": embedding_size, "seed": seed}
        made = [create("losses", component, **more) for component in config.losses]
        return made[0] if len(made) == 1 else LossSum(made, config.loss_weights)

    def regularizer(component: Component) -> Any:
        for_maps: dict[str, Any] = {}
        if net is not None:
            _refuse_frozen_maps(config, component, net)
            channels, pooled = net.backbone.num_channels, num_heads * net.backbone.num_features
            for_maps = {"num_channels": num_heads * channels, "num_features": pooled}
            for_maps["reduce"] = None if model.ensemble is None else channels
        own = {"make_loss": loss, "miner": miner(seed + 1), "seed": seed}
        with seeded(seed + 2):
            return create("regularizers", component, **own, **for_maps)

    with seeded(seed + 1):
        size = model.embedding_size // num_heads
        main = loss(size) if model.nested is None else _nested(model.nested, loss)
    names = _numbered([each.name for each in config.regularizers])
    parts = [
        (
            name,
            float(weighted(component, model.ensemble is not None).weight or 0),
            regularizer(component),
        )
        for name, component in zip(names, config.regularizers, strict=True)
    ]
    filtering = _label_filter(config, num_classes)
    return MinedObjective(main, miner(seed), parts, _memory(config), relevance, filtering)


def _nested(nested: NestedSettings, make_loss: Callable[[int], Any]) -> Nested:
    losses = {size: as_module(make_loss(size), 3) for size in nested.sizes}
    return Nested(losses, nested.weights)


def _memory(config: ResolvedConfig) -> "CrossBatchMemory | None":
    if config.training.memory is None:
        return None
    if config.model.ensemble is not None:
        raise ValueError("memory holds one embedding per image: use ensemble=none or memory=none")
    from unseen.training.cross_batch_memory import CrossBatchMemory  # noqa: PLC0415 - few ask for it

    values = config.training.memory.model_dump()
    return CrossBatchMemory(embedding_size=config.model.embedding_size, **values)


def _label_filter(config: ResolvedConfig, num_classes: int) -> torch.nn.Module | None:
    if config.training.label_filter is None:
        return None
    from unseen.training.prism import Prism  # noqa: PLC0415 - few ask for it

    values = config.training.label_filter.model_dump(exclude={"name"})
    return Prism(num_classes, config.model.embedding_size, **values)


def mixup(config: ResolvedConfig, net: LayeredNetwork) -> Mixup | None:
    """Manifold mixup, where the config asks for it."""
    if not config.training.manifold_mixup:
        return None
    values = config.training.manifold_mixup.model_dump()
    return training.ManifoldMixup(net, **values, seed=config.training.seed)


def _numbered(names: list[str]) -> list[str]:
    """A name that comes again gets a number: entropy, entropy_2."""
    times = [names[:place].count(name) + 1 for place, name in enumerate(names)]
    return [f"{n}_{t}" if t > 1 else n for n, t in zip(names, times, strict=True)]


def sampler(
    config: ResolvedConfig,
    items: IntArray,
    labels: IntArray,
    relevance: Relevance | None = None,
    domains: IntArray | None = None,
) -> Sampler:
    """The batch sampler over the training items; labels and domains are those of all items."""
    component, classes = config.sampler, labels[items]
    if relevance is not None:
        items, classes = relevance.drawn(items, classes)
    made: Sampler = registry.create(
        "samplers",
        component.name,
        component.values,
        component.preset,
        items=items,
        labels=classes,
        domains=None if domains is None else domains[items],
        batch_size=config.training.batch_size,
        normalize=config.evaluation.normalize,
        seed=config.training.seed,
    )
    if not hasattr(made, "set_epoch"):
        raise ValueError(
            f"{custom_components.short_name(component.name)} is no sampler of batches "
            "(unseen.core.contracts.Sampler: "
            "set_epoch, and lists of positions); m items of each class are "
            'sampler={"name": "m_per_class", "per_class": m}'
        )
    if relevance is not None and not relevance.has_classes and isinstance(made, EmbeddedSampler):
        names = [n for n in registry.names("samplers") if not is_embedded(n)]
        raise ValueError(
            f"{component.name} cannot take relevance.kind={relevance.kind}; the samplers that can: "
            f"{', '.join(names)}"
        )
    return made


def is_embedded(name: str) -> bool:
    """Whether a sampler looks at embeddings, one of each item."""
    return hasattr(registry.find("samplers", name), "fill")


def image_transforms(
    config: ResolvedConfig, net: LayeredNetwork, size: int | None = None
) -> tuple[Any, Any]:
    """The training and the evaluation transform, with the network's size (or another) and
    normalisation; features have none."""
    transform = config.data.transform
    if transform.name is None:
        return None, None
    spec, name = net.backbone.input_spec, transform.name
    more = (spec.mean, spec.std, transform.smallest_crop, spec.resizing)
    return transforms.named(name, size or spec.size, *more)


def schedule(config: ResolvedConfig, steps_per_epoch: int) -> Callable[[int], float]:
    """The learning rate's factor at each step."""
    settings = config.optimizer.schedule
    if settings.name == "cosine":
        return optimizers.cosine(config.training.epochs * steps_per_epoch)
    if settings.name == "step":
        milestones = [epoch * steps_per_epoch for epoch in settings.milestones]
        return optimizers.stepwise(milestones, settings.gamma)
    return optimizers.constant()


def scheduled_optimizer(
    config: ResolvedConfig,
    net: LayeredNetwork,
    priced: MinedObjective,
    steps_per_epoch: int,
    processes: Processes | None = None,
) -> ScheduledOptimizer:
    """The optimiser of the network's and the objective's parameters, and how it steps."""
    settings = config.optimizer
    groups = network_groups(net, settings.lr, settings.backbone_factor, settings.layer_decay)
    groups += _with_sharded(priced.parameter_groups(settings.lr), priced)
    if config.training.precision == "fp16" and priced.sharded():
        raise ValueError(
            "fp16 scales gradients in each process by itself, and class centres divided among "
            "several must move together: use precision=bf16 or float32, or no loss.sample_rate"
        )
    momentum = {} if settings.momentum is None else {"momentum": settings.momentum}
    return ScheduledOptimizer(
        create_optimizer(settings.name, groups, settings.weight_decay, **momentum),
        schedule(config, steps_per_epoch),
        settings.clip_norm,
        config.training.precision,
        torch.device(config.training.machine.device).type,
        processes,
    )


def _with_sharded(groups: list[Group], priced: MinedObjective) -> list[Group]:
    """Groups of class centres that other processes hold other rows of say so."""
    parameters = dict(priced.named_parameters())
    sharded = {id(parameters[name]) for name in priced.sharded()}
    if not sharded:
        return groups
    return [g | {SHARDED: any(id(p) in sharded for p in g["params"])} for g in groups]


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Layers draw starting values from torch's global generator: lend it a seed, put it back."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def _refuse_frozen_maps(config: ResolvedConfig, component: Component, net: torch.nn.Module) -> None:
    """A regularizer on the last map moves nothing when all layers up to it are frozen."""
    body: Any = net.get_submodule("backbone.body")
    layer = config.model.frozen.freeze_until
    if is_on_maps(component) and not any(p.requires_grad for p in body.parameters()):
        raise ValueError(
            f"regularizer {component.name} acts on the last map, and with freeze_until = {layer} "
            "nothing before it is trained: freeze fewer layers, or leave it out"
        )
