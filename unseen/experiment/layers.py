"""Every layer as a descriptor: recall of each, and the choice of the run's own.

descriptor = "embedding"    what the loss sees
descriptor = "<layer>"      any layer (`unseen layers RUN` names them); epochs are chosen by it
descriptor = "best"         the layer with the highest recall@1 on the classes the run selects on,
                            found with the weights of the chosen epoch
descriptor = "orders"       all orders of HORDE, reduced by principal components
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unseen import assemble
from unseen.contracts import IntArray
from unseen.data.pictures.loader import evaluation_batches
from unseen.evaluation.retrieve import retrieve
from unseen.experiment.orders import ORDERS, fit_orders
from unseen.experiment.run_context import RunContext, Watch, computing
from unseen.metrics.recall import Recall
from unseen.neighbours.space import non_finite_rows
from unseen.networks.descriptor import usual_taps
from unseen.networks.network import LayeredNetwork
from unseen.networks.taps import EMBEDDING, check_names
from unseen.training.events import DescriptorChosen
from unseen.training.run_folder import RunFolder
from unseen.training.selection import Descriptor, Selection, write_selection

BEST = "best"
METRIC = "recall@1"
PARTS = ("train", "test")


def choose_descriptor(
    context: RunContext, folder: RunFolder, selection: Selection, watch: Watch
) -> tuple[Selection, Descriptor]:
    """The selection with the run's descriptor in it, also on disk, and the descriptor."""
    if selection.descriptor is not None:
        return selection, selection.descriptor
    asked = context.config.descriptor
    chosen = Descriptor(asked, layer=asked)
    if asked == BEST:
        on = context.config.select
        if on == "test":
            folder.note_test_read("choice of the best layer", context.config.hash())
        recall = recall_to_select_by(context, folder, watch)
        rounded = {name: round(value, 6) for name, value in recall.items()}
        # of equals the last: nearest to what was trained
        layer = max(reversed(recall), key=lambda name: recall[name])
        chosen = Descriptor(asked, layer, on, rounded)
        watch.tell(DescriptorChosen(layer, on, rounded))
    if asked == ORDERS:
        with computing(context):
            fit_orders(context, folder, stored_network(context, folder), watch)
    selection = replace(selection, descriptor=chosen)
    write_selection(folder, selection)
    return selection, chosen


def recall_to_select_by(context: RunContext, folder: RunFolder, watch: Watch) -> dict[str, float]:
    """Recall@1 of every usual layer of the stored network on the classes to select on."""
    network = stored_network(context, folder)
    _, transform = assemble.picture_transforms(context.config, network)
    layers = named_layers(context, network, transform)
    split, on = context.split, context.config.select
    items, progress = split.test if on == "test" else split.validation, watch.of(f"layers on {on}")
    with computing(context):
        found = context.embed_layers(network, transform, items, layers, progress)
        return _recalls(context, found, items)


def stored_network(context: RunContext, folder: RunFolder) -> LayeredNetwork:
    """The network a run has kept."""
    if not folder.has("weights.safetensors"):
        raise ValueError(
            f"{folder.path} has no weights yet: it was stopped before its first epoch ended"
        )
    network = assemble.network(context.config).to(context.device)
    folder.fill(network, "weights.safetensors")
    return network


def named_layers(
    context: RunContext, network: LayeredNetwork, transform: Any, asked: Sequence[str] = ()
) -> list[str]:
    """The layers asked for, or all usual ones, in the order they run."""
    if asked:
        check_names(asked, network.layers())
        return list(dict.fromkeys(asked))
    first = context.split.train[:1]
    batch = next(evaluation_batches(context.dataset, first, transform, 1, workers=0))
    return usual_taps(network, batch.images.to(context.device))


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
    found = {}
    for name, descriptor in descriptors.items():
        non_finite = bool(len(non_finite_rows(descriptor)))
        values = torch.zeros_like(descriptor) if non_finite else descriptor
        normalise = context.config.normalise or name != EMBEDDING
        neighbours = retrieve(**task.arguments(values), depth=1, normalise=normalise)
        right = torch.full((len(items),), math.nan, dtype=torch.float64)
        nearest = torch.full((len(items),), -1)
        first = neighbours.indices[:, 0]  # -1 where a group has nobody else to ask
        right[query] = Recall(1)(neighbours)
        nearest[query] = gallery[first.clamp(min=0)].masked_fill(first < 0, -1)
        found[name] = Answers(right, nearest)
    return found


def recall_by_layer(
    context: RunContext, network: LayeredNetwork, transform: Any, layers: list[str], items: IntArray
) -> dict[str, float]:
    """Recall@1 of each layer from one forward pass."""
    found = context.embed_layers(network, transform, items, layers)
    return {name: round(value, 6) for name, value in _recalls(context, found, items).items()}


def _recalls(
    context: RunContext, descriptors: dict[str, Tensor], items: IntArray
) -> dict[str, float]:
    """Of several processes the first one searches."""

    def measured() -> dict[str, float]:
        answers = first_answers(context, descriptors, items)
        return {name: answer.recall for name, answer in answers.items()}

    return context.processes.agreed(measured)


def compare_layers(
    context: RunContext, folder: RunFolder, asked: Sequence[str], watch: Watch
) -> dict[str, Any]:
    """Recall@1 of layers on training and on test classes, one forward pass each; written to
    layers.json, and who found what to embeddings/layers.npz. Reads the test classes."""
    network = stored_network(context, folder)
    _, transform = assemble.picture_transforms(context.config, network)
    layers = named_layers(context, network, transform, asked)
    folder.note_test_read("recall by layer", context.config.hash())
    answers = {}
    with computing(context):
        for part in PARTS:
            items, progress = getattr(context.split, part), watch.of(f"layers on {part} classes")
            found = context.embed_layers(network, transform, items, layers, progress)
            sizes = {name: descriptor.shape[1] for name, descriptor in found.items()}
            answers[part] = first_answers(context, found, items)
    rows = [
        {"layer": name, "size": sizes[name]}
        | {part: round(answers[part][name].recall, 6) for part in PARTS}
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
