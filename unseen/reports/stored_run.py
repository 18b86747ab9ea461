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

from unseen.evaluation.open_set import OpenSet
from unseen.experiment.few_shots import FewShots, read_few_shots
from unseen.experiment.open_set import read_open_set
from unseen.experiment.retention import Retention, read_retention
from unseen.names import near_path
from unseen.relevance import AnyLabels, GradedPairs, KnownPairs, LabelSets, Relevance
from unseen.training import journal
from unseen.training.checksums import checked, must_exist
from unseen.training.events import Epoch, Start, Step
from unseen.training.manifest import Manifest, parsed
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
        return relevance.divided(self.labels).of(torch.arange(len(self)))

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
class Beyond:
    """What a run was judged by beside its scores; None and nothing where it was not."""

    shots: Mapping[str, FewShots] = field(default_factory=dict)
    retention: Retention | None = None
    open_set: OpenSet | None = None


@dataclass(frozen=True)
class StoredRun:
    """What the files of `runs/<name>/` say. `steps` and `epochs` are the journal's events, in
    order; config and events are those of the kept rung where a ladder was climbed."""

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
    beyond: Beyond = Beyond()


def read(folder: Path) -> StoredRun:
    """Reads a run folder; a folder that is no run is an error."""
    if not folder.is_dir():
        raise FileNotFoundError(f"no run folder at {folder}{near_path(folder)}")
    if not any((folder / name).exists() for name in ("config.toml", "journal.jsonl")):
        raise FileNotFoundError(f"{folder} is no run: it has neither config.toml nor journal.jsonl")
    config_text = _text(folder, "config.toml")
    manifest = parsed(_text(folder, "manifest.json") or "{}", str(folder / "manifest.json"))
    _refuse_cut_journal(folder / "journal.jsonl", manifest)
    config, result = tomllib.loads(config_text), result_of(folder)
    rung = _kept_rung(config, result)
    trained = folder / "rungs" / str(rung["name"]) if rung else folder
    events = journal.read(trained / "journal.jsonl")
    return StoredRun(
        name=folder.resolve().name,
        config=config | rung,
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
        beyond=_beyond(RunFolder(folder)),
    )


def _beyond(folder: RunFolder) -> Beyond:
    return Beyond(read_few_shots(folder), read_retention(folder), read_open_set(folder))


def _kept_rung(config: Json, result: Result | None) -> Json:
    """What the kept rung of a ladder trained with; nothing where it is the first, the run's own."""
    ladder = result.selection.ladder if result and result.selection else None
    if ladder is None:
        return {}
    rungs: list[Json] = config.get("ladder", [])
    return next((dict(rung) for rung in rungs if rung["name"] == ladder.kept), {})


def _text(folder: Path, name: str) -> str:
    if not (folder / name).exists() and not (name in NEEDED and must_exist(folder, name)):
        return ""
    return checked(folder, name).read_text(encoding="utf-8")


def _refuse_cut_journal(path: Path, manifest: Manifest) -> None:
    """A last line that is cut off is a crash's, but not in a run that came to its end."""
    if path.exists() and path.stat().st_size < (manifest.journal_bytes or 0):
        raise ValueError(f"{path} is cut short: put a copy of it back, or delete it")


def _latest(by_place: dict[int, T]) -> list[T]:
    """In the order of their places; what a resumed run wrote again counts."""
    return [by_place[place] for place in sorted(by_place)]


def _embeddings(folder: Path, name: str) -> TestEmbeddings | None:
    if not (folder / name).exists():
        return None
    with np.load(checked(folder, name)) as arrays:
        known = [field.name for field in fields(TestEmbeddings)]
        return TestEmbeddings(**{name: arrays[name] for name in known if name in arrays})


def _layer_answers(folder: Path, name: str) -> LayerAnswers | None:
    if not (folder / name).exists():
        return None
    with np.load(checked(folder, name)) as arrays:
        names = [str(name) for name in arrays["names"]]
        return LayerAnswers(names, arrays["right"], arrays["nearest"], arrays["indices"])
