"""A run evaluated on data that are not its own: all their classes but those it was trained on; and
what its training changed there, in forgetting.json of its folder."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from unseen.config import find_data
from unseen.config.build_relevance import resolved_relevance
from unseen.config.schema import Config
from unseen.config.tables import Component, RelevanceSettings
from unseen.core.contracts import Dataset, FeatureDataset, IntArray, annotations_of
from unseen.evaluation.training_gain import FIRST, Gain
from unseen.models.backbone import FEATURES
from unseen.protocols.half_split import split_of
from unseen.runs.evaluate_run import evaluate_run
from unseen.runs.prepare import Callbacks, RunContext, reopen, require_run, stored_config
from unseen.runs.run_items import RunItems, items_of, read_items
from unseen.training.result import Result, result_of
from unseen.training.run_folder import RunFolder
from unseen.training.selected_weights import read_selection

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


FILE = "forgetting.json"


@dataclass(frozen=True)
class Domain:
    """Before and after, with the interval of the difference over classes."""

    data: str
    classes: int
    gain: dict[str, Gain]

    @property
    def change(self) -> float:
        """Of recall@1."""
        return self.gain[FIRST].after - self.gain[FIRST].before


@dataclass(frozen=True)
class Forgetting:
    """What training won at home and what it did elsewhere."""

    home: Domain
    elsewhere: list[Domain]

    @property
    def change_elsewhere(self) -> float:
        """Of recall@1, the mean over the other domains."""
        return sum(domain.change for domain in self.elsewhere) / len(self.elsewhere)

    @property
    def warning(self) -> str | None:
        """Where training lost more elsewhere than it won at home."""
        lost = -self.change_elsewhere
        if lost <= max(0.0, self.home.change):
            return None
        count = len(self.elsewhere)
        where = "the other domain" if count == 1 else f"{count} other domains, on average"
        return (
            f"Training lost more elsewhere than it won at home: {-100 * lost:+.1f} points of "
            f"recall@1 on {where}, {100 * self.home.change:+.1f} at home."
        )


def forgetting(path: Path, also: Sequence[str], callbacks: Callbacks) -> Forgetting:
    """Evaluates a run on other data, one after the other, and keeps the comparison.

    Each domain is evaluated before and after the training, on all its classes that the run was
    not trained on. Home is the test classes of the run itself.

    Example:
        forgetting(Path("runs/birds"), ["cars/", "groceries/"], callbacks).warning
    """
    folder = RunFolder(path)
    home = result_of(path) if folder.is_started else None
    if home is None or not home.gain:
        context, folder = reopen(path, callbacks)
        home = evaluate_run(context, folder, read_selection(folder), "unseen evaluate", callbacks)
    elsewhere = []
    for data in also:
        context, folder = on_other_data(path, data, callbacks)
        purpose = f"unseen evaluate run --on {shlex.quote(data)}"
        result = evaluate_run(context, folder, read_selection(folder), purpose, callbacks, data)
        elsewhere.append(_domain(result))
    matches = Forgetting(_domain(home), elsewhere)
    folder.write_json(FILE, matches)
    return matches


def read_forgetting(folder: RunFolder) -> Forgetting | None:
    """None before it was asked for."""
    return folder.read(FILE, Forgetting) if folder.has(FILE) else None


def _domain(result: Result) -> Domain:
    if not result.gain or FIRST not in result.gain:
        raise ValueError("forgetting compares recall@1: the run's metrics must have it")
    return Domain(result.data.name, result.split.test_classes or 0, result.gain)
