"""What a report needs of a run, read once from its folder (`training.run_folder`).

Every file may be missing: a run can be young or broken off.
"""

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from unseen.config.keys import short
from unseen.core import read_limits
from unseen.core.files import refuse_links
from unseen.core.names import near_path
from unseen.core.relevance import AnyLabels, GradedPairs, KnownPairs, LabelSets, Relevance
from unseen.evaluation.open_set import OpenSet
from unseen.runs.few_shots import FewShots, read_few_shots
from unseen.runs.open_set_of_run import read_open_set
from unseen.runs.other_data import Forgetting, read_forgetting
from unseen.training import event_log
from unseen.training.checksums import checked, must_exist
from unseen.training.events import Epoch, Start, Step
from unseen.training.manifest import VERSION, Manifest, parsed
from unseen.training.result import Result, result_of
from unseen.training.run_folder import RunFolder

Json = dict[str, Any]
T = TypeVar("T")
NEEDED = ("config.toml", "manifest.json")  # without them a report would tell of another run


@dataclass(frozen=True)
class TestEmbeddings:
    """The descriptors of the test items, with their labels and positions in the data set."""

    embeddings: NDArray[np.float32]  # [n, D]
    labels: NDArray[np.int64]  # [n]
    indices: NDArray[np.int64]  # [n]
    query: NDArray[np.int64] | None = None  # those that ask; None: all
    gallery: NDArray[np.int64] | None = None  # those that answer; None: all
    groups: NDArray[np.int64] | None = None  # [n] a group does not answer itself
    # who is the same as whom, where it is more than the label; positions are among the test items
    label_sets: NDArray[np.int64] | None = None  # [n, S]
    pairs: NDArray[np.float64] | None = None  # [P, 3]
    graded: NDArray[np.float64] | None = None  # [P, 3]
    least: NDArray[np.float64] | None = None  # the grade from which on two are the same

    @property
    def same(self) -> AnyLabels:  # [n]
        """What the items are compared by."""
        relevance: Relevance | None = None
        least = 1.0 if self.least is None else float(self.least)
        if self.label_sets is not None:
            relevance = LabelSets(self.label_sets, least)
        for listed in (self.pairs, self.graded):
            if listed is not None:
                known, grades = listed[:, :2].astype(np.int64), listed[:, 2]
                relevance = GradedPairs(known, grades, len(self), least)
                if listed is self.pairs:
                    relevance = KnownPairs(known, grades > 0, len(self))
        if relevance is None:
            return torch.from_numpy(self.labels)
        return relevance.sharded(self.labels).of(torch.arange(len(self)))

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def usable(self) -> bool:
        """There are neighbours to find: two items or more, all finite."""
        return len(self) > 1 and bool(np.isfinite(self.embeddings).all())


@dataclass(frozen=True)
class LayerAnswers:
    """What test items find first at each of L layers."""

    names: list[str]
    right: NDArray[np.float64]  # [L, n]; NaN for the only item of a class
    nearest: NDArray[np.int64]  # [L, n] positions among the test items
    indices: NDArray[np.int64]  # [n]


@dataclass(frozen=True)
class ExtraEvaluations:
    """What a run was evaluated by beside its scores; None and nothing where it was not."""

    shots: Mapping[str, FewShots] = field(default_factory=dict)
    forgetting: Forgetting | None = None
    open_set: OpenSet | None = None


@dataclass(frozen=True)
class StoredRun:
    """What the files of `runs/<name>/` say. `steps` and `epochs` are the event log's events, in
    order; config and events are those of the selected stage, where the run had stages."""

    name: str
    config: Json
    config_text: str
    manifest: Manifest
    steps: list[Step]
    epochs: list[Epoch]
    result: Result | None
    test: TestEmbeddings | None
    layers: Json | None = None  # recall by layer, if it was asked for
    layer_answers: LayerAnswers | None = None
    diagnosis: Json | None = None
    calibration: Json | None = None
    start: Start | None = None
    extra: ExtraEvaluations = ExtraEvaluations()


def read(folder: Path) -> StoredRun:
    """Reads a run folder; a folder that is no run is an error."""
    if not folder.is_dir():
        raise FileNotFoundError(f"no run folder at {folder}{near_path(folder)}")
    refuse_links(folder)
    if not any((folder / name).exists() for name in ("config.toml", "events.jsonl")):
        raise FileNotFoundError(f"{folder} is no run: it has neither config.toml nor events.jsonl")
    config_text = _text(folder, "config.toml")
    message = _text(folder, "manifest.json")
    manifest = (
        parsed(message, str(folder / "manifest.json")) if message else Manifest(version=VERSION)
    )
    config, result = short(tomllib.loads(config_text)), result_of(folder)
    stage = _selected_stage(config, result)
    events = event_log.read(folder / "events.jsonl", manifest.event_log_bytes)
    if stage:
        events = event_log.read(folder / "stages" / str(stage["name"]) / "events.jsonl")
    return StoredRun(
        name=folder.resolve().name,
        config=config | stage,
        config_text=config_text,
        manifest=manifest,
        steps=_latest({event.step: event for event in events if isinstance(event, Step)}),
        epochs=_latest({event.epoch: event for event in events if isinstance(event, Epoch)}),
        result=result,
        test=_embeddings(folder, "embeddings/test.npz"),
        layers=json.loads(_text(folder, "layers.json") or "null"),
        layer_answers=_layer_answers(folder, "embeddings/layers.npz"),
        diagnosis=json.loads(_text(folder, "diagnosis.json") or "null"),
        calibration=json.loads(_text(folder, "calibration.json") or "null"),
        start=next((event for event in events if isinstance(event, Start)), None),
        extra=_extra(RunFolder(folder)),
    )


def _extra(folder: RunFolder) -> ExtraEvaluations:
    return ExtraEvaluations(read_few_shots(folder), read_forgetting(folder), read_open_set(folder))


def _selected_stage(config: Json, result: Result | None) -> Json:
    """What the kept stage of stages trained with; nothing where it is the first, the run's own."""
    stages = result.selection.stages if result and result.selection else None
    if stages is None:
        return {}
    every: list[Json] = config.get("stages", [])
    return next((dict(stage) for stage in every if stage["name"] == stages.selected), {})


def _text(folder: Path, name: str) -> str:
    if not (folder / name).exists() and not (name in NEEDED and must_exist(folder, name)):
        return ""
    return checked(folder, name).read_text(encoding="utf-8")


def _latest(by_place: dict[int, T]) -> list[T]:
    """In the order of their places; what a resumed run wrote again counts."""
    return [by_place[place] for place in sorted(by_place)]


def _embeddings(folder: Path, name: str) -> TestEmbeddings | None:
    if not (folder / name).exists():
        return None
    with read_limits.load(checked(folder, name)) as arrays:
        known = [field.name for field in fields(TestEmbeddings)]
        return TestEmbeddings(**{name: arrays[name] for name in known if name in arrays})


def _layer_answers(folder: Path, name: str) -> LayerAnswers | None:
    if not (folder / name).exists():
        return None
    with read_limits.load(checked(folder, name)) as arrays:
        names = [str(name) for name in arrays["names"]]
        return LayerAnswers(names, arrays["right"], arrays["nearest"], arrays["indices"])
