"""What a run's score does not say: few shots, the open set, other domains; read from run folders.

Of each method and step the mean over seeds, with its spread. Stored beside the study, so that the
page can be made again without the run folders.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from unseen.core.statistics import Spread, over_seeds
from unseen.evaluation.training_gain import FIRST
from unseen.runs.few_shot_layers import LAST
from unseen.runs.few_shots import read_few_shots
from unseen.runs.forgetting import forgetting, read_forgetting
from unseen.runs.open_set_of_run import BALANCED, read_open_set
from unseen.runs.prepare import Callbacks
from unseen.studies.generalization.plan_runs import METHOD, STEP
from unseen.studies.results import Results, Run
from unseen.training.run_folder import RunFolder

Values = dict[str, float]


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
    return [
        Row(*place, {key: over_seeds([values[key] for values in own]) for key in own[0]})
        for place, own in groups.items()
    ]


def _few_shots(folder: RunFolder) -> Values:
    result = [each for each in read_few_shots(folder).values() if each.adapt == LAST]
    if not result:
        return {}
    gain = result[-1].gain[FIRST]
    return {"before": gain.before, "after": gain.after, "gain": gain.after - gain.before}


def _open_set(folder: RunFolder) -> Values:
    result = read_open_set(folder)
    if result is None:
        return {}
    values = {name: score.value for name, score in result.scores.items()}
    at = result.at.get(BALANCED)
    return values | ({} if at is None else {"BAKS": at.baks, "BAUS": at.baus})


def _forgetting(folder: RunFolder) -> Values:
    result = read_forgetting(folder)
    if result is None:
        return {}
    elsewhere = {domain.data: domain.change for domain in result.elsewhere}
    return {"at home": result.home.change, **elsewhere}
