"""Few-shot and open-set evaluation after the final one, where the config asks for them."""

from dataclasses import replace

from unseen.runs.few_shots import few_shots
from unseen.runs.open_set_of_run import open_set_of
from unseen.runs.prepare import Callbacks, RunContext
from unseen.training.distributed import Processes
from unseen.training.run_folder import RunFolder


def evaluate_extra(context: RunContext, folder: RunFolder, callbacks: Callbacks) -> None:
    """Each is a file of the run's folder, and a reading in its manifest."""
    if folder.writes:
        alone, place = replace(context, processes=Processes()), RunFolder(folder.path)
        for shots in context.config.evaluation.shots:
            few_shots(alone, place, shots, callbacks)
        if context.config.evaluation.open_set:
            open_set_of(alone, place, callbacks)
    context.processes.wait()
