"""A study of generalisation as one command.

    run(Asked("my_photos/", minutes=60), Path("studies/photos"))    # stop it, call it again

Files    out/features.npz               pictures through a frozen backbone, once; also-1.npz, ...
         out/studies/generalisation/    the study
         out/generalisation/            generalisation.json, measured.json, index.html, findings.md
"""

import os
import shlex
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from unseen import config as configs
from unseen import find_data
from unseen.config_tables import Part
from unseen.contracts import FeatureDataset
from unseen.experiment.features import write_features
from unseen.experiment.run_context import Watch
from unseen.protocols.shift import Shift
from unseen.settle import settle
from unseen.studies import kept, report
from unseen.studies.engine import Study, StudyProgress
from unseen.studies.generalisation import page
from unseen.studies.generalisation.measure import Measured, measure
from unseen.studies.generalisation.plan import (
    NAME,
    Size,
    fitting,
    methods_of,
    plan_of,
    shots_for,
    sizes,
    usable_steps,
)
from unseen.studies.plan import Values
from unseen.studies.results import read
from unseen.training.run_folder import RunFolder

FILE, MEASURED = f"{NAME}.json", "measured.json"
USUAL_SIZE = 3  # of `sizes`, where no minutes are named: 5 steps, 3 seeds, 3 trials
SHARE = 0.8  # of the minutes that runs may take: the rest is for what comes after them


@dataclass(frozen=True)
class Asked:
    """data: what `unseen train` takes. methods: none for the usual ten. also: other data, on which
    runs are judged before and after. settings: key=value for every run."""

    data: str
    methods: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    minutes: int = 0
    settings: tuple[str, ...] = ()

    @property
    def command(self) -> str:
        words = ["unseen", "study", "preset", NAME, "--data", self.data]
        words += ["--methods", ",".join(self.methods)] if self.methods else []
        words += [word for data in self.also for word in ("--also", data)]
        words += ["--minutes", str(self.minutes)] if self.minutes else []
        return shlex.join([*words, *self.settings])


@dataclass(frozen=True)
class Stored:
    """What was asked, and what became of it. home: the step of the data's own split."""

    asked: Asked
    features: str
    also: tuple[str, ...]
    size: Size
    home: int


@dataclass(frozen=True)
class Shown:
    """Who hears how it goes: of the study, by its folder, and of what comes before and after."""

    study: Callable[[Path], AbstractContextManager[Callable[[StudyProgress], None]]] = field(
        default=lambda folder: nullcontext(lambda progress: None)
    )
    rest: Callable[[], AbstractContextManager[Watch]] = field(default=lambda: nullcontext(Watch()))


def run(asked: Asked, out: Path, jobs: int | None = None, shown: Shown | None = None) -> Path:
    """Runs what is missing and writes the page; returns where."""
    shown = shown or Shown()
    methods_of(asked.methods)  # a wrong name stops here, before anything is computed
    folder = RunFolder(out / NAME)
    known = folder.read(FILE, Stored) if folder.has(FILE) else None
    if known is None or known.asked != asked:
        with shown.rest() as watch:
            known = _settled(asked, out, jobs, watch)
        folder.write_json(FILE, known)
    place = out / "studies" / NAME
    study = Study(plan_of(_table(known.features), asked.methods, known.size, asked.settings))
    with shown.study(place) as tell:
        results = study.run(place, jobs=jobs, tell=tell)
    report.write(results)
    with shown.rest() as watch:
        folder.write_json(MEASURED, measure(results, known.also, known.home, watch))
    return remake(folder.path)


def is_generalisation(path: Path) -> bool:
    return (path / FILE).exists()


def remake(path: Path) -> Path:
    """The page again, from what is stored."""
    folder = RunFolder(path)
    known = folder.read(FILE, Stored)
    results = read(path.parent / "studies" / NAME)
    measured = folder.read(MEASURED, Measured)
    return page.write(folder, known.asked.command, results, measured, known.size)


def small_files_of(path: Path) -> dict[str, str]:
    """Name -> text of what is kept of it (`kept.py`)."""
    folder, place = RunFolder(path), path.parent / "studies" / NAME
    found = {f"studies/{NAME}/{name}": text for name, text in kept.small_files_of(place).items()}
    for name in (FILE, MEASURED):
        found[f"{NAME}/{name}"] = kept.spelled(kept.moved(folder.read_json(name)))
    return found


def _settled(asked: Asked, out: Path, jobs: int | None, watch: Watch) -> Stored:
    """Features of all data, and a size that fits the minutes."""
    features = _features(asked.data, out / "features.npz", watch)
    also = [_features(d, out / f"also-{i}.npz", watch) for i, d in enumerate(asked.also, start=1)]
    dataset = find_data.open_data(Part(**_table(features)), watch.of("reading the data"))
    ladder = Shift().ladder(dataset)
    steps = usable_steps(ladder)
    given = sizes(steps, shots_for(dataset.labels))
    size = given[USUAL_SIZE]
    if asked.minutes:
        number = len(methods_of(asked.methods))
        minutes = SHARE * asked.minutes * (jobs or os.cpu_count() or 1)
        size = fitting(given, number, _seconds(asked, features, given[-1], out), minutes)
    home = min(size.steps, key=lambda step: abs(step - _own(ladder.steps)))
    return Stored(asked, features, tuple(also), size, home)


def _own(steps: Any) -> int:
    """The step that is the data's own split."""
    return next((each.step for each in steps if each.made_by == "as it is"), steps[0].step)


def _seconds(asked: Asked, features: str, size: Size, out: Path) -> float:
    """Of one run, with all it is judged by."""
    first = list(methods_of(asked.methods))[:2]
    one = replace(size, steps=size.steps[:1], seeds=1, trials=0)
    probe = plan_of(_table(features), first, one, asked.settings)
    results = Study(probe).run(out / "studies" / "probe", jobs=1)
    known = [run.seconds for run in results.runs if run.state == "done"]
    if not known:
        told = next((run.error for run in results.runs), "no run")
        raise ValueError(f"a first run failed, so the study would: {told}")
    return float(np.mean(known))


def _features(data: str, out: Path, watch: Watch) -> str:
    """A file of features: the data themselves, or what a backbone makes of their pictures."""
    table = find_data.data_table(data)
    if table["name"] == "arrays":
        return str(Path(table["root"]).resolve())
    if not out.exists():
        asked = configs.make({"data": table})
        dataset = find_data.open_data(asked.data, watch.of("reading the data"), asked.strict)
        if isinstance(dataset, FeatureDataset):
            return data
        config, _ = settle(asked, dataset)
        torch.set_num_threads(config.threads)
        write_features(config, dataset, out, watch.of("computing features"))
    return str(out.resolve())


def _table(features: str) -> Values:
    return find_data.data_table(features) if Path(features).exists() else {"name": "arrays"}
