"""The whole way of a run: training, or going on with it, then one reading of the test classes.

`fit` is the one door: the command line and `unseen.fit` go through it. One process at a time:
whoever comes to a folder that is being trained in is told by whom. A caller that has claimed the
folder before hands in its `lock`.
"""

from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from unseen.config import Config
from unseen.experiment.claim import claimed, is_done
from unseen.experiment.fit import Fit
from unseen.experiment.items import items_of, refuse_other_items
from unseen.experiment.judge import FINAL, judge
from unseen.experiment.refit import refit
from unseen.experiment.setting import Setting, Watch, as_stored, computing, describe, prepare
from unseen.experiment.sources import KEY, refuse_other_sources, sources_of
from unseen.training.processes import Processes, joined
from unseen.training.run_folder import RunFolder

Claim = AbstractContextManager[Any]  # of a run folder, see `RunFolder.lock`


class Show(Protocol):
    """Who watches a run."""

    def preparing(self, processes: Processes) -> AbstractContextManager[Watch]:
        """While the data are read and the config is settled."""
        ...

    def training(self, setting: Setting, out: Path) -> AbstractContextManager[Watch]:
        """While it trains and is judged; the setting says what and why."""
        ...


class Quiet:
    """Nobody watches."""

    def preparing(self, processes: Processes) -> AbstractContextManager[Watch]:
        return nullcontext(Watch())

    def training(self, setting: Setting, out: Path) -> AbstractContextManager[Watch]:
        return nullcontext(Watch())


@dataclass(frozen=True)
class Fitted:
    """A run at its end."""

    path: Path
    setting: Setting
    result: dict[str, Any]
    was_finished: bool  # before the call


def fit(
    config: Config,
    out: Path | None,
    command: str,
    show: Show | None = None,
    accept_changes: bool = False,
) -> Fitted:
    """Settles a config, claims a folder, trains or goes on, and judges; a finished run is read.
    `out` None: a name in runs/. Of several processes (torchrun) the first writes."""
    show = show or Quiet()
    with joined(config.device) as processes, ExitStack() as held:
        with show.preparing(processes) as watch:
            setting = prepare(config, watch, processes=processes)
        path = processes.agreed(lambda: claimed(setting, out, held, accept_changes))
        folder = RunFolder(path, processes)
        setting = as_stored(setting, folder)
        if is_done(folder):
            return Fitted(path, setting, folder.read_json("result.json"), was_finished=True)
        with show.training(setting, path) as watch:
            result = train_and_judge(setting, path, command, watch, lock=nullcontext())
    return Fitted(path, setting, result, was_finished=False)


def train_and_judge(
    setting: Setting,
    out: Path,
    command: str,
    watch: Watch | None = None,
    lock: Claim | None = None,
) -> dict[str, Any]:
    """Trains, or goes on training, then judges; returns what stands in result.json."""
    folder, watch = RunFolder(out, setting.processes), watch or Watch()
    setting = as_stored(setting, folder)
    with lock or folder.lock(setting.config.hash()):
        selection = _train(setting, folder, command, watch)
        result = judge(setting, folder, selection, FINAL, watch)
        folder.note_end()
    return result


def train(setting: Setting, out: Path, command: str, watch: Watch | None = None) -> dict[str, Any]:
    """Trains, or goes on training; returns what was selected. The test classes are not read."""
    folder = RunFolder(out, setting.processes)
    setting = as_stored(setting, folder)
    with folder.lock(setting.config.hash()):
        return _train(setting, folder, command, watch or Watch())


def _train(setting: Setting, folder: RunFolder, command: str, watch: Watch) -> dict[str, Any]:
    """A run that began with other items is not touched."""
    if folder.is_started:
        refuse_other_items(folder, setting.dataset, setting.split)
        refuse_other_sources(folder, setting.config)
    with computing(setting):  # a value that a method refuses stops here, before anything is written
        fit = Fit(setting, folder, watch)
    if not folder.is_started:
        begin(setting, folder, command)
    with computing(setting):
        selection = fit.run()
        return refit(setting, folder, selection, watch) if setting.config.refit else selection


def begin(setting: Setting, folder: RunFolder, command: str) -> None:
    """Writes down what the run is about; with its config a run has begun."""
    items = items_of(setting.dataset, setting.split).write(folder)
    folder.start_manifest(command, describe(setting) | {"items": items}, setting.config.hash())
    if parts := sources_of(setting.config):
        folder.note(KEY, parts)
    folder.write_text("config.toml", setting.config.to_toml())
