"""A new model for an index without starting over: mapped vectors at once, new ones as they come.

    fitted = fit(context, old, new)       # a map, and what it costs, on validation classes
    serve_mapped(path, fitted.map, new)   # every picture can be found by the new model now
    embed_mapped(path, new)               # from the files, until none is; goes on after a stop

A picture whose vector is mapped is marked (`Facts.mapped`), and so are answers with it; whoever
embeds it again, here or by `unseen index add` and `update`, takes the mark away.
"""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from unseen.contracts import IntArray, Progress
from unseen.evaluation.evaluate import evaluate
from unseen.experiment.run_context import RunContext, Watch, computing
from unseen.experiment.selection import more_validation_classes
from unseen.experiment.trained import Trained
from unseen.neighbours.space import to_sphere
from unseen.search.exchange.rows import pictures_of, rows_of
from unseen.search.index import Index
from unseen.search.ingest import Ingested, ingest, model_entry
from unseen.search.sources import source_of
from unseen.search.space_map import SpaceMap, Vectors, fit_maps
from unseen.search.writer import ASIDE, Writer
from unseen.statistics import MIN_CLASSES, Interval

MOST_PAIRS = 20_000  # training pictures a map is fitted on
PORTION = 4096  # pictures embedded before others may write


@dataclass(frozen=True)
class Pairs:
    """The same pictures by both models."""

    old: Vectors  # [n, D]
    new: Vectors  # [n, E]
    labels: IntArray  # [n]


@dataclass(frozen=True)
class Found:
    """What queries find among who answers; intervals over classes."""

    recall: Interval  # @1
    map_at_r: float


@dataclass(frozen=True)
class Fitted:
    """The map that was chosen, and what is found by who asks -> who answers."""

    map: SpaceMap
    scores: dict[str, Found]
    pairs: int
    classes: int


def fit(context: RunContext, old: Trained, new: Trained, watch: Watch | None = None) -> Fitted:
    """Fits maps on the new run's training pictures; its validation classes choose one and judge."""
    watch, labels = watch or Watch(), context.dataset.labels
    train, judged = _some(context.split.train), context.split.validation
    classes = len(np.unique(labels[judged]))
    if classes < MIN_CLASSES:
        raise ValueError(
            f"an upgrade needs at least {MIN_CLASSES} validation classes to be judged on, the run "
            f"has {classes}: train again. {more_validation_classes(context)}"
        )
    with computing(context):
        some, others = (
            Pairs(
                _embed(context, old, items, watch),
                _embed(context, new, items, watch),
                labels[items],
            )
            for items in (train, judged)
        )
        maps = fit_maps(some.old, some.new, new.config.normalise)
        scores = compare(maps, others, old.config.normalise)
    return Fitted(chosen(maps, scores), scores, len(train), classes)


def compare(maps: Sequence[SpaceMap], pairs: Pairs, normalise: bool) -> dict[str, Found]:
    """What is found by who asks -> who answers: every picture asks all others. normalise: whether
    the old model's vectors are compared by cosine."""
    new, labels = maps[0].normalise, torch.from_numpy(pairs.labels)
    found = {
        "old -> old": _found(pairs.old, pairs.old, labels, normalise),
        "new -> new": _found(pairs.new, pairs.new, labels, new),
    }
    is_mapped = (np.arange(len(labels)) % 2 == 0)[:, None]
    for each in maps:
        mapped = each(pairs.old)
        found[answers_mapped(each)] = _found(pairs.new, mapped, labels, new)
        half = np.where(is_mapped, mapped, pairs.new)
        found[answers_half(each)] = _found(pairs.new, half, labels, new)
    return found


def chosen(maps: Sequence[SpaceMap], scores: Mapping[str, Found]) -> SpaceMap:
    """The best by mAP@R, steadier than recall@1, of an index that is all mapped first and then in
    part."""

    def worth(each: SpaceMap) -> float:
        return sum(scores[name(each)].map_at_r for name in (answers_mapped, answers_half))

    return max(maps, key=worth)


def answers_mapped(mapping: SpaceMap) -> str:
    return f"new -> mapped ({mapping.kind})"


def answers_half(mapping: SpaceMap) -> str:
    """While pictures are embedded again."""
    return f"new -> half mapped ({mapping.kind}), half new"


def serve_mapped(
    path: Path, mapping: SpaceMap, new: Trained, progress: Progress | None = None
) -> None:
    """The same pictures under their ids, with mapped vectors of the new model: made aside, then put
    in the place of the old ones at once."""
    with Writer.open(path) as writer:
        aside = path / ASIDE
        shutil.rmtree(aside, ignore_errors=True)
        known = writer.manifest
        create = partial(Writer.create, aside, model_entry(new), known.next_serial)
        with create(precision=known.precision) as other:
            for rows in rows_of(writer.index(), progress):
                marked = [replace(facts, mapped=True) for facts in rows.facts]
                other.add(pictures_of(replace(rows, vectors=mapping(rows.vectors), facts=marked)))
        writer.take(aside, (), writer.vanished())
        writer.refresh_store()
        shutil.rmtree(aside)


def embed_mapped(path: Path, model: Trained, progress: Progress | None = None) -> Ingested:
    """Embeds from their files the pictures whose vectors are mapped, some at a time; others may
    write in between. Of a file that cannot be read the mapped vector stays."""
    total, done = num_mapped(Index.open(path)), Ingested()
    failed: set[str] = set()
    while True:
        with Writer.open(path, wait=True) as writer:
            every = [source_of(facts) for _, facts in writer.index().every() if facts.mapped]
            some = [source for source in every if source.name not in failed][:PORTION]
            if not some:
                return done
            finished = done.changed + len(done.unreadable)
            made = ingest(writer, model, some, _after(finished, total, progress))
            writer.refresh_store()
            left = {facts.name for _, facts in writer.index().every() if facts.mapped}
        failed |= left & {source.name for source in some}
        done.changed += made.changed
        done.unreadable += made.unreadable


def num_mapped(index: Index) -> int:
    return sum(facts.mapped for _, facts in index.every())


def _after(finished: int, total: int, progress: Progress | None) -> Progress | None:
    return None if progress is None else lambda now, _: progress(finished + now, total)


def _some(items: IntArray) -> IntArray:
    if len(items) <= MOST_PAIRS:
        return items
    drawn = np.random.default_rng(0).choice(len(items), MOST_PAIRS, replace=False)
    return items[np.sort(drawn)]


def _embed(context: RunContext, model: Trained, items: IntArray, watch: Watch) -> Vectors:
    told = watch.of(f"embedding with {model.folder.path.name}")
    found = context.embed(model.network, model.transform, items, told).float().cpu()
    vectors: Vectors = (to_sphere(found) if model.config.normalise else found).numpy()
    return vectors


def _found(queries: Vectors, gallery: Vectors, labels: Tensor, normalise: bool) -> Found:
    """Every picture asks all others."""
    scores = evaluate(
        torch.from_numpy(queries),
        labels,
        gallery_embeddings=torch.from_numpy(gallery),
        gallery_labels=labels,
        positions=torch.arange(len(labels)),
        metrics=["recall@1", "map_at_r"],
        intervals="classes",
        normalise=normalise,
    ).values
    first = scores["recall@1"]
    return Found(Interval(first.value, first.low, first.high), scores["map_at_r"].value)
