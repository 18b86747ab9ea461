"""Few shots: some labelled pictures of each test class adapt the last layer of a trained run.

    few_shots(context, folder, 5, watch).gain["recall@1"]

episode   `shots` pictures of each test class are drawn, from (seed, episode); they leave queries
          and gallery, so before and after are judged on the same other pictures. A class that
          would keep fewer than two gives none
adapting  the last linear layer alone, from its trained values, by the run's own loss, miner,
          optimiser and learning rate, with fresh class parameters where the loss has some; a fixed
          number of steps, each on all shots (of as many classes as make 512 pictures)
interval  95 % of the mean gain over episodes and classes (`statistics.crossed`)

Nothing is selected by it: steps and rate are settled beforehand, and the run stays what it was. The
reading of the test classes, labels among it, is in the manifest.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from unseen import assemble
from unseen.contracts import Output
from unseen.evaluation.evaluate import Evaluation, evaluate
from unseen.evaluation.gain import ALL, FIRST, Gain
from unseen.evaluation.retrieval_task import RetrievalTask
from unseen.experiment.layers import stored_network
from unseen.experiment.run_context import RunContext, Watch, computing
from unseen.experiment.source import source_of
from unseen.networks.network import EmbeddingNetwork, LayeredNetwork
from unseen.statistics import Interval, crossed
from unseen.training.optimisers import Descent, constant, create_optimiser
from unseen.training.run_folder import RunFolder

FILE = "few_shots.json"
EPISODES, STEPS = 10, 50
METRICS = (FIRST, ALL)
MOST = 512  # pictures in a step
LEFT = 2  # pictures a class keeps at least: one asks, one answers


@dataclass(frozen=True)
class FewShots:
    """Scores before and after adapting, means over episodes; `gain` has the interval of what it
    adds. classes: that gave shots; too_small: that could not."""

    shots: int
    episodes: int
    steps: int
    classes: int
    too_small: int
    before: dict[str, Interval]
    after: dict[str, Interval]
    gain: dict[str, Gain]


@dataclass(frozen=True)
class Episode:
    """Positions among the test items."""

    shots: Tensor  # [C, shots]
    rest: Tensor  # rising


@dataclass(frozen=True)
class Judged:
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
    watch: Watch,
    episodes: int = EPISODES,
    steps: int = STEPS,
) -> FewShots:
    """Adapts a trained run in each episode, judges before and after, and keeps it in the folder."""
    if shots < 1:
        raise ValueError(f"shots must be at least 1, got {shots}")
    network = stored_network(context, folder).eval()
    last = list(network.head.children())[-1:] if isinstance(network, EmbeddingNetwork) else []
    if not last or not isinstance(last[0], nn.Linear):
        raise ValueError(f"{folder.path} has no linear last layer that shots could adapt")
    layer, test = last[0], context.split.test
    folder.note_test_read(f"{episodes} episodes of {shots} labelled shots", context.config.hash())
    with computing(context):
        given = _before_last(context, network, watch)
        layer.cpu()
        labels = torch.from_numpy(context.dataset.labels[test])
        task, progress = context.retrieval_task(test), watch.of("episodes")
        judged: list[Judged] = []
        for number in range(episodes):
            episode = drawn(labels, shots, [context.config.seed, number])
            judged.append(_judged(context, given, task, layer, episode, steps))
            progress(number + 1, episodes)
    classes = len(episode.shots)
    tables = {metric: _tables(judged, metric) for metric in METRICS}
    found = FewShots(
        shots,
        episodes,
        steps,
        classes,
        too_small=len(labels.unique()) - classes,
        before={metric: _score(table.before, table.counts) for metric, table in tables.items()},
        after={metric: _score(table.after, table.counts) for metric, table in tables.items()},
        gain={metric: _gain(table) for metric, table in tables.items()},
    )
    folder.write_json(FILE, {"by_shots": read_few_shots(folder) | {str(shots): found}})
    return found


def _before_last(context: RunContext, network: LayeredNetwork, watch: Watch) -> Tensor:  # [n, P]
    """What the last layer of the head is given, of the test items."""
    assert isinstance(network, EmbeddingNetwork), "checked before"
    source = source_of(context, network, watch)
    pooled = watch.of("embedding test classes")
    given = source.embed(context.split.test, pooled, field="pooled").to(context.device)
    with torch.no_grad():
        for layer in list(network.head.children())[:-1]:
            given = layer(given)
    return given.cpu()


@dataclass(frozen=True)
class StoredShots:
    """What the file holds."""

    by_shots: dict[str, FewShots]


def read_few_shots(folder: RunFolder) -> dict[str, FewShots]:
    """By the number of shots; nothing where none were drawn."""
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
            f"no test class has the {shots + LEFT} pictures that {shots} shots and {LEFT} others "
            "make: ask for fewer shots"
        )
    table = torch.from_numpy(np.stack(rows))
    keep = torch.ones(len(labels), dtype=torch.bool)
    keep[table.flatten()] = False
    return Episode(table, keep.nonzero()[:, 0])


def adapted(
    context: RunContext, given: Tensor, layer: nn.Linear, shots: Tensor, steps: int
) -> nn.Linear:
    """A copy of the last layer, moved by the shots [C, s], which are rows of what it is given."""
    plain: dict[str, Any] = {"regularizers": [], "memory": None, "label_filter": None}
    config = context.config.model_copy(update=plain)
    moved = copy.deepcopy(layer).requires_grad_()
    objective = assemble.objective(config, len(shots))
    groups = [{"params": list(moved.parameters()), "lr": config.lr}]
    groups += objective.parameter_groups(config.lr)
    optimiser = create_optimiser(config.optimiser.name, groups, config.weight_decay)
    descent = Descent(optimiser, constant(), config.optimiser.clip_norm)
    generator = torch.Generator().manual_seed(config.seed)
    at_once = max(2, min(len(shots), MOST // shots.shape[1]))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        for step in range(steps):
            classes = torch.randperm(len(shots), generator=generator)[:at_once]
            rows = given[shots[classes].flatten()]
            labels = classes.repeat_interleave(shots.shape[1])
            descent.zero()
            descent.backward(objective(Output(moved(rows), rows), labels)["total"])
            descent.step(step)
    return moved.requires_grad_(False)


def _judged(
    context: RunContext,
    given: Tensor,
    task: RetrievalTask,
    layer: nn.Linear,
    episode: Episode,
    steps: int,
) -> Judged:
    moved, rest = adapted(context, given, layer, episode.shots, steps), task.of(episode.rest)

    def score(of: nn.Linear) -> Evaluation:
        with torch.no_grad():
            embeddings = of(given[episode.rest])
        return evaluate(
            **rest.arguments(embeddings),
            metrics=METRICS,
            normalise=context.config.normalise,
            missing="count",
            resamples=0,
        )

    return Judged(score(layer), score(moved), rest.query_labels())


def _tables(judged: Sequence[Judged], metric: str) -> _Tables:
    """Of the classes that every episode has values of."""
    classes = torch.cat([each.labels for each in judged]).unique()
    sums, counts = np.zeros((2, len(judged), len(classes))), np.zeros((len(judged), len(classes)))
    for row, each in enumerate(judged):
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
    found = crossed(table, counts)
    return Interval(found.value, found.low, found.high)


def _gain(table: _Tables) -> Gain:
    found = crossed(table.after - table.before, table.counts)
    before = crossed(table.before, table.counts).value
    return Gain(before, before + found.value, found.low, found.high)
