"""A run evaluated on data that are not its own: all their classes but those it was trained on."""

from pathlib import Path

import numpy as np

from unseen.config import find_data
from unseen.config.build_relevance import resolved_relevance
from unseen.config.schema import Config
from unseen.config.tables import Component, RelevanceSettings
from unseen.core.contracts import Dataset, FeatureDataset, IntArray, annotations_of
from unseen.models.backbone import FEATURES
from unseen.protocols.half_split import split_of
from unseen.runs.prepare import Callbacks, RunContext, require_run, stored_config
from unseen.runs.run_items import RunItems, items_of, read_items
from unseen.training.run_folder import RunFolder

NAMED = 3  # classes that are named one by one


def on_other_data(path: Path, data: str, callbacks: Callbacks) -> tuple[RunContext, RunFolder]:
    """The setting of a run with other data in place of its own, all of them to be tested. Classes
    whose name, or one of whose images, was trained or selected on are left out, and named."""
    folder = require_run(path)
    trained, config = read_items(folder), stored_config(folder)
    component = Component(**find_data.data_table(data))
    dataset = find_data.open_data(component, callbacks.of("reading the data"), config.data.strict)
    _refuse_other_kind(config, dataset, path)
    seen = _trained_on(trained, items_of(dataset, trained.split))
    left = np.setdiff1d(np.unique(dataset.labels), seen)
    if len(left) < 2:
        raise ValueError(f"{path} was trained on all but {len(left)} of the classes of {data}")
    if len(seen):
        names = ", ".join(str(dataset.label_names[c]) for c in seen[:NAMED])
        callbacks.warn(
            f"left out, because {path} was trained on them: {len(seen)} classes ({names}...)"
        )
    nothing = left[:0]
    split = split_of(dataset, nothing, nothing, left)
    known = set(annotations_of(dataset).labels)
    columns = [name for name in config.data.relevance.by if name in known]
    config = config.with_values({"relevance": RelevanceSettings(by=columns)})
    relating = resolved_relevance(config, dataset)
    config = config.with_values({"relevance": relating})
    return RunContext(config, dataset, split, []), folder


def _trained_on(trained: RunItems, other: RunItems) -> IntArray:
    """The classes of other data that were trained or selected on."""
    items = np.concatenate([trained.split.train, trained.split.validation])
    contents = {trained.digests[i] for i in items}
    names = {trained.label_names[trained.labels[i]] for i in items}
    by_name = [label for label, name in enumerate(other.label_names) if name in names]
    copied = [i for i, digest in enumerate(other.digests) if digest in contents]
    return np.union1d(np.array(by_name, dtype=np.int64), other.labels[copied])


def _refuse_other_kind(config: Config, dataset: Dataset, path: Path) -> None:
    size = dataset.features.shape[1] if isinstance(dataset, FeatureDataset) else None
    request = (
        config.model.backbone.removeprefix(FEATURES) if config.data.image_size is None else None
    )
    if str(size or "") != str(request or ""):
        content = f"{size} features" if size else "images"
        wants = f"{request} features" if request else "images"
        raise ValueError(f"{path} was trained on {wants}, and {dataset.name} holds {content}")
