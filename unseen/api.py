"""The public functions, and the run that `fit` gives.

    run = unseen.fit("photos/", loss="proxy_anchor", epochs=10, out="runs/a")
    run = unseen.fit(my_dataset, network=my_module, loss=MyLoss(margin=0.1), miner=my_miner)
    run.scores["recall@1"], run.embed(images), run.report(), run.index("new/", out="my.index")

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

from unseen.cli.run_display import Shown
from unseen.config import find_data
from unseen.config import schema as configs
from unseen.config.resolve import NORMALISATION
from unseen.core import custom_components, uris
from unseen.core.contracts import Progress
from unseen.data.images.decode import is_image
from unseen.data.in_memory.user_data import as_dataset
from unseen.reports import run_page, score_tables
from unseen.reports.compare_runs import Pair, compare_runs
from unseen.runs import diagnose_run as diagnosing
from unseen.runs import run as runs
from unseen.runs.prepare import Callbacks, reopen
from unseen.runs.trained_run import ImageLike, Trained
from unseen.search.index import Index
from unseen.search.ingest import build_index
from unseen.studies import study_file as plans
from unseen.studies.engine import Study
from unseen.studies.results import Results
from unseen.training.result import Result, read_result
from unseen.training.run_folder import RunFolder

_PARTS = ("network", "loss", "miner", "sampler", "protocol")
_LISTS = ("regularizers", "metrics", "also")


@dataclass(frozen=True)
class Run:
    """A finished run: its folder, the objects it was made with, and whether its table may name
    files elsewhere."""

    path: Path
    objects: Mapping[str, Any] = field(default_factory=dict, repr=False)
    allow_remote: bool = False

    @cached_property
    def result(self) -> Result:
        """What stands in result.json: scores, data, split, selection."""
        return read_result(RunFolder(self.path))

    @property
    def scores(self) -> dict[str, float]:
        """The trained network on classes it never saw: metric -> value."""
        metrics = self.result.scores["trained"].metrics
        return {custom_components.short_name(name): score.value for name, score in metrics.items()}

    @cached_property
    def trained(self) -> Trained:
        """The kept network with the transform that feeds it."""
        with custom_components.known_objects(self.objects):
            return Trained.open(self.path)

    def embed(
        self, images: ImageLike | Sequence[ImageLike], progress: Progress | None = None
    ) -> Tensor:
        """Vectors [n, d] of images, or [d] of one: paths, files' bytes, PIL images, arrays;
        where the run was trained on features, of features [n, P] or [P]."""
        return self.trained.embed(images, progress)

    def report(self) -> Path:
        """Writes the page of the run; returns its path."""
        with custom_components.known_objects(self.objects), uris.remote_rows(self.allow_remote):
            context, _ = reopen(self.path, dataset=self._dataset)
            return run_page.write(self.path, context.dataset)

    def diagnose(self, also: Sequence[Any] = ()) -> dict[str, Any]:
        """What the embedding space looks like, in words and numbers; reads the test classes. also:
        further diagnostics, by name, as classes, objects or functions of embeddings and labels."""
        words, objects = named({"also": also})
        custom_components.trust(words)
        all_objects = custom_components.known_objects({**self.objects, **objects})
        with all_objects, uris.remote_rows(self.allow_remote):
            context, folder = reopen(self.path, dataset=self._dataset)
            return diagnosing.diagnose(context, folder, Callbacks(), also=words["also"])

    def index(self, images: str | Path, out: str | Path) -> Index:
        """An index of other images, embedded by this run."""
        with uris.remote_rows(self.allow_remote):
            return build_index(self.trained, [uris.as_place(images)], Path(out))

    @property
    def _dataset(self) -> Any:
        name = configs.load(RunFolder(self.path).checked("config.toml"))["data"]["name"]
        return self.objects.get(name)

    def __str__(self) -> str:
        message = self.result.data.normalisation
        head = [str(self.path), score_tables.warning_line(self.result)]
        head += [f"{NORMALISATION}: {message}" if message else ""]
        return "\n".join([*filter(None, head), score_tables.markdown_table(self.result)])

    def _repr_html_(self) -> str:
        return score_tables.html_table(self.result)


def fit(
    data: Any = "glyphs",
    *,
    out: str | Path | None = None,
    progress: bool = True,
    accept_changes: bool = False,
    allow_remote: bool = False,
    **settings: Any,
) -> Run:
    """Trains on some classes of `data`, selects on others, evaluates on classes never seen.

    `data`: what the command line takes (a folder, table, .npz or name), a list of these (domains
    of one model), {"name": ...} with further values, any data set of (image, label), a list of
    (path, label), a datasets.Dataset, or (features, labels). `settings`: every key of a config
    (docs/training.md); a method with values is {"name": "m_per_class", "per_class": 4};
    network, loss, miner, sampler, protocol, regularizers and metrics also take objects. `out`: the
    run's folder; the same call goes on where it was stopped. `allow_remote`: a table on this disk
    may name files elsewhere.
    """
    values, objects = named(settings)
    if isinstance(data, str | Path):
        values["data"] = find_data.data_table(str(data))
    elif isinstance(data, Mapping):
        values["data"] = dict(data)
    elif _are_domains(data):
        values["data"] = find_data.domains_table([str(each) for each in data])
    else:
        dataset = as_dataset(data)
        name = custom_components.object_name(data)
        values["data"], objects[name] = {"name": name}, dataset
    custom_components.trust(values)
    with custom_components.known_objects(objects), uris.remote_rows(allow_remote):
        finished = runs.run_config(
            configs.make(values),
            Path(out) if out is not None else None,
            command="unseen.fit in Python",
            show=Shown() if progress else None,
            accept_changes=accept_changes,
        )
    return Run(finished.path, objects, allow_remote)


def load(run: str | Path, *, network: Any = None, trust: bool = False) -> Trained:
    """A trained run, ready for use. network: the object it was trained with, if it was one. trust:
    the code that the run names may run, whoever wrote it."""
    objects = {}
    if network is not None:
        name = configs.load(RunFolder(Path(run)).checked("config.toml"))["model"]["network"]
        objects[name] = network
    with (
        custom_components.known_objects(objects),
        custom_components.trusted() if trust else nullcontext(),
    ):
        return Trained.open(run)


def compare(first: str | Path | Run, second: str | Path | Run) -> Pair:
    """Two runs on the same queries, paired: `conclusion` says in words which is better."""
    return compare_runs(_path(first), _path(second))


def diagnose(run: str | Path | Run, also: Sequence[Any] = ()) -> dict[str, Any]:
    """What a run's embedding space looks like, in words and numbers; reads the test classes. also:
    as in `Run.diagnose`."""
    return (run if isinstance(run, Run) else Run(Path(run))).diagnose(also)


def study(plan: str | Path | Mapping[str, Any], out: str | Path, **how: Any) -> Results:
    """Many runs under one protocol: a TOML file or its values; `how` as in `Study.run`. Finished
    runs are never repeated."""
    if isinstance(plan, Mapping):
        custom_components.trust(dict(plan))
        return Study(plans.make(dict(plan))).run(Path(out), **how)
    return Study(plans.load(Path(plan))).run(Path(out), **how)


def _are_domains(data: Any) -> bool:
    """Whether data is a list of folders, tables or names, not of single images."""
    are_words = isinstance(data, list) and all(isinstance(each, str | Path) for each in data)
    return are_words and bool(data) and not all(is_image(Path(each).name) for each in data)


def _path(run: str | Path | Run) -> Path:
    return run.path if isinstance(run, Run) else Path(run)


def named(settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Settings with the name of each object in its place, and the objects by their names."""
    objects: dict[str, Any] = {}

    def name(component: Any) -> Any:
        if component is None or isinstance(component, str | dict):
            return component
        word = custom_components.object_name(component)
        objects[word] = component
        return word

    values = dict(settings)
    for key in _PARTS:
        if key == "loss" and isinstance(values.get(key), list):
            pairs = [_weighted(component) for component in values[key]]
            values[key] = {"name": [name(component) for _, component in pairs]}
            values[key] |= {"weights": [1.0 if weight is None else weight for weight, _ in pairs]}
        elif key in values:
            values[key] = name(values[key])
    for key in _LISTS:
        if isinstance(values.get(key), list | tuple):
            pairs = [_weighted(component) for component in values[key]]
            values[key] = [
                name(component) if weight is None else {"name": name(component), "weight": weight}
                for weight, component in pairs
            ]
    return values, objects


def _weighted(component: Any) -> tuple[float | None, Any]:
    """A loss or a regularizer may come with its weight: (0.1, my_loss) or (my_loss, 0.1)."""
    if not isinstance(component, tuple):
        return None, component
    weights = [each for each in component if isinstance(each, int | float)]
    if len(component) != 2 or len(weights) != 1:
        raise ValueError(f"a part with its weight is (0.1, part), got {component!r}")
    return float(weights[0]), component[component[0] is weights[0]]
