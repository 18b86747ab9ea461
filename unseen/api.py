"""The public functions, and the run that `fit` gives.

    run = unseen.fit("photos/", loss="proxy_anchor", epochs=10, out="runs/a")
    run = unseen.fit(my_dataset, network=my_module, loss=MyLoss(margin=0.1), miner=my_miner)
    run.scores["recall@1"], run.embed(pictures), run.report(), run.index("new/", out="my.index")

Whatever a config names may be given as an object, a class or a function instead. A run with objects
goes on after a stop when the same ones are given again.
"""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor

from unseen import config as configs
from unseen import find_data, outside
from unseen.cli.show_run import Shown
from unseen.contracts import Progress
from unseen.data.own.given import as_dataset
from unseen.experiment import diagnose as diagnosing
from unseen.experiment import run as runs
from unseen.experiment.run_context import Watch, reopen
from unseen.experiment.trained import Picture, Trained
from unseen.reports import page, tables
from unseen.reports.comparison import Pair, compare_runs
from unseen.search.index import Index
from unseen.search.ingest import build_index
from unseen.studies import plan as plans
from unseen.studies.engine import Study
from unseen.studies.results import Results
from unseen.training.result import Result, read_result
from unseen.training.run_folder import RunFolder

_PARTS = ("network", "loss", "miner", "sampler", "protocol")
_LISTS = ("regularizers", "metrics", "also")


@dataclass(frozen=True)
class Run:
    """A finished run: its folder, and the objects it was made with."""

    path: Path
    objects: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @cached_property
    def result(self) -> Result:
        """What stands in result.json: scores, data, split, selection."""
        return read_result(RunFolder(self.path))

    @property
    def scores(self) -> dict[str, float]:
        """The trained network on classes it never saw: metric -> value."""
        metrics = self.result.scores["trained"].metrics
        return {outside.short_name(name): score.value for name, score in metrics.items()}

    @cached_property
    def trained(self) -> Trained:
        """The kept network with the transform that feeds it."""
        with outside.holding(self.objects):
            return Trained.open(self.path)

    def embed(
        self, pictures: Picture | Sequence[Picture], progress: Progress | None = None
    ) -> Tensor:
        """Vectors [n, d] of pictures, or [d] of one: paths, files' bytes, PIL pictures, arrays."""
        return self.trained.embed(pictures, progress)

    def report(self) -> Path:
        """Writes the page of the run; returns its path."""
        with outside.holding(self.objects):
            context, _ = reopen(self.path, dataset=self._dataset)
            return page.write(self.path, context.dataset)

    def diagnose(self, also: Sequence[Any] = ()) -> dict[str, Any]:
        """What the embedding space looks like, in words and numbers; reads the test classes. also:
        further diagnostics, by name, as classes, objects or functions of embeddings and labels."""
        words, objects = named({"also": also})
        with outside.holding({**self.objects, **objects}):
            context, folder = reopen(self.path, dataset=self._dataset)
            return diagnosing.diagnose(context, folder, Watch(), also=words["also"])

    def index(self, pictures: str | Path, out: str | Path) -> Index:
        """An index of other pictures, embedded by this run."""
        return build_index(self.trained, [Path(pictures)], Path(out))

    @property
    def _dataset(self) -> Any:
        name = configs.load(RunFolder(self.path).checked("config.toml"))["data"]["name"]
        return self.objects.get(name)

    def __str__(self) -> str:
        head = filter(None, [str(self.path), tables.warning_line(self.result)])
        return "\n".join([*head, tables.markdown_table(self.result)])

    def _repr_html_(self) -> str:
        return tables.html_table(self.result)


def fit(
    data: Any = "glyphs",
    *,
    out: str | Path | None = None,
    progress: bool = True,
    accept_changes: bool = False,
    **settings: Any,
) -> Run:
    """Trains on some classes of `data`, selects on others, judges on classes never seen.

    `data`: what the command line takes (a folder, table, .npz or name), a list of these (domains
    of one model), {"name": ...} with further values, any data set of (picture, label), a list of
    (path, label), a datasets.Dataset, or (features, labels). `settings`: every key of a config
    (docs/training.md); a method with values is {"name": "samples_per_class", "per_class": 4};
    network, loss, miner, sampler, protocol, regularizers and metrics also take objects. `out`: the
    run's folder; the same call goes on where it was stopped.
    """
    values, objects = named(settings)
    if isinstance(data, str | Path):
        values["data"] = find_data.data_table(str(data))
    elif isinstance(data, Mapping):
        values["data"] = dict(data)
    elif isinstance(data, list) and data and all(isinstance(each, str | Path) for each in data):
        values["data"] = find_data.domains_table([str(each) for each in data])
    else:
        dataset = as_dataset(data)
        name = outside.object_name(data)
        values["data"], objects[name] = {"name": name}, dataset
    with outside.holding(objects):
        made = runs.fit(
            configs.make(values),
            Path(out) if out is not None else None,
            command="unseen.fit in Python",
            show=Shown() if progress else None,
            accept_changes=accept_changes,
        )
    return Run(made.path, objects)


def load(run: str | Path, *, network: Any = None, trust: bool = False) -> Trained:
    """A trained run, ready for use. network: the object it was trained with, if it was one. trust:
    parts it names may come from anywhere (they run their code)."""
    objects = {}
    if network is not None:
        name = configs.load(RunFolder(Path(run)).checked("config.toml"))["network"]
        objects[name] = network
    with outside.holding(objects), outside.trusted() if trust else nullcontext():
        return Trained.open(run)


def compare(first: str | Path | Run, second: str | Path | Run) -> Pair:
    """Two runs on the same queries, paired: `verdict` says in words which is better."""
    return compare_runs(_path(first), _path(second))


def diagnose(run: str | Path | Run, also: Sequence[Any] = ()) -> dict[str, Any]:
    """What a run's embedding space looks like, in words and numbers; reads the test classes. also:
    as in `Run.diagnose`."""
    return (run if isinstance(run, Run) else Run(Path(run))).diagnose(also)


def study(plan: str | Path | Mapping[str, Any], out: str | Path, **how: Any) -> Results:
    """Many runs under one protocol: a TOML file or its values; `how` as in `Study.run`. Finished
    runs are never repeated."""
    made = plans.make(dict(plan)) if isinstance(plan, Mapping) else plans.load(Path(plan))
    return Study(made).run(Path(out), **how)


def _path(run: str | Path | Run) -> Path:
    return run.path if isinstance(run, Run) else Path(run)


def named(settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Settings with the name of each object in its place, and the objects by their names."""
    objects: dict[str, Any] = {}

    def name(part: Any) -> Any:
        if part is None or isinstance(part, str | dict):
            return part
        word = outside.object_name(part)
        objects[word] = part
        return word

    values = dict(settings)
    for key in _PARTS:
        if key in values:
            values[key] = name(values[key])
    for key in _LISTS:
        if isinstance(values.get(key), list | tuple):
            values[key] = [_weighted(part, name) for part in values[key]]
    return values, objects


def _weighted(part: Any, name: Any) -> Any:
    """A regularizer may come with its weight: (0.1, my_regularizer)."""
    if isinstance(part, tuple):
        weight, inner = part
        return {"name": name(inner), "weight": float(weight)}
    return name(part)
