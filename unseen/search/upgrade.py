"""A new model for an index: backward-compatible vectors at once, new ones as they come.

    fitted = fit(context, old, new)       # a map, and what it costs, on validation classes
    serve_compatible(path, fitted.map, new)   # every image can be found by the new model now
    embed_again(path, new)               # from the files, until none is; goes on after a stop

An image with such a vector is marked (`Metadata.compatible`), and so are answers with it; whoever
embeds it again, here or by `unseen index add` and `update`, takes the mark away.

Maps from the vectors of one model to those of another, fitted on images that both have seen.

    orthogonal  the rotation that brings the old vectors nearest to the new ones (P. Schönemann,
                Psychometrika 31, 1966); of two sizes a part of one
    linear      ridge regression with a constant; its weight is chosen by leaving one out
    mlp         the linear map plus a perceptron of one hidden layer, fitted on what that leaves

Regression draws what it cannot tell towards the mean, from where everything is near: beside new
vectors, compatible ones would be found too often. So both are stretched from the mean by as much as
they fall short on the last fifth of the images, fitted on the others; of images in the order of
their classes that are mostly other classes.

What an old vector does not say of an image no map can know: compatible vectors find less than
new ones (docs/upgrade.md).
"""

import shutil
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Ridge, RidgeCV
from sklearn.neural_network import MLPRegressor
from torch import Tensor

from unseen.core.contracts import IntArray, Progress
from unseen.core.statistics import MIN_CLASSES, Interval
from unseen.evaluation.evaluate import evaluate
from unseen.neighbors.space import to_sphere
from unseen.runs.prepare import Callbacks, RunContext, computing
from unseen.runs.select_epoch import more_validation_classes
from unseen.runs.trained_run import Trained
from unseen.search.exchange import images_of, rows_of
from unseen.search.image_sources import source_of
from unseen.search.index import Index
from unseen.search.ingest import Ingested, ingest, model_entry
from unseen.search.writer import ASIDE, Writer

Vectors = NDArray[np.float32]
HIDDEN = 512
PASSES = 60
FEWEST = 11  # images: the perceptron sets a tenth of them aside, rounded up, and needs two there
MOST_STRETCH = 2.0
MOST_PAIRS = 20_000  # training images a map is fitted on
PORTION = 4096  # images embedded before others may write


@dataclass(frozen=True)
class SpaceMap:
    """Old vectors [n, D] to new ones [n, E], of unit length where the new model's are."""

    kind: str
    normalize: bool
    raw: Callable[[Vectors], NDArray[Any]]

    def __call__(self, old: Vectors) -> Vectors:
        fitted = torch.from_numpy(np.ascontiguousarray(self.raw(old), dtype=np.float32))
        made: Vectors = (to_sphere(fitted) if self.normalize else fitted).numpy()
        return made


def fit_maps(old: Vectors, new: Vectors, normalize: bool) -> list[SpaceMap]:
    """One of each kind, the simplest first. old [n, D] and new [n, E] are of the same images."""
    if len(old) < FEWEST:
        raise ValueError(
            f"a map between two models is fitted on {FEWEST} images or more that both have seen, "
            f"got {len(old)}: `unseen index rebuild` embeds the index's images again instead"
        )
    left, _, right = np.linalg.svd(old.T.astype(np.float64) @ new, full_matrices=False)
    rotation = (left @ right).astype(np.float32)  # [D, E]
    linear = RidgeCV(alphas=np.logspace(-4, 2, 7)).fit(old, new)
    stretch = _stretch(old, new, float(linear.alpha_))
    scale = max(float((new - linear.predict(old)).std()), 1e-12)
    rest = MLPRegressor(
        hidden_layer_sizes=HIDDEN, early_stopping=True, max_iter=PASSES, random_state=0
    )
    with warnings.catch_warnings():  # the passes are bounded
        warnings.simplefilter("ignore", ConvergenceWarning)
        rest.fit(old, (new - linear.predict(old)) / scale)
    return [
        SpaceMap("orthogonal", normalize, lambda x: x @ rotation),
        SpaceMap("linear", normalize, lambda x: stretch(linear.predict(x))),
        SpaceMap("mlp", normalize, lambda x: stretch(linear.predict(x) + scale * rest.predict(x))),
    ]


def _stretch(old: Vectors, new: Vectors, weight: float) -> Callable[[NDArray[Any]], NDArray[Any]]:
    most = 4 * len(old) // 5
    partial, center = Ridge(alpha=weight).fit(old[:most], new[:most]), new.mean(axis=0)
    far, reached = new[most:] - center, partial.predict(old[most:]) - center
    missed = float(np.linalg.norm(far)) / max(float(np.linalg.norm(reached)), 1e-12)
    factor = min(max(missed, 1.0), MOST_STRETCH)
    return lambda vectors: center + factor * (vectors - center)


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
