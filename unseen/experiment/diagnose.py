"""`unseen diagnose`: a trained run's embedding space on training and on unseen classes, in words.

Training classes count with about as many pictures as there are test pictures: recall falls with the
size of the gallery. Layers are compared on validation classes. Written to diagnosis.json.
"""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import torch

from unseen import assemble, catalogue, outside
from unseen.contracts import Diagnostic, IntArray
from unseen.evaluation.diagnose import Look, look
from unseen.evaluation.findings import findings
from unseen.evaluation.robustness import robustness
from unseen.experiment.classes import monitored_items
from unseen.experiment.layers import (
    choose_descriptor,
    first_answers,
    recall_to_select_by,
    stored_network,
)
from unseen.experiment.orders import embed_at
from unseen.experiment.run_context import RunContext, Watch, computing
from unseen.experiment.source import source_of
from unseen.networks.network import EmbeddingNetwork
from unseen.training.result import result_of
from unseen.training.run_folder import RunFolder
from unseen.training.selection import read_selection


def diagnose(
    context: RunContext,
    folder: RunFolder,
    watch: Watch,
    *,
    with_robustness: bool = False,
    also: Sequence[str] = (),
) -> dict[str, Any]:
    """Numbers, findings and pictures to look at; reads the test classes. also: further diagnostics
    by name, of the catalogue or from outside."""
    further = {name: made(name, context.config.normalise) for name in also}
    network = stored_network(context, folder)
    _, descriptor = choose_descriptor(context, folder, read_selection(folder), watch)
    layer = descriptor.layer
    folder.note_test_read("diagnosis", context.config.hash())
    config, split, labels = context.config, context.split, context.dataset.labels
    seen = monitored_items(split.train, labels, len(split.test), config.seed)
    parts = {"train": seen, "test": split.test}
    source = source_of(context, network, watch)
    looks: dict[str, Look] = {}
    more: dict[str, dict[str, Any]] = {name: _source(name) for name in also}
    with computing(context):
        for part, items in parts.items():
            progress = watch.of(f"embedding {part} classes")
            embeddings = embed_at(layer, source, network, folder, items, progress)
            looks[part] = look(embeddings, torch.from_numpy(labels[items]), config.normalise)
            if "recall@1" in looks[part].numbers:  # as it is judged: queries, gallery and groups
                answers = first_answers(context, {layer: embeddings}, items)[layer]
                looks[part].numbers["recall@1"] = answers.recall
                for name, diagnostic in further.items():
                    found_by = diagnostic(embeddings, torch.from_numpy(labels[items]))
                    more[name][part] = _values(name, found_by)
        recall = descriptor.recall or _layers(context, folder, watch)
        numbers = {part: found.numbers for part, found in looks.items()}
        told_of = findings(numbers["train"], numbers["test"], recall, layer)
        if (result := result_of(folder.path)) and (gained := result.verdict):
            told_of = [gained, *told_of]
        diagnosis: dict[str, Any] = {
            "descriptor": layer,
            "findings": [asdict(finding) for finding in told_of],
            "numbers": {p: {k: _json(v) for k, v in n.items()} for p, n in numbers.items()},
            "layers": recall,
            "suspects": {p: _named(context, parts[p], found) for p, found in looks.items()},
            "hubs": [[int(split.test[i]), times] for i, times in looks["test"].hubs],
        }
        if more:
            diagnosis["more"] = {
                outside.short_name(name): numbers for name, numbers in more.items()
            }
        if with_robustness:
            diagnosis["robustness"] = _robustness(context, network, watch)
    folder.write_json("diagnosis.json", diagnosis)
    return diagnosis


def made(name: str, normalise: bool) -> Diagnostic:
    """A diagnostic by name, with its own values."""
    diagnostic: Diagnostic = catalogue.create("diagnostics", name, normalise=normalise)
    return diagnostic


def _source(name: str) -> dict[str, Any]:
    """Where a diagnostic that is not ours came from."""
    origin = outside.origin_of(catalogue.find("diagnostics", name))
    return {} if origin is None else {"source": origin.to_dict()}


def _values(name: str, found: Any) -> dict[str, Any]:
    """Numbers as they are, arrays as lists."""
    arrays = {k: np.asarray(v) for k, v in found.items()} if isinstance(found, dict) else {}
    if not arrays or any(array.dtype.kind not in "biuf" for array in arrays.values()):
        raise ValueError(f"{name} must give a dict of numbers or arrays, got {str(found)[:60]}")
    return {key: _plain(array.tolist()) for key, array in arrays.items()}


def _plain(value: Any) -> Any:
    return [_plain(one) for one in value] if isinstance(value, list) else _json(value)


def _layers(context: RunContext, folder: RunFolder, watch: Watch) -> dict[str, float]:
    """Recall by layer on classes the run selects on; nothing where it has none to select on."""
    if not len(context.split.validation):
        return {}
    return {n: round(v, 6) for n, v in recall_to_select_by(context, folder, watch).items()}


def _robustness(context: RunContext, network: Any, watch: Watch) -> dict[str, Any]:
    if not isinstance(network, EmbeddingNetwork):
        raise ValueError("the robustness test needs a network with one head and a last map")
    _, transform = assemble.picture_transforms(context.config, network)
    test = context.split.test
    found = robustness(
        network,
        context.batches(transform, test),
        len(test),
        context.device,
        normalise=context.config.normalise,
        seed=context.config.seed,
        progress=watch.of("hiding local features"),
    )
    rows = [[f, round(mean, 6), round(std, 6)] for f, (mean, std) in found.recall.items()]
    return {"recall": rows, "scatter_ratio": _json(found.scatter_ratio)}


def _named(context: RunContext, items: IntArray, found: Look) -> list[list[Any]]:
    """Suspects as [position in the data set, suggested class]."""
    names = context.dataset.label_names
    return [[int(items[i]), str(names[label])] for i, label in found.suspects]


def _json(value: float) -> float | None:
    return round(value, 6) if np.isfinite(value) else None
