"""The evaluation of a run on its test classes, beside baselines that need no training."""

import hashlib
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unseen.config import build
from unseen.config.schema import ResolvedConfig
from unseen.config.stages import stage_config
from unseen.core.contracts import (
    DOMAIN,
    FeatureDataset,
    FloatArray,
    IntArray,
    Progress,
    annotations_of,
    domains_of,
)
from unseen.core.relevance import GradedPairs, KnownPairs, LabelSets
from unseen.data.images import transforms
from unseen.evaluation.embed import Field
from unseen.evaluation.evaluate import Evaluation, evaluate
from unseen.evaluation.long_tail import thirds
from unseen.evaluation.retrieval_task import RetrievalTask
from unseen.evaluation.training_gain import Extent, gains, rounded
from unseen.models.backbone import backbone_info
from unseen.models.head import PRINCIPAL, principal_directions
from unseen.runs.batch_source import BatchSource, source_of
from unseen.runs.evaluate_layers import choose_descriptor
from unseen.runs.prepare import EMBED_BATCH, Callbacks, RunContext, computing, config_at_start
from unseen.runs.run_items import describe, split_hash
from unseen.runs.run_networks import (
    embed_at,
    load_start,
    stage_folder,
    start_of,
    start_of_selected,
    stored_network,
    while_training,
)
from unseen.runs.time_spent import ENOUGH, REFIT
from unseen.training.event_log import read
from unseen.training.events import BudgetDecided, Epoch, Evaluated
from unseen.training.nested import AT, row_at
from unseen.training.result import FILE as RESULT
from unseen.training.result import Result, note_reading, rows_of, write_result
from unseen.training.run_folder import RunFolder
from unseen.training.selected_weights import BEFORE_REFIT, Selection

FINAL = "final evaluation"
PIXEL_SIDE = 32  # the raw-pixel baseline compares images at this size
FITTED_ON = 10_000  # training items that principal directions are found on, at most


def evaluate_run(
    context: RunContext,
    folder: RunFolder,
    selection: Selection,
    purpose: str,
    callbacks: Callbacks,
    on: str | None = None,
) -> Result:
    """A reading of the test classes, which the manifest notes first. The final evaluation writes
    result.json and the embeddings; any other a file of its own, and the embeddings only where there
    are none of a final one. on: names data other than the run's own. Several processes embed the
    images together; the first one evaluates and writes.

    The baselines are the untrained network, principal components of its pooled descriptors, and
    the input itself: raw pixels, or features.
    """
    context.unreadable.remember(read(folder.file("events.jsonl")))
    context.unreadable.log = lambda event: callbacks.warn(str(event))
    selection, descriptor = choose_descriptor(context, folder, selection, callbacks)
    folder.note_test_read(purpose, context.config.hash())
    test = context.split.test
    callbacks.log(Evaluated(len(np.unique(context.dataset.labels[test])), len(test)))
    extent = extent_of(context, folder, selection)  # all processes read the folder together
    keeps = purpose == FINAL or not (on or folder.has(RESULT))

    def evaluated() -> Result:
        scores = _scores(context, spaces, callbacks)
        if keeps:
            keep_embeddings(folder, spaces["trained"], context, scores)
        return _result(context, selection, extent, scores)

    with computing(context):
        spaces = embedding_spaces(context, folder, descriptor.layer, callbacks)
        result = context.processes.agreed(evaluated)
    if purpose == FINAL:
        write_result(folder, result)
    else:
        note_reading(folder, purpose, result, on)
    return result


def evaluate_at(
    context: RunContext, folder: RunFolder, layer: str, metric: str
) -> dict[str, FloatArray]:
    """The value of every query at another layer than the run's own, by the trained network and by
    what needs no training: a reading of the test classes of its own."""
    folder.note_test_read(f"{metric} at {layer}", context.config.hash())
    with computing(context):
        spaces = embedding_spaces(context, folder, layer, Callbacks())
        task = context.retrieval_task(context.split.test)
        alone = replace(context, config=context.config.with_values({"metrics": [metric]}))
        scores = {
            row: _score(alone, row, space, task, Callbacks()) for row, space in spaces.items()
        }
    return {row: score.per_query[metric].numpy() for row, score in scores.items()}


