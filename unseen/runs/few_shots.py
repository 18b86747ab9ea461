"""Few-shot evaluation: some labelled images of each test class adapt the last linear layer of a
trained run, or low-rank adapters."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from unseen.config import build
from unseen.config.build_relevance import check_by_class
from unseen.config.resolve import USUAL_LR
from unseen.config.tables import Adapter
from unseen.core.contracts import Output
from unseen.core.names import by_front_end, known
from unseen.core.statistics import Interval, crossed
from unseen.evaluation.evaluate import Evaluation, evaluate
from unseen.evaluation.retrieval_task import RetrievalTask
from unseen.evaluation.training_gain import ALL, FIRST, Gain
from unseen.models.lora import adaptable, hang, merge
from unseen.models.network import EmbeddingNetwork, LayeredNetwork
from unseen.runs.batch_source import source_of
from unseen.runs.prepare import Callbacks, RunContext, computing
from unseen.runs.run_networks import stored_network
from unseen.training.optimizers import ScheduledOptimizer, constant, create_optimizer
from unseen.training.run_folder import RunFolder

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
        prefix, _ = build.freeze(config, network)
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


FILE = "few_shots.json"
EPISODES, STEPS = 10, 50
METRICS = (FIRST, ALL)
LEFT = 2  # images a class keeps at least: one asks, one answers


@dataclass(frozen=True)
class FewShots:
    """Scores before and after adapting, means over episodes; `gain` has the interval of what it
    adds. classes: that gave shots; too_small: that could not. adapt: what they adapted."""

    shots: int
    episodes: int
    steps: int
    classes: int
    too_small: int
    before: dict[str, Interval]
    after: dict[str, Interval]
    gain: dict[str, Gain]
    adapt: str

    @property
    def name(self) -> str:
        """5, or 5 (lora)"""
        return f"{self.shots}{noted(self.adapt)}"


@dataclass(frozen=True)
class Episode:
    """Positions among the test items."""

    shots: Tensor  # [C, shots]
    rest: Tensor  # rising


@dataclass(frozen=True)
class Evaluated:
    """An episode's scores of the same queries, and their classes."""

    before: Evaluation
    after: Evaluation
    labels: Tensor  # [Q]


@dataclass(frozen=True)
class _Tables:
    """A metric by episode and class, and how many queries a class has."""

    before: NDArray[np.float64]  # [E, C]
    after: NDArray[np.float64]  # [E, C]
    counts: NDArray[np.float64]  # [C]


def few_shots(
    context: RunContext,
    folder: RunFolder,
    shots: int,
    callbacks: Callbacks,
    episodes: int = EPISODES,
    steps: int = STEPS,
    adapt: str = LAST,
) -> FewShots:
    """Adapts a trained run in each episode, evaluates before and after, and keeps it in the
    folder.

    An episode draws `shots` images of each test class, from (seed, episode); they leave queries
    and gallery, so before and after are evaluated on the same other images. A class that would
    keep fewer than two gives none. Steps and rate are resolved beforehand, and the run stays
    what it was. `gain` has the 95 % interval of the mean gain over episodes and classes
    (`statistics.crossed`). The manifest notes the access to the test classes and their labels.

    Example:
        few_shots(context, folder, 5, callbacks).gain["recall@1"]
    """
    if shots < 1:
        raise ValueError(f"shots must be at least 1, got {shots}")
    check_by_class("few shots", context.relevance.kind)
    if context.relevance.kind == "levels":
        callbacks.warn("few shots adapt and are evaluated by class; its levels are not looked at")
    kind = KINDS[known(adapt, KINDS, "way to adapt")]
    layers = kind(context, stored_network(context, folder).eval(), callbacks)
    test = context.split.test
    purpose = f"{episodes} episodes of {shots} labelled shots{noted(adapt)}"
    folder.note_test_read(purpose, context.config.hash())
    with computing(context):
        labels = torch.from_numpy(context.dataset.labels[test])
        task, progress = context.retrieval_task(test), callbacks.of("episodes")
        evaluated: list[Evaluated] = []
        for number in range(episodes):
            episode = drawn(labels, shots, [context.config.training.seed, number])
            evaluated.append(_evaluated(context, task, layers, episode, steps))
            progress(number + 1, episodes)
    classes = len(episode.shots)
    tables = {metric: _tables(evaluated, metric) for metric in METRICS}
    result = FewShots(
        shots,
        episodes,
        steps,
        classes,
        too_small=len(labels.unique()) - classes,
        before={metric: _score(table.before, table.counts) for metric, table in tables.items()},
        after={metric: _score(table.after, table.counts) for metric, table in tables.items()},
        gain={metric: _gain(table) for metric, table in tables.items()},
        adapt=adapt,
    )
    folder.write_json(FILE, {"by_shots": read_few_shots(folder) | {result.name: result}})
    return result


