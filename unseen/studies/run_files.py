"""The small files of a run in a study, by name: what a storage keeps, and results are read from.

In this order they are written: a run has ended when it has a state.
"""

from dataclasses import field
from typing import Any, Literal

from pydantic.dataclasses import dataclass

from unseen.evaluation.open_set import OpenSet
from unseen.runs import few_shots, open_set_of_run
from unseen.training import result, selected_weights
from unseen.training.json_files import CHECKED
from unseen.training.manifest import Manifest

Ended = Literal["done", "failed", "pruned"]

PLANNED, PER_CLASS, STATE = "planned.json", "per_class.json", "state.json"


@dataclass(frozen=True, config=CHECKED)
class StoredPlan:
    """Which run of the plan it is. parameters: those that were tuned."""

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
    at other layers that the plan names. others: the same of clusterings, whose items have values
    too."""

    metric: str
    classes: list[int]
    sums: list[float]
    counts: list[int]
    baselines: dict[str, list[float]]
    layers: dict[str, dict[str, list[float]]]
    others: list["PerClass"] = field(default_factory=list)


@dataclass(frozen=True, config=CHECKED)
class State:
    """How a run has ended."""

    state: Ended
    seconds: float
    error: str = ""


KINDS: dict[str, type[Any]] = {
    PLANNED: StoredPlan,
    "manifest.json": Manifest,
    selected_weights.FILE: selected_weights.Selection,
    result.FILE: result.Result,
    few_shots.FILE: few_shots.StoredShots,
    open_set_of_run.FILE: OpenSet,
    PER_CLASS: PerClass,
    STATE: State,
}
