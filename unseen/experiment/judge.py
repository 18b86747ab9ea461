"""The one reading of the test classes: the network beside what needs no training: its untrained
self, principal components of the pooled descriptors of that one, and what it was given: raw pixels,
or features as they are."""

import hashlib
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unseen import assemble
from unseen.contracts import (
    DOMAIN,
    FeatureDataset,
    FloatArray,
    IntArray,
    Progress,
    annotations_of,
    domains_of,
)
from unseen.data.pictures import transforms
from unseen.evaluation.by_domain import by_domain
from unseen.evaluation.evaluate import Evaluation, evaluate
from unseen.evaluation.gain import gains, rounded
from unseen.evaluation.long_tail import thirds
from unseen.evaluation.retrieval_task import RetrievalTask
from unseen.experiment.items import split_hash
from unseen.experiment.ladder import start_of_kept
from unseen.experiment.layers import choose_descriptor
from unseen.experiment.orders import embed_at, while_training
from unseen.experiment.refit import SELECTED
from unseen.experiment.run_context import (
    EMBED_BATCH,
    RunContext,
    Watch,
    computing,
)
from unseen.experiment.run_facts import describe
from unseen.experiment.source import Source, source_of
from unseen.experiment.start import start_of, take_start
from unseen.nested import AT, row_at
from unseen.networks.head import PRINCIPAL, principal_directions
from unseen.networks.network import LayeredNetwork
from unseen.relevance import GradedPairs, KnownPairs, LabelSets
from unseen.training.events import Judged
from unseen.training.journal import read
from unseen.training.result import FILE as RESULT
from unseen.training.result import Result, note_reading, rows_of, write_result
from unseen.training.run_folder import RunFolder
from unseen.training.selection import Selection

FINAL = "final evaluation"
PIXEL_SIDE = 32  # the raw-pixel baseline compares pictures at this size
FITTED_ON = 10_000  # training items that principal directions are found on, at most


def judge(
    context: RunContext,
    folder: RunFolder,
    selection: Selection,
    purpose: str,
    watch: Watch,
    on: str | None = None,
) -> Result:
    """A reading of the test classes, which the manifest notes first. The final evaluation writes
    result.json and the embeddings; any other a file of its own, and the embeddings only where there
    are none of a final one. on: names data other than the run's own. Several processes embed the
    pictures together; the first one judges and writes."""
    context.unreadable.remember(read(folder.file("journal.jsonl")))
    context.unreadable.tell = lambda event: watch.warn(str(event))
    selection, descriptor = choose_descriptor(context, folder, selection, watch)
    folder.note_test_read(purpose, context.config.hash())
    watch.tell(_begun(context))
    keeps = purpose == FINAL or not (on or folder.has(RESULT))

    def judged() -> Result:
        scores = _scores(context, spaces, watch)
        if keeps:
            keep_embeddings(folder, spaces["trained"], context, scores)
        return _result(context, selection, scores)

    with computing(context):
        spaces = embedding_spaces(context, folder, descriptor.layer, watch)
        result = context.processes.agreed(judged)
    if purpose == FINAL:
        write_result(folder, result)
    else:
        note_reading(folder, purpose, result, on)
    return result


def judge_at(
    context: RunContext, folder: RunFolder, layer: str, metric: str
) -> dict[str, FloatArray]:
    """The value of every query at another layer than the run's own, by the trained network and by
    what needs no training: a reading of the test classes of its own."""
    folder.note_test_read(f"{metric} at {layer}", context.config.hash())
    with computing(context):
        spaces = embedding_spaces(context, folder, layer, Watch())
        task = context.retrieval_task(context.split.test)
        alone = replace(context, config=context.config.model_copy(update={"metrics": [metric]}))
        scores = {row: _score(alone, row, space, task, Watch()) for row, space in spaces.items()}
    return {row: score.per_query[metric].numpy() for row, score in scores.items()}


def _begun(context: RunContext) -> Judged:
    test = context.split.test
    return Judged(len(np.unique(context.dataset.labels[test])), len(test))


