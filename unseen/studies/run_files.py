"""The small files of a run in a study, by name: what a storage keeps, and results are read from.

In this order they are written: a run has ended when it has a state.
"""

from dataclasses import field
from typing import Any, Literal

from pydantic.dataclasses import dataclass

from unseen.evaluation.open_set import OpenSet
from unseen.experiment import few_shots, open_set
from unseen.training import result, selection
from unseen.training.manifest import Manifest
from unseen.training.stored import CHECKED

Ended = Literal["done", "failed", "pruned"]

CELL, PER_CLASS, STATE = "cell.json", "per_class.json", "state.json"


@dataclass(frozen=True, config=CHECKED)
class StoredCell:
    """Which cell of the plan a run is. parameters: those that were tuned."""

    key: str
    stage: str
    labels: dict[str, str]
    parameters: dict[str, Any]
    seed: int
    fold: int | None


@dataclass(frozen=True, config=CHECKED)
class PerClass:
    """A metric's sum and number of queries for each test class, of the trained network and of what
    it must beat; no classes where a metric has no values per query. layers: the sums of all rows
    at other layers that the plan names."""

    metric: str
    classes: list[int]
    sums: list[float]
    counts: list[int]
    baselines: dict[str, list[float]] = field(default_factory=dict)  # version 0.1 had none
    layers: dict[str, dict[str, list[float]]] = field(default_factory=dict)


@dataclass(frozen=True, config=CHECKED)
class State:
    """How a run has ended."""

    state: Ended
    seconds: float
    error: str = ""


KINDS: dict[str, type[Any]] = {
    CELL: StoredCell,
    "manifest.json": Manifest,
    selection.FILE: selection.Selection,
    result.FILE: result.Result,
    few_shots.FILE: few_shots.StoredShots,
    open_set.FILE: OpenSet,
    PER_CLASS: PerClass,
    STATE: State,
}
