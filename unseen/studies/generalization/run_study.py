"""A study of generalisation as one command.

    run(Request("my_photos/", budget="quick"), Path("studies/photos"))    # stop it, call it again

Files    out/features.npz               images through a frozen backbone, once; also-1.npz, ...
         out/stages.csv                 or, where layers are trained on images, their stages
         out/studies/generalization/    the study
         out/generalization/            generalization.json, measured.json, index.html, findings.md
"""

import shlex
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import torch

from unseen.config import find_data
from unseen.config import schema as configs
from unseen.config.resolve import resolve
from unseen.config.schema import Config
from unseen.config.stages import FIRST
from unseen.core.contracts import Dataset, FeatureDataset
from unseen.core.names import by_front_end
from unseen.protocols.shift import Shift
from unseen.runs.extract_features import make_shift_splits, write_features
from unseen.runs.prepare import Callbacks
from unseen.studies import archive, study_report
from unseen.studies.engine import Study, StudyProgress
from unseen.studies.generalization import generalization_page
from unseen.studies.generalization.extra_measures import Measured, measure
from unseen.studies.generalization.plan_runs import (
    NAME,
    Budget,
    Layers,
    Size,
    methods_of,
    plan_of,
    shots_for,
    size_of,
    usable_steps,
)
from unseen.studies.results import read
from unseen.training.run_folder import RunFolder

FILE, MEASURED = f"{NAME}.json", "measured.json"


@dataclass(frozen=True)
class Request:
    """data: what `unseen train` takes. methods: none for the usual ten. also: other data, on which
    runs are evaluated before and after. settings: key=value for every run. layers: of a network are
    trained, on images, instead of heads on frozen features."""

    data: str
    methods: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    budget: Budget = "usual"
    settings: tuple[str, ...] = ()
    layers: bool = False

    @property
    def command(self) -> str:
        words = ["unseen", "study", "preset", NAME, "--data", self.data]
        words += ["--methods", ",".join(self.methods)] if self.methods else []
        words += [word for data in self.also for word in ("--also", data)]
        words += ["--budget", self.budget] if self.budget != "usual" else []
        words += ["--layers"] if self.layers else []
        return shlex.join([*words, *self.settings])


@dataclass(frozen=True)
class Stored:
    """What was asked, and what became of it. features: what is trained on, with `layers` the
    images. home: the step of the data's own split."""

    request: Request
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
    rest: Callable[[], AbstractContextManager[Callbacks]] = field(
        default=lambda: nullcontext(Callbacks())
    )


def run(request: Request, out: Path, jobs: int | None = None, shown: Shown | None = None) -> Path:
    """Runs what is missing and writes the page; returns where."""
    shown = shown or Shown()
    methods_of(request.methods)  # a wrong name stops here, before anything is computed
    folder = RunFolder(out / NAME)
    known = folder.read(FILE, Stored) if folder.has(FILE) else None
    if known is None or known.request != request:
        with shown.rest() as callbacks:
            known = _resolved(request, out, callbacks)
        folder.write_json(FILE, known)
    place = out / "studies" / NAME
    data = find_data.data_table(known.features)
    settings = request.settings
    study = Study(plan_of(data, request.methods, known.size, settings, known.layers))
    with shown.study(place) as progress:
        results = study.run(place, jobs=jobs, progress=progress)
    study_report.write(results)
    with shown.rest() as callbacks:
        folder.write_json(MEASURED, measure(results, known.also, known.home, callbacks))
    return remake(folder.path)


def is_generalization(path: Path) -> bool:
    return (path / FILE).exists()


def remake(path: Path) -> Path:
    """The page again, from what is stored."""
    folder = RunFolder(path)
    known = folder.read(FILE, Stored)
    results = read(path.parent / "studies" / NAME)
    measured = folder.read(MEASURED, Measured)
    return generalization_page.write(
        folder, known.request.command, results, measured, known.size, known.layers
    )


def small_files_of(path: Path) -> dict[str, str]:
    """Name -> text of what is kept of it (`kept.py`)."""
    folder, place = RunFolder(path), path.parent / "studies" / NAME
    result = {
        f"studies/{NAME}/{name}": text for name, text in archive.small_files_of(place).items()
    }
    for name in (FILE, MEASURED):
        result[f"{NAME}/{name}"] = archive.spelled(archive.moved(folder.read_json(name)))
    return result


def _resolved(request: Request, out: Path, callbacks: Callbacks) -> Stored:
    """What is trained on, its stages, and how much is run."""
    names = ["features.npz", *(f"also-{number}.npz" for number in range(1, len(request.also) + 1))]
    sources = (request.data, *request.also)
    if request.layers:
        data, *also = (str(Path(d).resolve()) if Path(d).exists() else d for d in sources)
    else:
        data, *also = (
            _features(d, out / n, callbacks) for d, n in zip(sources, names, strict=True)
        )
    config, dataset = _opened(data, request.settings, callbacks)
    layers = (
        _layers(request, config, dataset, out / "stages.csv", callbacks) if request.layers else None
    )
    stages = Shift(table=layers.table if layers else None).splits(dataset)
    size = size_of(request.budget, usable_steps(stages), shots_for(dataset.labels))
    own = next((s.step for s in stages.steps if s.made_by == "as it is"), stages.steps[0].step)
    home = min(size.steps, key=lambda step: abs(step - own))
    return Stored(request, data, tuple(also), size, home, layers)


def _opened(data: str, settings: Sequence[str], callbacks: Callbacks) -> tuple[Config, Dataset]:
    """What a run would be of, before there is stages."""
    values = configs.override({"data": find_data.data_table(data)}, list(settings))
    config = configs.make({key: value for key, value in values.items() if key != "shift"})
    return config, find_data.open_data(
        config.data, callbacks.of("reading the data"), config.data.strict
    )


def _layers(
    request: Request, config: Config, dataset: Dataset, out: Path, callbacks: Callbacks
) -> Layers:
    """The stages that the settings name, or one of what the network gives before training."""
    wanted = by_front_end("--layers", "layers=True")
    if isinstance(dataset, FeatureDataset):
        raise ValueError(f"{request.data} holds features: {wanted} wants images to train on")
    resolved, _ = resolve(config, dataset)
    if resolved.training.depth == FIRST and resolved.model.adapter is None:
        raise ValueError(
            f"only a head on frozen {resolved.model.backbone} would be trained: with {wanted} say "
            "which layers, depth=last_layers, freeze_until=LAYER (`unseen inspect layers` lists "
            "them) or adapter=lora"
        )
    table = configs.override({}, list(request.settings)).get("shift", {}).get("table")
    if table is None:
        make_shift_splits(config, dataset, out, callbacks)
    table = str(Path(table or out).resolve())
    return Layers(table, Shift(table=table).splits(dataset).of, resolved.optimizer.lr)


def _features(data: str, out: Path, callbacks: Callbacks) -> str:
    """A file of features: the data themselves, or what a backbone makes of their images."""
    table = find_data.data_table(data)
    if table["name"] == "arrays":
        return str(Path(table["root"]).resolve())
    if not out.exists():
        request = configs.make({"data": table})
        dataset = find_data.open_data(
            request.data, callbacks.of("reading the data"), request.data.strict
        )
        if isinstance(dataset, FeatureDataset):
            return data
        config, _ = resolve(request, dataset)
        torch.set_num_threads(config.training.machine.threads)
        write_features(config, dataset, out, callbacks.of("computing features"))
    return str(out.resolve())