def _scores(context: RunContext, spaces: dict[str, Tensor], watch: Watch) -> dict[str, Evaluation]:
    """Of every space, by the class and by further labels."""
    config, split = context.config, context.split
    spaces = spaces | given_space(context, watch)
    task = context.retrieval_task(split.test, config.relevance.by)
    found = {name: _score(context, name, space, task, watch) for name, space in spaces.items()}
    scores = {name: score.by("") for name, score in found.items()}
    for column in config.relevance.by:
        scores |= {f"{name} by {column}": score.by(column) for name, score in found.items()}
    return scores | _domain_scores(context, task, scores)


def _domain_scores(
    context: RunContext, task: RetrievalTask, scores: dict[str, Evaluation]
) -> dict[str, Evaluation]:
    """Before and after training on each domain, where batches were made by them."""
    config, domains = context.config, domains_of(context.dataset)
    if config.sampler.name != "by_domain" or domains is None:
        return {}
    own = torch.from_numpy(domains[context.split.test])
    asked = own if task.query is None else own[task.query]
    names, labels = annotations_of(context.dataset).label_names[DOMAIN], task.query_labels()
    return {
        f"{row} on {name}": score
        for row in ("trained", "untrained")
        for name, score in by_domain(scores[row], asked, labels, names, config.seed).items()
    }


def _result(context: RunContext, selection: Selection, scores: dict[str, Evaluation]) -> Result:
    config, about = context.config, describe(context)
    labels = context.retrieval_task(context.split.test).query_labels()
    gained = gains(scores["untrained"], scores["trained"], labels, config.seed)
    return Result(
        rows_of(scores),
        config.hash(),
        about.data,
        about.split,
        config.seed,
        selection,
        unreadable_pictures=len(context.unreadable.paths),
        start=start_of(config),
        gain={metric: rounded(gain) for metric, gain in gained.items()},
        thirds=thirds(
            scores["trained"].per_query,
            labels,
            torch.from_numpy(context.dataset.labels[context.split.test]),
        ),
        monitor="test" if config.monitor == "test" else None,
    )


def _score(
    context: RunContext, name: str, space: Tensor, task: RetrievalTask, watch: Watch
) -> Evaluation:
    """The scores of a space. Runs of a study share their baselines: those are measured once and
    known again by the content of the space."""
    config = context.config

    def measured() -> Evaluation:
        return evaluate(
            **task.arguments(space),
            metrics=tuple(config.metrics),
            normalise=normalise,
            missing="count",  # of classes the split has seen to it; further labels may be rare
            seed=config.seed,
            progress=watch.of(f"judging: {name}"),
        )

    given = ("pixels", "features", PRINCIPAL)
    normalise = config.normalise or name.partition(AT)[0] in given
    if name == "trained":
        return measured()
    how = (config.metrics, normalise, config.seed, config.relevance.by)
    content = hashlib.sha256(f"{how} {split_hash(context.split)}".encode())
    content.update(space.contiguous().numpy().tobytes())
    known = context.known_scores
    if content.digest() not in known:
        known[content.digest()] = measured()
    return known[content.digest()]


def embedding_spaces(
    context: RunContext, folder: RunFolder, layer: str, watch: Watch
) -> dict[str, Tensor]:
    """Test descriptors of the trained and the untrained network, and of principal components. Where
    a ladder was climbed, the untrained one is that of the first rung that led to the kept one."""
    test, start = context.split.test, while_training(layer)
    first, begun = start_of_kept(context, folder)
    network = assemble.network(first.config).to(context.device)
    take_start(begun, network, first.config)
    source = source_of(first, network, watch)
    untrained = source.embed(test, watch.of("embedding: untrained network"), start)
    pooled = _pooled_at_start(first, source, watch)
    network, source = _stored(context, folder, "weights.safetensors", watch)
    trained = embed_at(layer, source, network, folder, test, watch.of("embedding: trained network"))
    spaces = {"trained": trained, "untrained": untrained}
    if pooled is not None:
        directions = principal_directions(pooled[0], trained.shape[1])  # as many as the descriptor
        spaces[PRINCIPAL] = (pooled[1].double() @ directions.T).float()
    for size in context.config.nested[:-1]:
        for name in ("trained", PRINCIPAL) if pooled is not None else ("trained",):
            spaces[row_at(name, size)] = spaces[name][:, :size].contiguous()
    if folder.has(f"{SELECTED}/weights.safetensors"):
        _, source = _stored(context, folder, f"{SELECTED}/weights.safetensors", watch)
        spaces["before_refit"] = source.embed(test, watch.of("embedding: before the refit"), start)
    return spaces


