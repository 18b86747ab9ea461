"""Tuning before comparing: which short runs there are, and what they chose.

Every run trains on one seed and is valued by its recall on the classes to select on (validation
classes, unless `select = "test"`); the test classes are not read.

coordinate   one parameter at a time, the others at their defaults; each keeps its best value (the
             way of Psomas' thesis), or the first that is within `tolerance` of it
tpe          `trials` runs of each variant, proposed by Optuna's tree-structured Parzen estimator;
             hopeless ones are stopped early (median rule), unless `prune = false`
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from unseen import config as configs
from unseen.studies.plan import Cell, Parameter, Plan, Variant
from unseen.studies.run_files import Ended


@dataclass(frozen=True)
class Outcome:
    """How a cell ended; `value` is what it was selected by."""

    state: Ended
    value: float = math.nan
    parameters: Mapping[str, Any] | None = None


def parameters_of(plan: Plan, variant: Variant) -> list[Parameter]:
    """What is tuned for a variant."""
    tuned = plan.search.parameters if plan.search else []
    return [p for p in tuned if all(variant.labels[f] == v for f, v in p.where.items())]


def search_cells(plan: Plan, variant: Variant) -> list[Cell]:
    """The short runs of a variant. Those of tpe get their parameters when they start."""
    search = plan.search
    if search is None:
        return []
    values = configs.put(variant.values, "seed", search.seed)
    for key, value in search.config.items():
        values = configs.put(values, key, value)
    parameters = parameters_of(plan, variant)
    if search.mode == "tpe":
        count = search.trials if parameters else 0
        return [Cell("search", variant.labels, values, {}, number) for number in range(count)]
    return [
        Cell("search", variant.labels, configs.put(values, p.key, value), {p.key: value})
        for p in parameters
        for value in listed(p)
    ]


def chosen(plan: Plan, variant: Variant, outcomes: Mapping[str, Outcome]) -> dict[str, Any] | None:
    """The best values, or None while runs are missing; without a search there are none to find."""
    cells = search_cells(plan, variant)
    if any(cell.key not in outcomes for cell in cells):
        return None
    ended = [(cell, outcomes[cell.key]) for cell in cells]
    done = [(c, o) for c, o in ended if o.state == "done" and not math.isnan(o.value)]
    if plan.search is not None and plan.search.mode == "tpe":
        best = max(done, key=lambda pair: pair[1].value, default=None)
        return _tuned(plan, variant, best[1].parameters or {}) if best else {}
    tried: dict[str, list[tuple[float, Any]]] = {}
    for cell, outcome in done:
        ((key, value),) = cell.parameters.items()
        tried.setdefault(key, []).append((outcome.value, value))
    slack = plan.search.tolerance if plan.search else 0.0
    least = {key: max(score for score, _ in found) - slack for key, found in tried.items()}
    return {
        key: next(value for score, value in found if score >= least[key])
        for key, found in tried.items()
    }


def _tuned(plan: Plan, variant: Variant, found: Mapping[str, Any]) -> dict[str, Any]:
    """What a search proposed, as far as it can have: it was stored by who knows whom."""
    parameters = {parameter.key: parameter for parameter in parameters_of(plan, variant)}
    for key, value in found.items():
        if key not in parameters or not parameters[key].allows(value):
            raise ValueError(f"the search of {plan.name} cannot have found {key} = {value!r}")
    return dict(found)


def all_tuned(plan: Plan, outcomes: Mapping[str, Outcome]) -> bool:
    """Whether every variant's values are known, so that `known_cells` are all there will be."""
    return all(chosen(plan, variant, outcomes) is not None for variant in plan.variants())


def known_cells(plan: Plan, outcomes: Mapping[str, Outcome]) -> list[Cell]:
    """Every cell that is settled so far: all searches, and the runs of variants that are tuned."""
    cells = []
    for variant in plan.variants():
        cells += search_cells(plan, variant)
        tuned = chosen(plan, variant, outcomes)
        if tuned is not None:
            cells += list(variant.cells(plan, tuned))
    return list({cell.key: cell for cell in cells}.values())


def total_cells(plan: Plan) -> int:
    """How many cells there will be."""
    return sum(
        len(search_cells(plan, variant)) + len(list(variant.cells(plan, {})))
        for variant in plan.variants()
    )


def listed(parameter: Parameter) -> list[Any]:
    """The values of a coordinate: as given, or from low to high in steps, both included."""
    if parameter.values:
        return list(parameter.values)
    low, high, step = parameter.low, parameter.high, parameter.step
    assert low is not None
    assert high is not None
    assert step is not None
    steps = np.arange(math.floor((high - low) / step + 1e-9) + 1)
    if all(isinstance(end, int) for end in (low, high, step)):
        return [int(low + step * i) for i in steps]
    return [float(f"{low + step * i:.10g}") for i in steps]
