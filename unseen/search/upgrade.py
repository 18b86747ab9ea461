"""A new model for an index: backward-compatible vectors at once, new ones as they come.

    fitted = fit(context, old, new)       # a map, and what it costs, on validation classes
    serve_compatible(path, fitted.map, new)   # every image can be found by the new model now
    embed_again(path, new)               # from the files, until none is; goes on after a stop

An image with such a vector is marked (`Metadata.compatible`), and so are answers with it; whoever
embeds it again, here or by `unseen index add` and `update`, takes the mark away.
"""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from unseen.core.contracts import IntArray, Progress
from unseen.core.statistics import MIN_CLASSES, Interval
from unseen.evaluation.evaluate import evaluate
from unseen.neighbors.space import to_sphere
from unseen.runs.prepare import Callbacks, RunContext, computing
from unseen.runs.select_epoch import more_validation_classes
from unseen.runs.trained_run import Trained
from unseen.search.compatible_embeddings import SpaceMap, Vectors, fit_maps
from unseen.search.exchange import images_of, rows_of
from unseen.search.image_sources import source_of
from unseen.search.index import Index
from unseen.search.ingest import Ingested, ingest, model_entry
from unseen.search.writer import ASIDE, Writer

MOST_PAIRS = 20_000  # training images a map is fitted on
PORTION = 4096  # images embedded before others may write


@dataclass(frozen=True)
class Pairs:
    """The same images by both models."""

    old: Vectors  # [n, D]
    new: Vectors  # [n, E]
    labels: IntArray  # [n]


@dataclass(frozen=True)
class Result:
    """What queries find among who answers; intervals over classes."""

    recall: Interval  # @1
    map_at_r: float


@dataclass(frozen=True)
class Fitted:
    """The map that was chosen, and what is found by who asks -> who answers."""

    map: SpaceMap
    scores: dict[str, Result]
    pairs: int
    classes: int


def fit(
    context: RunContext, old: Trained, new: Trained, callbacks: Callbacks | None = None
) -> Fitted:
    """Fits maps on the new run's training images; its validation classes choose one and
    evaluate."""
    callbacks, labels = callbacks or Callbacks(), context.dataset.labels
    train, evaluated = _some(context.split.train), context.split.validation
    classes = len(np.unique(labels[evaluated]))
    if classes < MIN_CLASSES:
        raise ValueError(
            f"an upgrade needs at least {MIN_CLASSES} validation classes to be evaluated on, "
            "the run "
            f"has {classes}: train again. {more_validation_classes(context)}"
        )
    with computing(context):
        some, others = (
            Pairs(
                _embed(context, old, items, callbacks),
                _embed(context, new, items, callbacks),
                labels[items],
            )
            for items in (train, evaluated)
        )
        maps = fit_maps(some.old, some.new, new.config.evaluation.normalize)
        scores = compare(maps, others, old.config.evaluation.normalize)
    return Fitted(chosen(maps, scores), scores, len(train), classes)


def compare(maps: Sequence[SpaceMap], pairs: Pairs, normalize: bool) -> dict[str, Result]:
    """What is found by who asks -> who answers: every image asks all others. normalise: whether
    the old model's vectors are compared by cosine."""
    new, labels = maps[0].normalize, torch.from_numpy(pairs.labels)
    result = {
        "old -> old": _result(pairs.old, pairs.old, labels, normalize),
        "new -> new": _result(pairs.new, pairs.new, labels, new),
    }
    is_compatible = (np.arange(len(labels)) % 2 == 0)[:, None]
    for each in maps:
        fitted = each(pairs.old)
        result[answers_compatible(each)] = _result(pairs.new, fitted, labels, new)
        half = np.where(is_compatible, fitted, pairs.new)
        result[answers_half(each)] = _result(pairs.new, half, labels, new)
    return result


def chosen(maps: Sequence[SpaceMap], scores: Mapping[str, Result]) -> SpaceMap:
    """The best by mAP@R, steadier than recall@1, of an index that is all compatible first and
    then in part."""

    def worth(each: SpaceMap) -> float:
        return sum(scores[name(each)].map_at_r for name in (answers_compatible, answers_half))

    return max(maps, key=worth)


def answers_compatible(mapping: SpaceMap) -> str:
    return f"new -> compatible ({mapping.kind})"


def answers_half(mapping: SpaceMap) -> str:
    """While images are embedded again."""
    return f"new -> half compatible ({mapping.kind}), half new"


def serve_compatible(
    path: Path, mapping: SpaceMap, new: Trained, progress: Progress | None = None
) -> None:
    """The same images under their ids, with compatible vectors for the new model: made aside, then
    put in the place of the old ones at once."""
    with Writer.open(path) as writer:
        aside = path / ASIDE
        shutil.rmtree(aside, ignore_errors=True)
        with Writer.create(aside, model_entry(new), writer.manifest.next_serial) as other:
            for rows in rows_of(writer.index(), progress):
                marked = [replace(metadata, compatible=True) for metadata in rows.metadata]
                other.add(images_of(replace(rows, vectors=mapping(rows.vectors), metadata=marked)))
        writer.take(aside, writer.vanished())
        writer.refresh_backend()
        shutil.rmtree(aside)


def embed_again(path: Path, model: Trained, progress: Progress | None = None) -> Ingested:
    """Embeds from their files the images whose vectors are compatible, some at a time; others may
    write in between. Of a file that cannot be read the compatible vector stays."""
    total, done = num_compatible(Index.open(path)), Ingested()
    failed: set[str] = set()
    while True:
        with Writer.open(path, wait=True) as writer:
            every = [
                source_of(metadata) for _, metadata in writer.index().every() if metadata.compatible
            ]
            some = [source for source in every if source.name not in failed][:PORTION]
            if not some:
                return done
            finished = done.changed + len(done.unreadable)
            made = ingest(writer, model, some, _after(finished, total, progress))
            writer.refresh_backend()
            left = {metadata.name for _, metadata in writer.index().every() if metadata.compatible}
        failed |= left & {source.name for source in some}
        done.changed += made.changed
        done.unreadable += made.unreadable


def num_compatible(index: Index) -> int:
    return sum(metadata.compatible for _, metadata in index.every())


def _after(finished: int, total: int, progress: Progress | None) -> Progress | None:
    return None if progress is None else lambda now, _: progress(finished + now, total)


def _some(items: IntArray) -> IntArray:
    if len(items) <= MOST_PAIRS:
        return items
    drawn = np.random.default_rng(0).choice(len(items), MOST_PAIRS, replace=False)
    return items[np.sort(drawn)]


def _embed(context: RunContext, model: Trained, items: IntArray, callbacks: Callbacks) -> Vectors:
    progress = callbacks.of(f"embedding with {model.folder.path.name}")
    embeddings = context.embed(model.network, model.transform, items, progress).float().cpu()
    normalize = model.config.evaluation.normalize
    return np.asarray(to_sphere(embeddings) if normalize else embeddings)


def _result(queries: Vectors, gallery: Vectors, labels: Tensor, normalize: bool) -> Result:
    """Every image asks all others."""
    scores = evaluate(
        torch.from_numpy(queries),
        labels,
        gallery_embeddings=torch.from_numpy(gallery),
        gallery_labels=labels,
        positions=torch.arange(len(labels)),
        metrics=["recall@1", "map_at_r"],
        intervals="classes",
        normalize=normalize,
    ).values
    first = scores["recall@1"]
    return Result(Interval(first.value, first.low, first.high), scores["map_at_r"].value)
