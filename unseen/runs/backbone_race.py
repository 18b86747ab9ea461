"""A race of backbones: whose frozen features find unseen classes best among these images, how fast.

Each candidate embeds a sample of the training and validation classes, on which none was trained
here; items of test classes are never embedded. A sample has as many images of each class, and the
next one, twice as large, holds it. After each sample a candidate is dropped if its recall@1 is
lower than the best one's, by an interval over classes of the paired difference that is known to 3
points or ends more than 3 points below. The race ends when every difference is known to 3 points,
or with the largest sample. Of those without a significant difference to the best the fastest is
chosen.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unseen.config import build, find_data
from unseen.config import schema as configs
from unseen.config.resolve import resolve
from unseen.core.contracts import Batch, FeatureDataset, IntArray, Progress
from unseen.core.statistics import Interval, bootstrap
from unseen.evaluation.embed import embed
from unseen.evaluation.evaluate import Evaluation, Score, evaluate
from unseen.models.backbone import OWN
from unseen.models.candidates import UNKNOWN_LICENCE, Candidate, candidates_of
from unseen.runs.extract_features import pooling_network
from unseen.runs.prepare import EMBED_BATCH, Callbacks, RunContext, computing
from unseen.training.events import Note

FIRST, MOST = 300, 5000  # images of the first sample and of the last
PER_CLASS = 4  # images of a class at least, rather fewer classes
PRECISE = 0.03  # half of an interval
METRIC, METRICS = "recall@1", ("recall@1", "map_at_r")
CHOSEN_HERE = ("backbone", "weights", "network")
FIXED = {"cpu_processes": 1, "micro_batch": None, "time_budget": None}


@dataclass(frozen=True)
class Standing:
    """What is known of a candidate after its last sample. difference: of its recall@1 to that of
    the best candidate on the same images, paired, over classes."""

    candidate: Candidate
    licence: str
    images: int
    metrics: dict[str, Score]
    difference: Interval
    images_per_second: float
    dimension: int
    megabytes: float  # of the weights
    published: dict[str, float]
    is_dropped: bool = False

    @property
    def half(self) -> float:
        """Of the interval of the difference."""
        return (self.difference.high - self.difference.low) / 2

    @property
    def is_worse(self) -> bool:
        return self.difference.high < 0

    @property
    def is_behind(self) -> bool:
        """Worse, and it is known how much, or that it is much."""
        return self.is_worse and (self.half <= PRECISE or self.difference.high < -PRECISE)


@dataclass(frozen=True)
class Race:
    """The outcome: all candidates, the best first, which is chosen, and why."""

    data: str
    classes: int
    standings: list[Standing]
    choice: Candidate
    why: str
    seconds: float = field(compare=False)

    @property
    def settings(self) -> dict[str, str]:
        """For `unseen.fit(data, **race.settings)`."""
        return self.choice.settings


def race(
    values: Mapping[str, Any],
    named: Sequence[Candidate] = (),
    *,
    download: bool = False,
    most: int = MOST,
    callbacks: Callbacks | None = None,
) -> Race:
    """Races candidates on data. values: of a config, without backbone and weights. named: further
    candidates beside those whose weights are installed or cached. download: the recommended ones
    too. most: images of the largest sample."""
    callbacks, began = callbacks or Callbacks(), time.monotonic()
    if set_keys := [key for key in CHOSEN_HERE if key in values]:
        raise ValueError(f"the race chooses it: leave {set_keys[0]} out, and name candidates")
    if most < 2 * PER_CLASS:
        raise ValueError(f"images must be at least {2 * PER_CLASS}, got {most}")
    candidates = candidates_of(named, download)
    request = configs.make({**FIXED, **values})
    dataset = find_data.open_data(
        request.data, callbacks.of("reading the data"), request.data.strict
    )
    if isinstance(dataset, FeatureDataset):
        raise ValueError(f"{dataset.name} holds features: a race needs the images")
    config, _ = resolve(request, dataset)
    context = RunContext(config, dataset, build.split(config, dataset), [])
    items = np.concatenate([context.split.train, context.split.validation])
    sample = _Sample(items, dataset.labels, config.training.seed)
    with computing(context):
        entrants = []
        for done, candidate in enumerate(candidates):
            callbacks.progress("loading candidates", done, len(candidates))
            entrants.append(_Entrant(candidate, {"pooling": OWN, **FIXED, **values}, context))
        callbacks.progress("loading candidates", len(candidates), len(candidates))
        standings = _raced(context, entrants, sample, most, callbacks)
    choice, why = _chosen(standings)
    classes, seconds = len(np.unique(dataset.labels[items])), time.monotonic() - began
    for path in sorted(context.unreadable.paths):
        callbacks.warn(f"cannot be read, a blank image stands in: {path}")
    return Race(dataset.name, classes, standings, choice, why, round(seconds, 1))


class _Sample:
    """Items by the turn of their class and their place in it, both at random."""

    def __init__(self, items: IntArray, labels: IntArray, seed: int) -> None:
        generator = np.random.default_rng([seed, 0xBAC])
        self.items = generator.permutation(items)
        labels = labels[self.items]
        classes, codes, sizes = np.unique(labels, return_inverse=True, return_counts=True)
        self.turn = generator.permutation(len(classes))[codes]
        self.num_classes, self.place = len(classes), np.empty_like(codes)
        starts = np.repeat(np.cumsum(sizes) - sizes, sizes)
        self.place[np.argsort(codes, kind="stable")] = np.arange(len(codes)) - starts

    def of(self, number: int) -> IntArray:
        """About so many items, as many of each class; more of them hold fewer of them."""
        classes = min(self.num_classes, max(2, number // PER_CLASS))
        is_in = (self.turn < classes) & (self.place < math.ceil(number / classes))
        return self.items[is_in]


class _Entrant:
    """A candidate with its network and what it has embedded so far."""

    def __init__(
        self, candidate: Candidate, values: Mapping[str, Any], context: RunContext
    ) -> None:
        self.candidate = candidate
        config, _ = resolve(configs.make({**values, **candidate.settings}), context.dataset)
        self.network, made = pooling_network(config, context.device)
        self.shown = replace(made, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))
        self.mean, self.std = (torch.tensor(v).view(3, 1, 1) for v in (made.mean, made.std))
        self.device, self.rows = context.device, torch.empty(0)
        self.seconds: list[float] = []  # per image, of each batch

    def embed(self, batch: Batch, preparing: float, now: Callable[[], float]) -> None:
        """preparing: the seconds that an image took until here."""
        began, count = now(), len(batch.images)
        batch = batch._replace(images=(batch.images - self.mean) / self.std)
        if not self.seconds:  # the first pass of a network takes longer than all that follow
            embed(self.network, [batch], count, self.device, None, ("pooled",))
            began = now()
        rows = embed(self.network, [batch], count, self.device, None, ("pooled",))["pooled"]
        self.rows = torch.cat([self.rows, rows]) if len(self.rows) else rows
        self.seconds.append(preparing + (now() - began) / count)

    def standing(self, metrics: dict[str, Score], difference: Interval) -> Standing:
        tensors = [*self.network.parameters(), *self.network.buffers()]
        return Standing(
            self.candidate,
            self.candidate.licence,
            len(self.rows),
            {name: metrics[name] for name in METRICS},
            difference,
            round(1 / min(self.seconds), 1),
            self.rows.shape[1],
            round(sum(each.nbytes for each in tensors) / 1e6, 1),
            self.candidate.published,
        )


def _raced(
    context: RunContext,
    racing: list[_Entrant],
    sample: _Sample,
    most: int,
    callbacks: Callbacks,
) -> list[Standing]:
    """All standings, the best first: of a dropped candidate that after its last sample."""
    dropped: list[Standing] = []
    items, number = np.empty(0, dtype=np.int64), min(FIRST, most)
    while True:
        new = np.setdiff1d(sample.of(number), items)
        _embed(context, racing, new, callbacks.of(f"embedding a sample of {number:,}"))
        items = np.concatenate([items, new])
        current = _measured(context, racing, items)
        dropped_now = [replace(each, is_dropped=True) for each in current if each.is_behind]
        racing = [e for e, each in zip(racing, current, strict=True) if not each.is_behind]
        current = [each for each in current if not each.is_behind]
        dropped += dropped_now
        text = ", ".join(f"{e.candidate.title} {points(e.difference)}" for e in dropped_now)
        callbacks.log(Note(f"{len(items):,} images: dropped {text or 'none'}"))
        is_precise = len(racing) == 1 or all(each.half <= PRECISE for each in current)
        if is_precise or number == most or len(items) == len(sample.items):
            break
        number = min(2 * number, most)
    return sorted([*current, *dropped], key=lambda e: (e.is_dropped, -e.difference.value))


def _embed(
    context: RunContext,
    racing: Sequence[_Entrant],
    items: IntArray,
    progress: Progress,
) -> None:
    """Every image is decoded once for all candidates that want it alike. On a CPU processor time
    counts, divided among the threads: other load does not change a speed."""
    on_cpu = context.device.type == "cpu"
    cores = torch.get_num_threads() if on_cpu else 1
    timer = time.process_time if on_cpu else time.perf_counter
    done, total = 0, len(items) * len(racing)

    def now() -> float:
        return timer() / cores

    for shown in dict.fromkeys(entrant.shown for entrant in racing):
        alike = [entrant for entrant in racing if entrant.shown == shown]
        for start in range(0, len(items), EMBED_BATCH):
            began = now()
            (batch,) = context.batches(shown, items[start : start + EMBED_BATCH])
            preparing = (now() - began) / len(batch.images)
            for entrant in alike:
                entrant.embed(batch, preparing, now)
                done += len(batch.images)
                progress(done, total)


def _measured(context: RunContext, racing: Sequence[_Entrant], items: IntArray) -> list[Standing]:
    task = context.retrieval_task(items)

    def scores(rows: Tensor) -> Evaluation:
        how: dict[str, Any] = {"intervals": "classes", "non_finite": "worst", "missing": "count"}
        return evaluate(**task.arguments(rows), metrics=METRICS, **how)

    results = [scores(entrant.rows) for entrant in racing]
    best = max(results, key=lambda result: result.values[METRIC].value)
    standings = []
    for entrant, result in zip(racing, results, strict=True):
        difference = result.per_query[METRIC] - best.per_query[METRIC]
        (interval,) = bootstrap(difference[:, None], task.query_labels())
        standings.append(entrant.standing(result.values, interval))
    return standings


def _chosen(standings: Sequence[Standing]) -> tuple[Candidate, str]:
    """The fastest of those that are not worse than the best, and why; without a stated licence
    none is chosen where another will do."""
    best, *others = standings
    equal = [each for each in standings if not (each.is_dropped or each.is_worse)]
    licensed = [each for each in equal if each.licence != UNKNOWN_LICENCE]
    fastest = max(equal, key=lambda each: each.images_per_second)
    choice = max(licensed or equal, key=lambda each: each.images_per_second)
    unstated = "; find out its licence before you use it" * (not licensed)
    if not others:
        return choice.candidate, "the only candidate" + unstated
    if len(equal) == 1:
        nearest = max(others, key=lambda each: each.difference.value)
        why = f"{nearest.candidate.title} differs by {points(nearest.difference)}"
        return choice.candidate, f"the highest recall@1: {why}{unstated}"
    why = f"among {len(equal)}"
    if choice is not best:
        why = f"to {best.candidate.title} ({points(choice.difference)})"
    which = "the fastest" if choice is fastest else "the fastest whose licence is stated"
    than = f" against {best.images_per_second:,.0f}" * (choice is not best)
    speed = f"{choice.images_per_second:,.0f} images/s{than}"
    return choice.candidate, f"no significant difference {why}: {which}, {speed}{unstated}"


def points(difference: Interval) -> str:
    """A difference with its interval, in points."""
    value, low, high = (100 * each for each in (difference.value, difference.low, difference.high))
    return f"{value:+.1f} points, {low:+.1f} to {high:+.1f}"
