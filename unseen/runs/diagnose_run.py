"""`unseen inspect diagnose`: the embedding space of a run on training and on unseen classes."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import torch

from unseen.config import build
from unseen.core import custom_components, registry
from unseen.core.contracts import Diagnostic, IntArray
from unseen.evaluation.diagnosis import SpaceNumbers, measure_space
from unseen.evaluation.findings import findings
from unseen.evaluation.robustness import robustness
from unseen.models.network import EmbeddingNetwork
from unseen.runs.batch_source import source_of
from unseen.runs.evaluate_layers import (
    choose_descriptor,
    first_answers,
    recall_to_select_by,
)
from unseen.runs.prepare import Callbacks, RunContext, computing
from unseen.runs.run_items import some_classes
from unseen.runs.run_networks import embed_at, stored_network
from unseen.training.result import result_of
from unseen.training.run_folder import RunFolder
from unseen.training.selected_weights import read_selection


def diagnose(
    context: RunContext,
    folder: RunFolder,
    callbacks: Callbacks,
    *,
    with_robustness: bool = False,
    also: Sequence[str] = (),
) -> dict[str, Any]:
    """Numbers, findings and images to look at; reads the test classes. also: further diagnostics
    by name, of the catalogue or from outside.

    Training classes count with about as many images as there are test images: recall falls with
    the size of the gallery. Layers are compared on validation classes. Writes diagnosis.json.
    """
    normalize = context.config.evaluation.normalize
    diagnostics: dict[str, Diagnostic] = {
        name: registry.create("diagnostics", name, normalize=normalize) for name in also
    }
    network = stored_network(context, folder)
    _, descriptor = choose_descriptor(context, folder, read_selection(folder), callbacks)
    layer = descriptor.layer
    folder.note_test_read("diagnosis", context.config.hash())
    config, split, labels = context.config, context.split, context.dataset.labels
    seen = some_classes(split.train, labels, len(split.test), config.training.seed)
    sides = {"train": seen, "test": split.test}
    source = source_of(context, network, callbacks)
    diagnoses: dict[str, SpaceNumbers] = {}
    more: dict[str, dict[str, Any]] = {name: _source(name) for name in also}
    with computing(context):
        for side, items in sides.items():
            progress = callbacks.of(f"embedding {side} classes")
            embeddings = embed_at(layer, source, network, folder, items, progress)
            classes = torch.from_numpy(labels[items])
            diagnoses[side] = measure_space(embeddings, classes, config.evaluation.normalize)
            # as it is evaluated: queries, gallery and groups
            if "recall@1" in diagnoses[side].numbers:
                answers = first_answers(context, {layer: embeddings}, items)[layer]
                diagnoses[side].numbers["recall@1"] = answers.recall
                for name, diagnostic in diagnostics.items():
                    values = diagnostic(embeddings, classes)
                    more[name][side] = _values(name, values)
        recall = descriptor.recall or _layers(context, folder, callbacks)
        numbers = {side: matches.numbers for side, matches in diagnoses.items()}
        listed = findings(numbers["train"], numbers["test"], recall, layer)
        if (result := result_of(folder.path)) and (gained := result.conclusion):
            listed = [gained, *listed]
        diagnosis: dict[str, Any] = {
            "descriptor": layer,
            "findings": [asdict(finding) for finding in listed],
            "numbers": {p: {k: _json(v) for k, v in n.items()} for p, n in numbers.items()},
            "layers": recall,
            "label_issues": {
                p: _named(context, sides[p], matches) for p, matches in diagnoses.items()
            },
            "hubs": [[int(split.test[i]), times] for i, times in diagnoses["test"].hubs],
        }
        if more:
            diagnosis["more"] = {
                custom_components.short_name(name): numbers for name, numbers in more.items()
            }
        if with_robustness:
            diagnosis["robustness"] = _robustness(context, network, callbacks)
    folder.write_json("diagnosis.json", diagnosis)
    return diagnosis


def _source(name: str) -> dict[str, Any]:
    """Where a diagnostic that is not ours came from."""
    origin = custom_components.origin_of(registry.find("diagnostics", name))
    return {} if origin is None else {"source": origin.to_dict()}


def _values(name: str, result: Any) -> dict[str, Any]:
    """Numbers as they are, arrays as lists."""
    arrays = {k: np.asarray(v) for k, v in result.items()} if isinstance(result, dict) else {}
    if not arrays or any(array.dtype.kind not in "biuf" for array in arrays.values()):
        raise ValueError(f"{name} must give a dict of numbers or arrays, got {str(result)[:60]}")
    return {key: _plain(array.tolist()) for key, array in arrays.items()}


def _plain(value: Any) -> Any:
    return [_plain(one) for one in value] if isinstance(value, list) else _json(value)


def _layers(context: RunContext, folder: RunFolder, callbacks: Callbacks) -> dict[str, float]:
    """Recall by layer on classes the run selects on; nothing where it has none to select on."""
    if not len(context.split.validation):
        return {}
    return {n: round(v, 6) for n, v in recall_to_select_by(context, folder, callbacks).items()}


def _robustness(context: RunContext, network: Any, callbacks: Callbacks) -> dict[str, Any]:
    if not isinstance(network, EmbeddingNetwork):
        raise ValueError("the robustness test needs a network with one head and a last map")
    _, transform = build.image_transforms(context.config, network)
    test = context.split.test
    result = robustness(
        network,
        context.batches(transform, test),
        len(test),
        context.device,
        normalize=context.config.evaluation.normalize,
        seed=context.config.training.seed,
        progress=callbacks.of("hiding local features"),
    )
    rows = [[f, round(mean, 6), round(std, 6)] for f, (mean, std) in result.recall.items()]
    return {"recall": rows, "scatter_ratio": _json(result.scatter_ratio)}


def _named(context: RunContext, items: IntArray, result: SpaceNumbers) -> list[list[Any]]:
    """Label issues as [position in the data set, suggested class]."""
    names = context.dataset.label_names
    return [[int(items[i]), str(names[label])] for i, label in result.label_issues]


def _json(value: float) -> float | None:
    return round(value, 6) if np.isfinite(value) else None
