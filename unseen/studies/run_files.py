"""The small files of a run in a study, by name: what a storage keeps, and results are read from.

In this order they are written: a run has ended when it has a state.
"""

import base64
from collections.abc import Mapping
from dataclasses import field
from typing import Any, Literal

import numpy as np
from pydantic.dataclasses import dataclass

from unseen.core.contracts import FloatArray, IntArray
from unseen.evaluation.open_set import OpenSet
from unseen.runs import few_shots, open_set_of_run
from unseen.training import result, selected_weights
from unseen.training.json_files import CHECKED
from unseen.training.manifest import Manifest

Ended = Literal["done", "failed", "pruned"]

PLANNED, PER_CLASS, STATE = "planned.json", "per_class.json", "state.json"
PER_QUERY = "per_query.json"


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
class PerQuery:
    """The class and the values of every test query in its order, so that conclusions can be
    computed anew, with other statistics too. In base64: `classes` as int32; `values`, under
    "ROW/METRIC", as bits where all are 0 or 1 (recall), else as float16.

    Example:
        results.runs[0].per_query.values_of("trained/recall@1")
    """

    queries: int
    classes: str
    values: dict[str, str]

    @classmethod
    def of(cls, labels: IntArray, values: Mapping[str, FloatArray]) -> "PerQuery":
        stored = {name: _base64(_small(each)) for name, each in values.items()}
        return cls(len(labels), _base64(labels.astype("<i4")), stored)

    def labels(self) -> IntArray:
        return np.frombuffer(base64.b64decode(self.classes), "<i4").astype(np.int64)

    def values_of(self, name: str) -> FloatArray:
        content = base64.b64decode(self.values[name])
        if len(content) == 2 * self.queries:
            return np.frombuffer(content, "<f2").astype(np.float64)
        bits = np.unpackbits(np.frombuffer(content, np.uint8), count=self.queries)
        return bits.astype(np.float64)


def _small(values: FloatArray) -> np.ndarray:
    is_binary = np.isin(values, (0, 1)).all()
    return np.packbits(values.astype(bool)) if is_binary else values.astype("<f2")


def _base64(values: np.ndarray) -> str:
    return base64.b64encode(values.tobytes()).decode()


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
    PER_QUERY: PerQuery,
    STATE: State,
}