def _stored(
    context: RunContext, folder: RunFolder, name: str, watch: Watch
) -> tuple[LayeredNetwork, Source]:
    """A network with kept weights, and what embeds with it: frozen layers are known by weights."""
    network = assemble.network(context.config).to(context.device)
    folder.fill(network, name)
    return network, source_of(context, network, watch)


def _pooled_at_start(
    context: RunContext, source: Source, watch: Watch
) -> tuple[Tensor, Tensor] | None:
    """Descriptors of training and test items before the head; None without training items, as on
    other data than the run's own."""
    train, test = context.split.train, context.split.test
    if not len(train):
        return None
    if len(train) > FITTED_ON:
        rng = np.random.default_rng([context.config.seed, 2])
        train = np.sort(rng.choice(train, FITTED_ON, replace=False))
    progress = watch.of("embedding: principal components")
    return source.embed(train, progress, field="pooled"), source.embed(
        test, progress, field="pooled"
    )


def given_space(context: RunContext, watch: Watch) -> dict[str, Tensor]:
    """What the networks were given: features, or raw pixels."""
    test = context.split.test
    if isinstance(context.dataset, FeatureDataset):
        return {"features": torch.from_numpy(context.dataset.features[test]).float()}
    return {"pixels": raw_pixels(context, test, watch.of("reading raw pixels"))}


def raw_pixels(
    context: RunContext, items: IntArray, progress: Progress
) -> Tensor:  # [n, 3 * side * side], or a third where all are grey
    """Pictures as they are, scaled down: what any network must beat."""
    half = (0.5, 0.5, 0.5)
    _, transform = transforms.named("small", PIXEL_SIDE, half, half)
    parts: list[Tensor] = []
    for batch in context.batches(transform, items):
        parts.append(batch.images.flatten(1))
        progress(min(len(parts) * EMBED_BATCH, len(items)), len(items))
    channels = torch.cat(parts).unflatten(1, (3, -1))
    is_grey = torch.equal(channels[:, :2], channels[:, 1:])
    return channels[:, 0].contiguous() if is_grey else channels.flatten(1)  # the same cosines


def _relation(context: RunContext) -> dict[str, Any]:
    """Who is the same as whom among the test items, where it is more than their class."""
    relevance, test = context.relevance, context.split.test
    if isinstance(relevance, LabelSets):
        sets = relevance.sets.numpy()[test]
        return {"label_sets": sets, "least": np.array(relevance.least)}
    if relevance.has_classes or not isinstance(relevance, KnownPairs | GradedPairs):
        return {}
    place = np.full(len(context.dataset), -1)
    place[test] = np.arange(len(test))
    inside = (place[relevance.pairs] >= 0).all(axis=1)
    listed = np.column_stack([place[relevance.pairs[inside]], relevance.grades[inside]])
    return {relevance.kind: listed, "least": np.array(relevance.least)}


def keep_embeddings(
    folder: RunFolder, embeddings: Tensor, context: RunContext, scores: dict[str, Evaluation]
) -> None:
    """The trained embeddings and who asks whom, and every method's value per query for paired
    comparisons."""
    split, groups = context.split, annotations_of(context.dataset).ignore_groups
    some = {
        "query": split.query,
        "gallery": split.gallery,
        "groups": None if groups is None else groups[split.test],
    } | _relation(context)
    folder.write_arrays(
        "embeddings/test.npz",
        embeddings=embeddings.numpy(),
        labels=context.dataset.labels[split.test],
        indices=split.test,
        **{name: array for name, array in some.items() if array is not None},
    )
    per_query = {
        f"{row}/{metric}": values.numpy()
        for row, score in scores.items()
        for metric, values in score.per_query.items()
    }
    folder.write_arrays("embeddings/per_query.npz", **per_query)
