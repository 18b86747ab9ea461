"""A run judged on data that are not its own: all their classes but those it was trained on."""

from pathlib import Path

import numpy as np

from unseen import find_data
from unseen.config import Config
from unseen.config_tables import Part, Relating
from unseen.contracts import Dataset, FeatureDataset, IntArray, annotations_of
from unseen.experiment.items import RunItems, items_of, read_items
from unseen.experiment.run_context import RunContext, Watch, reopen, stored_config
from unseen.networks.backbone import FEATURES
from unseen.protocols.half_split import split_of
from unseen.relating import settled_relevance
from unseen.training.run_folder import RunFolder

NAMED = 3  # classes that are named one by one


def on_other_data(path: Path, data: str, watch: Watch) -> tuple[RunContext, RunFolder]:
    """The setting of a run with other data in place of its own, all of them to be tested. Classes
    whose name, or one of whose pictures, was trained or selected on are left out, and named."""
    folder = RunFolder(path)
    kept = read_items(folder) if folder.is_started else None
    if kept is None:  # of version 0.1, or no run at all
        own, _ = reopen(path, watch)
        kept = items_of(own.dataset, own.split)
    config = stored_config(folder)
    part = Part(**find_data.data_table(data))
    dataset = find_data.open_data(part, watch.of("reading the data"), config.strict)
    _refuse_other_kind(config, dataset, path)
    seen = _trained_on(kept, items_of(dataset, kept.split))
    left = np.setdiff1d(np.unique(dataset.labels), seen)
    if len(left) < 2:
        raise ValueError(f"{path} was trained on all but {len(left)} of the classes of {data}")
    if len(seen):
        names = ", ".join(str(dataset.label_names[c]) for c in seen[:NAMED])
        watch.warn(
            f"left out, because {path} was trained on them: {len(seen)} classes ({names}...)"
        )
    nothing = left[:0]
    split = split_of(dataset, nothing, nothing, left)
    known = set(annotations_of(dataset).labels)
    columns = [name for name in config.relevance.by if name in known]
    config = config.model_copy(update={"relevance": Relating(by=columns)})
    relating = settled_relevance(config, dataset)
    config = config.model_copy(update={"relevance": relating})
    return RunContext(config, dataset, split, []), folder


def _trained_on(kept: RunItems, other: RunItems) -> IntArray:
    """The classes of other data that were trained or selected on."""
    items = np.concatenate([kept.split.train, kept.split.validation])
    contents = {kept.digests[i] for i in items}
    names = {kept.label_names[kept.labels[i]] for i in items}
    by_name = [label for label, name in enumerate(other.label_names) if name in names]
    copied = [i for i, digest in enumerate(other.digests) if digest in contents]
    return np.union1d(np.array(by_name, dtype=np.int64), other.labels[copied])


def _refuse_other_kind(config: Config, dataset: Dataset, path: Path) -> None:
    size = dataset.features.shape[1] if isinstance(dataset, FeatureDataset) else None
    asked = config.backbone.removeprefix(FEATURES) if config.picture_size is None else None
    if str(size or "") != str(asked or ""):
        held = f"{size} features" if size else "pictures"
        wants = f"{asked} features" if asked else "pictures"
        raise ValueError(f"{path} was trained on {wants}, and {dataset.name} holds {held}")