def _scores(
    context: RunContext, spaces: dict[str, Tensor], callbacks: Callbacks
) -> dict[str, Evaluation]:
    """Of every space, by the class and by further labels."""
    config, split = context.config, context.split
    spaces = spaces | input_space(context, callbacks)
    task = context.retrieval_task(split.test, config.data.relevance.by)
    result = {name: _score(context, name, space, task, callbacks) for name, space in spaces.items()}
    scores = {name: score.by("") for name, score in result.items()}
    for column in config.data.relevance.by:
        scores |= {f"{name} by {column}": score.by(column) for name, score in result.items()}
    return scores | _domain_scores(context, task, scores)


def _domain_scores(
    context: RunContext, task: RetrievalTask, scores: dict[str, Evaluation]
) -> dict[str, Evaluation]:
    """Before and after training on each domain, where batches were made by them."""
    config, domains = context.config, domains_of(context.dataset)
    if config.sampler.name != "by_domain" or domains is None:
        return {}
    from unseen.evaluation.by_domain import by_domain  # noqa: PLC0415 - of this sampler alone

    own = torch.from_numpy(domains[context.split.test])
    request = own if task.query is None else own[task.query]
    names, labels = annotations_of(context.dataset).label_names[DOMAIN], task.query_labels()
    return {
        f"{row} on {name}": score
        for row in ("trained", "untrained")
        for name, score in by_domain(
            scores[row], request, labels, names, config.training.seed
        ).items()
    }


def _result(
    context: RunContext, selection: Selection, extent: Extent, scores: dict[str, Evaluation]
) -> Result:
    config, about = context.config, describe(context)
    labels = context.retrieval_task(context.split.test).query_labels()
    gained = gains(scores["untrained"], scores["trained"], labels, config.training.seed)
    return Result(
        rows_of(scores),
        config.hash(),
        about.data,
        about.split,
        config.training.seed,
        selection,
        unreadable_images=len(context.unreadable.paths),
        start=start_of(config),
        gain={metric: rounded(gain) for metric, gain in gained.items()},
        extent=extent,
        thirds=thirds(
            scores["trained"].per_query,
            labels,
            torch.from_numpy(context.dataset.labels[context.split.test]),
        ),
        monitor="test" if config.training.validation.monitor == "test" else None,
    )


def _score(
    context: RunContext, name: str, space: Tensor, task: RetrievalTask, callbacks: Callbacks
) -> Evaluation:
    """The scores of a space. Runs of a study share their baselines: those are measured once and
    known again by the content of the space."""
    config = context.config

    def measured() -> Evaluation:
        return evaluate(
            **task.arguments(space),
            metrics=tuple(config.evaluation.metrics),
            normalize=normalize,
            missing="count",  # of classes the split has seen to it; further labels may be rare
            non_finite="worst",
            seed=config.training.seed,
            progress=callbacks.of(f"evaluation: {name}"),
        )

    inputs = ("pixels", "features", PRINCIPAL)
    normalize = config.evaluation.normalize or name.partition(AT)[0] in inputs
    if name == "trained":
        return measured()
    how = (config.evaluation.metrics, normalize, config.training.seed, config.data.relevance.by)
    content = hashlib.sha256(f"{how} {split_hash(context.split)}".encode())
    content.update(space.contiguous().numpy().tobytes())
    known = context.known_scores
    if content.digest() not in known:
        known[content.digest()] = measured()
    return known[content.digest()]


def embedding_spaces(
    context: RunContext, folder: RunFolder, layer: str, callbacks: Callbacks
) -> dict[str, Tensor]:
    """Test descriptors of the trained and the untrained network, and of principal components. In a
    run with stages the untrained one is that of the first stage that led to the selected one."""
    test, start = context.split.test, while_training(layer)
    first, first_folder = start_of_selected(context, folder)
    network = build.network(first.config).to(context.device)
    load_start(first_folder, network, first.config)
    source = source_of(first, network, callbacks)
    untrained, pooled = _untrained(first, source, start, callbacks)
    fitted_on = None if pooled is None else _pooled_for_directions(first, source, callbacks)
    network = stored_network(context, folder)
    source = source_of(context, network, callbacks)
    trained = embed_at(
        layer, source, network, folder, test, callbacks.of("embedding: trained network")
    )
    spaces = {"trained": trained, "untrained": untrained}
    if pooled is not None and fitted_on is not None:
        directions = principal_directions(fitted_on, trained.shape[1])  # as many as the descriptor
        spaces[PRINCIPAL] = (pooled.double() @ directions.T).float()
    for size in context.config.model.nested_sizes[:-1]:
        for name in ("trained", PRINCIPAL) if PRINCIPAL in spaces else ("trained",):
            spaces[row_at(name, size)] = spaces[name][:, :size].contiguous()
    if folder.has(before := f"{BEFORE_REFIT}/weights.safetensors"):
        source = source_of(context, stored_network(context, folder, before), callbacks)
        spaces["before_refit"] = source.embed(
            test, callbacks.of("embedding: before the refit"), start
        )
    return spaces


