"""Recall of every layer of a network, and the choice of the descriptor of a run."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unseen.config import build
from unseen.core.contracts import IntArray
from unseen.data.images.loader import evaluation_batches
from unseen.evaluation.retrieve import retrieve
from unseen.metrics.recall import Recall
from unseen.models.descriptor import usual_layers
from unseen.models.layer_outputs import EMBEDDING, check_names
from unseen.models.network import LayeredNetwork
from unseen.neighbors.space import non_finite_rows
from unseen.runs.prepare import Callbacks, RunContext, computing
from unseen.runs.run_networks import ORDERS, fit_orders, stored_network
from unseen.training.events import DescriptorChosen
from unseen.training.run_folder import RunFolder
from unseen.training.selected_weights import Descriptor, Selection, write_selection

BEST = "best"
METRIC = "recall@1"
PARTS = ("train", "test")


def choose_descriptor(
    context: RunContext, folder: RunFolder, selection: Selection, callbacks: Callbacks
) -> tuple[Selection, Descriptor]:
    """The selection with the run's descriptor in it, also on disk, and the descriptor.

    descriptor = "embedding": what the loss trains; "<layer>": any layer, which also selects the
    epoch (`unseen inspect layers RUN`); "best": the layer with the highest recall@1 on the
    classes the run selects on, with the weights of the selected epoch; "orders": all orders of
    HORDE, reduced by principal components.
    """
    if selection.descriptor is not None:
        return selection, selection.descriptor
    request = context.config.evaluation.descriptor
    chosen = Descriptor(request, layer=request)
    if request == BEST:
        on = context.config.training.validation.select
        if on == "test":
            folder.note_test_read("choice of the best layer", context.config.hash())
        recall = recall_to_select_by(context, folder, callbacks)
        rounded = {name: round(value, 6) for name, value in recall.items()}
        # of equals the last: nearest to what was trained
        layer = max(reversed(recall), key=lambda name: recall[name])
        chosen = Descriptor(request, layer, on, rounded)
        callbacks.log(DescriptorChosen(layer, on, rounded))
    if request == ORDERS:
        with computing(context):
            fit_orders(context, folder, stored_network(context, folder), callbacks)
    selection = replace(selection, descriptor=chosen)
    write_selection(folder, selection)
    return selection, chosen


def recall_to_select_by(
    context: RunContext, folder: RunFolder, callbacks: Callbacks
) -> dict[str, float]:
    """Recall@1 of every usual layer of the stored network on the classes to select on."""
    network = stored_network(context, folder)
    _, transform = build.image_transforms(context.config, network)
    layers = named_layers(context, network, transform)
    on = context.config.training.validation.select
    items = context.split.test if on == "test" else context.split.validation
    progress = callbacks.of(f"layers on {on}")
    with computing(context):
        result = context.embed_layers(network, transform, items, layers, progress)
        return _recalls(context, result, items)


def named_layers(
    context: RunContext, network: LayeredNetwork, transform: Any, request: Sequence[str] = ()
) -> list[str]:
    """The layers asked for, or all usual ones, in the order they run."""
    if request:
        check_names(request, network.layers())
        return list(dict.fromkeys(request))
    first = context.split.train[:1]
    batch = next(evaluation_batches(context.dataset, first, transform, 1, workers=0))
    return usual_layers(network, batch.images.to(context.device))


@dataclass(frozen=True)
class Answers:
    """What the queries of a set find first at one layer."""

    right: Tensor  # [n] float64: 1 or 0, NaN where nothing is asked or nothing could be right
    nearest: Tensor  # [n] positions in the set, or -1

    @property
    def recall(self) -> float:
        return float(self.right.nanmean())


def first_answers(
    context: RunContext, descriptors: dict[str, Tensor], items: IntArray
) -> dict[str, Answers]:
    """The nearest neighbour of each query, by layer; descriptors with NaN find nothing right."""
    task, everyone = context.retrieval_task(items), torch.arange(len(items))
    query = everyone if task.query is None else task.query
    gallery = everyone if task.gallery is None else task.gallery
    result = {}
    for name, descriptor in descriptors.items():
        non_finite = bool(len(non_finite_rows(descriptor)))
        values = torch.zeros_like(descriptor) if non_finite else descriptor
        normalize = context.config.evaluation.normalize or name != EMBEDDING
        neighbors = retrieve(**task.arguments(values), depth=1, normalize=normalize)
        right = torch.full((len(items),), math.nan, dtype=torch.float64)
        nearest = torch.full((len(items),), -1)
        first = neighbors.indices[:, 0]  # -1 where a group has nobody else to ask
        right[query] = Recall(1)(neighbors)
        nearest[query] = gallery[first.clamp(min=0)].masked_fill(first < 0, -1)
        result[name] = Answers(right, nearest)
    return result


def recall_by_layer(
    context: RunContext, network: LayeredNetwork, transform: Any, layers: list[str], items: IntArray
) -> dict[str, float]:
    """Recall@1 of each layer from one forward pass."""
    result = context.embed_layers(network, transform, items, layers)
    return {name: round(value, 6) for name, value in _recalls(context, result, items).items()}


def _recalls(
    context: RunContext, descriptors: dict[str, Tensor], items: IntArray
) -> dict[str, float]:
    """Of several processes the first one searches."""

    def measured() -> dict[str, float]:
        answers = first_answers(context, descriptors, items)
        return {name: answer.recall for name, answer in answers.items()}

    return context.processes.agreed(measured)


def compare_layers(
    context: RunContext, folder: RunFolder, request: Sequence[str], callbacks: Callbacks
) -> dict[str, Any]:
    """Recall@1 of layers on training and on test classes, one forward pass each; written to
    layers.json, and who found what to embeddings/layers.npz. Reads the test classes."""
    network = stored_network(context, folder)
    _, transform = build.image_transforms(context.config, network)
    layers = named_layers(context, network, transform, request)
    folder.note_test_read("recall by layer", context.config.hash())
    answers = {}
    with computing(context):
        for side in PARTS:
            items = getattr(context.split, side)
            progress = callbacks.of(f"layers on {side} classes")
            result = context.embed_layers(network, transform, items, layers, progress)
            sizes = {name: descriptor.shape[1] for name, descriptor in result.items()}
            answers[side] = first_answers(context, result, items)
    rows = [
        {"layer": name, "size": sizes[name]}
        | {side: round(answers[side][name].recall, 6) for side in PARTS}
        for name in layers
    ]
    table = {"metric": METRIC, "layers": rows, "config_hash": context.config.hash()}
    folder.write_arrays(
        "embeddings/layers.npz",
        names=np.array(layers),
        right=torch.stack([answers["test"][name].right for name in layers]).numpy(),
        nearest=torch.stack([answers["test"][name].nearest for name in layers]).numpy(),
        indices=context.split.test,
    )
    folder.write_json("layers.json", table)
    return table
