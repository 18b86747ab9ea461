"""What a run's score does not say: few shots, the open set, other domains; read from run folders.

Of each method and step the mean over seeds, with its spread. Stored beside the study, so that the
page can be made again without the run folders.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from unseen.core.statistics import Spread
from unseen.evaluation.training_gain import FIRST
from unseen.runs.open_set_of_run import BALANCED
from unseen.runs.other_data import forgetting, read_forgetting
from unseen.runs.prepare import Callbacks
from unseen.studies.extra_results import Values, open_set_of, shots_of, spreads
from unseen.studies.generalization.plan_runs import METHOD, STEP
from unseen.studies.results import Results, Run
from unseen.training.run_folder import RunFolder


@dataclass(frozen=True)
class Row:
    """A method at a step, over seeds."""

    method: str
    step: int
    values: dict[str, Spread]


@dataclass(frozen=True)
class Measured:
    few_shots: list[Row] = field(default_factory=list)
    open_set: list[Row] = field(default_factory=list)
    forgetting: list[Row] = field(default_factory=list)


def measure(results: Results, also: Sequence[str], home: int, callbacks: Callbacks) -> Measured:
    """also: other data, on which the runs of step `home` are evaluated where they have not been."""
    done = [run for run in results.runs if run.state == "done"]
    at_home = [run for run in done if also and int(run.planned.labels[STEP]) == home]
    progress = callbacks.of("other domains")
    for number, run in enumerate(at_home, start=1):
        folder = RunFolder(run.folder)
        known = read_forgetting(folder)
        if known is None or len(known.elsewhere) < len(also):
            forgetting(run.folder, also, Callbacks())
        progress(number, len(at_home))
    return Measured(_rows(done, _few_shots), _rows(done, _open_set), _rows(at_home, _forgetting))


def _rows(runs: Sequence[Run], read: Callable[[RunFolder], Values]) -> list[Row]:
    groups: dict[tuple[str, int], list[Values]] = {}
    for run in runs:
        place = (run.planned.labels[METHOD], int(run.planned.labels[STEP]))
        if values := read(RunFolder(run.folder)):
            groups.setdefault(place, []).append(values)
    return [Row(*place, spreads(own)) for place, own in groups.items()]


def _few_shots(folder: RunFolder) -> Values:
    result = list(shots_of(folder, FIRST).values())
    return result[-1] if result else {}


def _open_set(folder: RunFolder) -> Values:
    return open_set_of(folder, BALANCED)


def _forgetting(folder: RunFolder) -> Values:
    result = read_forgetting(folder)
    if result is None:
        return {}
    elsewhere = {domain.data: domain.change for domain in result.elsewhere}
    return {"at home": result.home.change, **elsewhere}