def _untrained(
    context: RunContext, source: BatchSource, layer: str, callbacks: Callbacks
) -> tuple[Tensor, Tensor | None]:
    """Test descriptors at a layer and before the head, from one forward pass. The latter need
    training items, which other data than the run's own do not have."""
    test, progress = context.split.test, callbacks.of("embedding: untrained network")
    fields: list[Field] = ["embeddings", "pooled"] if len(context.split.train) else ["embeddings"]
    rows = source.embed_fields(test, progress, layer, fields)
    return rows["embeddings"], rows.get("pooled")


def _pooled_for_directions(
    context: RunContext, source: BatchSource, callbacks: Callbacks
) -> Tensor:  # [n, P]
    """Training descriptors before the head, at most `FITTED_ON`."""
    train = context.split.train
    if len(train) > FITTED_ON:
        rng = np.random.default_rng([context.config.training.seed, 2])
        train = np.sort(rng.choice(train, FITTED_ON, replace=False))
    return source.embed(train, callbacks.of("embedding: principal components"), field="pooled")


def input_space(context: RunContext, callbacks: Callbacks) -> dict[str, Tensor]:
    """What the networks were given: features, or raw pixels."""
    test = context.split.test
    if isinstance(context.dataset, FeatureDataset):
        return {"features": torch.from_numpy(context.dataset.features[test]).float()}
    return {"pixels": raw_pixels(context, test, callbacks.of("reading raw pixels"))}


def raw_pixels(
    context: RunContext, items: IntArray, progress: Progress
) -> Tensor:  # [n, 3 * side * side], or a third where all are grey
    """Images as they are, scaled down: what any network must beat."""
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


def extent_of(context: RunContext, folder: RunFolder, selection: Selection) -> Extent:
    """How far a run was trained, and what its time budget cut. context: of the selected stage."""
    config, stages, at_start = context.config, selection.stages, config_at_start(folder)
    stage = config.training.depth if stages is None else stages.selected
    of_stage = folder if stages is None else stage_folder(folder, stage)
    epochs = [event for event in read(of_stage.file("events.jsonl")) if isinstance(event, Epoch)]
    cuts, savings = dict[str, BudgetDecided](), list[str]()
    manifest = folder.manifest()
    for event in read(folder.file("events.jsonl"), manifest.event_log_bytes):
        if isinstance(event, BudgetDecided):
            cuts[event.training] = event
    plan = manifest.plan or []
    if any(reason.key == "image_size" for reason in plan) and config.data.image_size is not None:
        own = backbone_info(config.model.backbone).input_spec.size
        if config.data.image_size < own:
            savings.append(f"images of {config.data.image_size} px instead of {own}")
    savings += [reason.why for reason in plan if reason.key == "depth"]
    enough = next((float(reason.value) for reason in plan if reason.key == ENOUGH), None)
    if any(_is_refit(event) for event in cuts.values()):
        savings.append("refit skipped")
    return Extent(
        stage,
        len(epochs),
        config.training.epochs,
        config.data.image_size,
        config.training.time_budget,
        [_cut(event, at_start) for event in cuts.values() if not _is_refit(event)],
        savings,
        enough,
    )


def _is_refit(event: BudgetDecided) -> bool:
    return event.training == REFIT or bool(event.discarded)


def _cut(event: BudgetDecided, config: ResolvedConfig) -> str:
    if not event.epochs:
        return f"{event.training} skipped"
    epochs = f"{event.epochs} of {stage_config(config, event.training).training.epochs} epochs"
    return f"{epochs} of {event.training}" if config.training.stages else epochs