@dataclass(frozen=True)
class StoredShots:
    """What the file holds."""

    by_shots: dict[str, FewShots]


def read_few_shots(folder: RunFolder) -> dict[str, FewShots]:
    """By their names; nothing where none were drawn."""
    return folder.read(FILE, StoredShots).by_shots if folder.has(FILE) else {}


def drawn(labels: Tensor, shots: int, seed: Sequence[int]) -> Episode:
    """Some items of each class that can spare them."""
    generator = np.random.default_rng([*seed, 0x5407])
    rows = []
    for label in labels.unique().tolist():
        own = (labels == label).nonzero()[:, 0].numpy()
        chosen = generator.permutation(own)[:shots]  # drawn also where it is too small: the
        rows += [chosen] if len(own) >= shots + LEFT else []  # others' draws do not depend on it
    if not rows:
        raise ValueError(
            f"no test class has the {shots + LEFT} images that {shots} shots and {LEFT} others "
            "make: ask for fewer shots"
        )
    table = torch.from_numpy(np.stack(rows))
    keep = torch.ones(len(labels), dtype=torch.bool)
    keep[table.flatten()] = False
    return Episode(table, keep.nonzero()[:, 0])


def _evaluated(
    context: RunContext, task: RetrievalTask, layers: ShotLayers, episode: Episode, steps: int
) -> Evaluated:
    rest = task.of(episode.rest)

    def score(embeddings: Tensor) -> Evaluation:
        return evaluate(
            **rest.arguments(embeddings),
            metrics=METRICS,
            normalize=context.config.evaluation.normalize,
            missing="count",
            non_finite="worst",
            resamples=0,
        )

    before, after = layers.evaluated(episode.shots, episode.rest, steps)
    return Evaluated(score(before), score(after), rest.query_labels())


def _tables(evaluated: Sequence[Evaluated], metric: str) -> _Tables:
    """Of the classes that every episode has values of."""
    classes = torch.cat([each.labels for each in evaluated]).unique()
    sums = np.zeros((2, len(evaluated), len(classes)))
    counts = np.zeros(sums.shape[1:])
    for row, each in enumerate(evaluated):
        known = ~each.before.per_query[metric].isnan()
        place = torch.searchsorted(classes, each.labels[known])
        counts[row] = torch.bincount(place, minlength=len(classes)).numpy()
        for side, scores in enumerate((each.before, each.after)):
            values = scores.per_query[metric][known]
            sums[side, row] = torch.bincount(place, values, minlength=len(classes)).numpy()
    whole = (counts > 0).all(axis=0)
    means = sums[:, :, whole] / counts[:, whole]
    return _Tables(means[0], means[1], counts[:, whole].mean(axis=0))


def _score(table: NDArray[np.float64], counts: NDArray[np.float64]) -> Interval:
    result = crossed(table, counts)
    return Interval(result.value, result.low, result.high)


def _gain(table: _Tables) -> Gain:
    result = crossed(table.after - table.before, table.counts)
    before = crossed(table.before, table.counts).value
    return Gain(before, before + result.value, result.low, result.high)
