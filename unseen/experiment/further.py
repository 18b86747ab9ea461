"""What a run is judged by beside its scores, where its config asks for it: few shots, an open set.
One process does it; the others wait."""

from dataclasses import replace

from unseen.experiment.few_shots import few_shots
from unseen.experiment.open_set import open_set_of
from unseen.experiment.run_context import RunContext, Watch
from unseen.training.processes import Processes
from unseen.training.run_folder import RunFolder


def judge_further(context: RunContext, folder: RunFolder, watch: Watch) -> None:
    """Each is a file of the run's folder, and a reading in its manifest."""
    if folder.writes:
        alone, place = replace(context, processes=Processes()), RunFolder(folder.path)
        for shots in context.config.shots:
            few_shots(alone, place, shots, watch)
        if context.config.open_set:
            open_set_of(alone, place, watch)
    context.processes.wait()
