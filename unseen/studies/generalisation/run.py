"""A study of generalisation as one command.

    run(Asked("my_photos/", minutes=60), Path("studies/photos"))    # stop it, call it again

Files    out/features.npz               pictures through a frozen backbone, once; also-1.npz, ...
         out/ladder.csv                 or, where layers are trained on pictures, their ladder
         out/studies/generalisation/    the study
         out/generalisation/            generalisation.json, measured.json, index.html, findings.md
"""

import os
import shlex
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from unseen import config as configs
from unseen import find_data
from unseen.config import Config
from unseen.contracts import Dataset, FeatureDataset, Progress
from unseen.experiment.features import write_features
from unseen.experiment.run_context import Watch
from unseen.experiment.shift import make_ladder
from unseen.protocols.shift import Shift
from unseen.rungs import FIRST
from unseen.settle import settle
from unseen.studies import kept, report
from unseen.studies.engine import Study, StudyProgress
from unseen.studies.generalisation import page
from unseen.studies.generalisation.measure import Measured, measure
from unseen.studies.generalisation.plan import (
    NAME,
    STEP,
    Layers,
    Size,
    fitting,
    methods_of,
    plan_of,
    shots_for,
    sizes,
    usable_steps,
)
from unseen.studies.plan import Plan
from unseen.studies.results import read
from unseen.training.run_folder import RunFolder

FILE, MEASURED = f"{NAME}.json", "measured.json"
# Of `sizes`, where no minutes are named: 5 steps, 3 seeds, 3 trials; with layers 3 steps.
USUAL_SIZE, LAYERS_SIZE = 3, 4
SHARE = 0.8  # of the minutes that runs may take: the rest is for what comes after them


@dataclass(frozen=True)
class Asked:
    """data: what `unseen train` takes. methods: none for the usual ten. also: other data, on which
    runs are judged before and after. settings: key=value for every run. layers: of a network are
    trained, on pictures, instead of heads on frozen features."""

    data: str
    methods: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    minutes: int = 0
    settings: tuple[str, ...] = ()
    layers: bool = False

    @property
    def command(self) -> str:
        words = ["unseen", "study", "preset", NAME, "--data", self.data]
        words += ["--methods", ",".join(self.methods)] if self.methods else []
        words += [word for data in self.also for word in ("--also", data)]
        words += ["--minutes", str(self.minutes)] if self.minutes else []
        words += ["--layers"] if self.layers else []
        return shlex.join([*words, *self.settings])


@dataclass(frozen=True)
class Stored:
    """What was asked, and what became of it. features: what is trained on, with `layers` the
    pictures. home: the step of the data's own split."""

    asked: Asked
    features: str
    also: tuple[str, ...]
    size: Size
    home: int
    layers: Layers | None = None


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
    study = Study(_plan(known, asked.methods, known.size))
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
    return page.write(folder, known.asked.command, results, measured, known.size, known.layers)


def small_files_of(path: Path) -> dict[str, str]:
    """Name -> text of what is kept of it (`kept.py`)."""
    folder, place = RunFolder(path), path.parent / "studies" / NAME
    found = {f"studies/{NAME}/{name}": text for name, text in kept.small_files_of(place).items()}
    for name in (FILE, MEASURED):
        found[f"{NAME}/{name}"] = kept.spelled(kept.moved(folder.read_json(name)))
    return found


def _settled(asked: Asked, out: Path, jobs: int | None, watch: Watch) -> Stored:
    """What is trained on, its ladder, and a size that fits the minutes."""
    names = ["features.npz", *(f"also-{number}.npz" for number in range(1, len(asked.also) + 1))]
    given = (asked.data, *asked.also)
    if asked.layers:
        data, *also = (str(Path(d).resolve()) if Path(d).exists() else d for d in given)
    else:
        data, *also = (_features(d, out / n, watch) for d, n in zip(given, names, strict=True))
    config, dataset = _opened(data, asked.settings, watch)
    layers = _layers(asked, config, dataset, out / "ladder.csv", watch) if asked.layers else None
    ladder = Shift(table=layers.table if layers else None).ladder(dataset)
    steps = usable_steps(ladder)
    choice = sizes(steps, shots_for(dataset.labels))
    size = choice[LAYERS_SIZE if asked.layers else USUAL_SIZE]
    known = Stored(asked, data, tuple(also), size, _own(ladder.steps), layers)
    if asked.minutes:
        number = len(methods_of(asked.methods))
        minutes = SHARE * asked.minutes * (jobs or os.cpu_count() or 1)
        timed = _seconds(known, choice[-1], out, jobs, watch.of("timing the first runs"))
        size = fitting(choice, number, timed, minutes)
    home = min(size.steps, key=lambda step: abs(step - known.home))
    return replace(known, size=size, home=home)


def _opened(data: str, settings: Sequence[str], watch: Watch) -> tuple[Config, Dataset]:
    """What a run would be of, before there is a ladder."""
    values = configs.override({"data": find_data.data_table(data)}, list(settings))
    config = configs.make({key: value for key, value in values.items() if key != "shift"})
    return config, find_data.open_data(config.data, watch.of("reading the data"), config.strict)


def _layers(asked: Asked, config: Config, dataset: Dataset, out: Path, watch: Watch) -> Layers:
    """The ladder that the settings name, or one of what the network gives before training."""
    if isinstance(dataset, FeatureDataset):
        raise ValueError(f"{asked.data} holds features: --layers wants pictures to train on")
    settled, _ = settle(config, dataset)
    if settled.depth == FIRST and settled.adapter is None:
        raise ValueError(
            f"only a head on frozen {settled.backbone} would be trained: with --layers say which "
            "layers, depth=last, freeze_until=LAYER (`unseen layers` lists them) or adapter=lora"
        )
    table = configs.override({}, list(asked.settings)).get("shift", {}).get("table")
    if table is None:
        make_ladder(config, dataset, out, watch)
    table = str(Path(table or out).resolve())
    return Layers(table, Shift(table=table).ladder(dataset).of, settled.lr)


def _own(steps: Any) -> int:
    """The step that is the data's own split."""
    return next((each.step for each in steps if each.made_by == "as it is"), steps[0].step)


def _plan(known: Stored, methods: Sequence[str], size: Size) -> Plan:
    data = find_data.data_table(known.features)
    return plan_of(data, methods, size, known.asked.settings, known.layers)


def _seconds(
    known: Stored, size: Size, out: Path, jobs: int | None, progress: Progress
) -> tuple[float, float]:
    """Of one run: at the ends of the ladder, with all it is judged by, and between them."""
    study = Study(_plan(known, list(methods_of(known.asked.methods))[:2], size))
    results = study.run(
        out / "studies" / "probe", jobs=jobs, tell=lambda now: progress(now.ended, now.total)
    )
    done = [run for run in results.runs if run.state == "done"]
    if not done:
        told = next((run.error for run in results.runs), "no run")
        raise ValueError(f"a first run failed, so the study would: {told}")
    at_ends = [run.seconds for run in done if int(run.cell.labels[STEP]) in size.ends]
    other = [run.seconds for run in done if int(run.cell.labels[STEP]) not in size.ends]
    return float(np.mean(at_ends or other)), float(np.mean(other or at_ends))


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
