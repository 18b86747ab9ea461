"""The whole way of a run: training, or going on with it, then one reading of the test classes."""

from pathlib import Path
from typing import Any

from unseen.experiment.fit import Fit
from unseen.experiment.judge import judge
from unseen.experiment.refit import refit
from unseen.experiment.setting import Setting, Watch, computing, describe
from unseen.training.run_folder import RunFolder


def train_and_judge(
    setting: Setting, out: Path, command: str, watch: Watch | None = None
) -> dict[str, Any]:
    """Trains, or goes on training, then judges; returns what stands in result.json."""
    selection = train(setting, out, command, watch)
    folder = RunFolder(out, setting.processes)
    result = judge(setting, folder, selection, "final evaluation", watch or Watch())
    folder.note_end()
    return result


def train(setting: Setting, out: Path, command: str, watch: Watch | None = None) -> dict[str, Any]:
    """Trains, or goes on training; returns what was selected. The test classes are not read."""
    watch = watch or Watch()
    folder = RunFolder(out, setting.processes)
    with computing(setting):  # a value that a method refuses stops here, before anything is written
        fit = Fit(setting, folder, watch)
    if not folder.is_started:
        folder.start_manifest(command, describe(setting), setting.config.hash())
        folder.write_text("config.toml", setting.config.to_toml())
    with computing(setting):
        selection = fit.run()
        return refit(setting, folder, selection, watch) if setting.config.refit else selection
