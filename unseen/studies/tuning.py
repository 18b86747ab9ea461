"""Tuning before comparing: which short runs there are, and what they chose.

Every run trains on one seed and is valued by its recall on the classes to select on (validation
classes, unless `select = "test"`); the test classes are not read.

coordinate   one parameter at a time, the others at their defaults; each keeps its best value (the
             way of Psomas' thesis), or the first that is within `tolerance` of it
tpe          `trials` runs of each configuration, proposed by Optuna's tree-structured Parzen
             estimator; hopeless ones are stopped early (median rule), unless `prune = false`
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from unseen.config import schema as configs
from unseen.studies.run_files import Ended
from unseen.studies.study_file import Configuration, Parameter, Plan, PlannedRun


@dataclass(frozen=True)
class Outcome:
    """How a run ended; `value` is what it was selected by."""

    state: Ended
    value: float = math.nan
    parameters: Mapping[str, Any] | None = None


def parameters_of(plan: Plan, configuration: Configuration) -> list[Parameter]:
    """What is tuned for a configuration."""
    tuned = plan.search.parameters if plan.search else []
    return [p for p in tuned if all(configuration.labels[f] == v for f, v in p.where.items())]


def tuning_runs(plan: Plan, configuration: Configuration) -> list[PlannedRun]:
    """The short runs of a configuration. Those of tpe get their parameters when they start."""
    search = plan.search
    if search is None:
        return []
    values = configs.put(configuration.values, "seed", search.seed)
    for key, value in search.config.items():
        values = configs.put(values, key, value)
    parameters = parameters_of(plan, configuration)
    if search.mode == "tpe":
        count = search.trials if parameters else 0
        return [
            PlannedRun("search", configuration.labels, values, {}, number)
            for number in range(count)
        ]
    return [
        PlannedRun(
            "search", configuration.labels, configs.put(values, p.key, value), {p.key: value}
        )
        for p in parameters
        for value in listed(p)
    ]


def chosen(
    plan: Plan, configuration: Configuration, outcomes: Mapping[str, Outcome]
) -> dict[str, Any] | None:
    """The best values, or None while runs are missing; without a search there are none to find."""
    planned_runs = tuning_runs(plan, configuration)
    if any(planned.key not in outcomes for planned in planned_runs):
        return None
    ended = [(planned, outcomes[planned.key]) for planned in planned_runs]
    done = [(c, o) for c, o in ended if o.state == "done" and not math.isnan(o.value)]
    if plan.search is not None and plan.search.mode == "tpe":
        best = max(done, key=lambda pair: pair[1].value, default=None)
        return _tuned(plan, configuration, best[1].parameters or {}) if best else {}
    tried: dict[str, list[tuple[float, Any]]] = {}
    for planned, outcome in done:
        ((key, value),) = planned.parameters.items()
        tried.setdefault(key, []).append((outcome.value, value))
    slack = plan.search.tolerance if plan.search else 0.0
    least = {key: max(score for score, _ in result) - slack for key, result in tried.items()}
    return {
        key: next(value for score, value in result if score >= least[key])
        for key, result in tried.items()
    }


def _tuned(plan: Plan, configuration: Configuration, result: Mapping[str, Any]) -> dict[str, Any]:
    """What a search proposed, as far as it can have: it was stored by who knows whom."""
    parameters = {parameter.key: parameter for parameter in parameters_of(plan, configuration)}
    for key, value in result.items():
        if key not in parameters or not parameters[key].allows(value):
            raise ValueError(f"the search of {plan.name} cannot have found {key} = {value!r}")
    return dict(result)


def all_tuned(plan: Plan, outcomes: Mapping[str, Outcome]) -> bool:
    """Whether the values of all configurations are known, and so all runs of the plan."""
    return all(
        chosen(plan, configuration, outcomes) is not None for configuration in plan.configurations()
    )


def known_runs(plan: Plan, outcomes: Mapping[str, Outcome]) -> list[PlannedRun]:
    """The runs that are known so far: all searches, and those of tuned configurations."""
    planned_runs = []
    for configuration in plan.configurations():
        planned_runs += tuning_runs(plan, configuration)
        tuned = chosen(plan, configuration, outcomes)
        if tuned is not None:
            planned_runs += list(configuration.planned_runs(plan, tuned))
    return list({planned.key: planned for planned in planned_runs}.values())


def total_runs(plan: Plan) -> int:
    """How many runs there will be."""
    return sum(
        len(tuning_runs(plan, configuration)) + len(list(configuration.planned_runs(plan, {})))
        for configuration in plan.configurations()
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
