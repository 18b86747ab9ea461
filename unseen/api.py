"""The public functions, and the run that `fit` gives.

    run = unseen.fit("photos/", loss="proxy_anchor", epochs=10, out="runs/a")
    run = unseen.fit(my_dataset, network=my_module, loss=MyLoss(margin=0.1), miner=my_miner)
    run.scores.loc["trained", "recall@1"], run.history.plot()
    run.embed(images), run.report(), run.index("new/", out="my.index")

Whatever a config names may be given as an object, a class or a function instead. A run with objects
goes on after a stop when the same ones are given again.
"""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from torch import Tensor

from unseen.cli.run_display import Shown
from unseen.config import schema as configs
from unseen.config.resolve import NORMALISATION
from unseen.config.settings import Settings
from unseen.config.user_values import named, values_of
from unseen.core import custom_components, uris
from unseen.core.contracts import Progress
from unseen.models.candidates import Candidate
from unseen.reports import frames, run_page, score_tables, stored_run
from unseen.reports.compare_runs import Pair, compare_runs
from unseen.runs import diagnose_run as diagnosing
from unseen.runs import run as runs
from unseen.runs.backbone_race import MOST, Race, race
from unseen.runs.prepare import Callbacks, reopen
from unseen.runs.trained_run import ImageLike, Trained
from unseen.search.index import Index
from unseen.search.ingest import build_index
from unseen.studies import study_file as plans
from unseen.studies.engine import Study
from unseen.studies.results import Results
from unseen.training.result import Result, read_result
from unseen.training.run_folder import RunFolder

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class Run:
    """A finished run, as `fit` returns it: its scores, its curves, its network.

    Args:
        path: The run's folder.
        objects: What the run was made with and a config only names.
        allow_remote: A table on this disk may name files elsewhere.

    Example:
        >>> import unseen
        >>> run = unseen.Run(Path("runs/a"))
        >>> run.scores.loc["trained"].name, len(run.history)
        ('trained', 1)
    """

    path: Path
    objects: Mapping[str, Any] = field(default_factory=dict, repr=False)
    allow_remote: bool = False

    @cached_property
    def result(self) -> Result:
        """What stands in result.json: scores, data, split, selection."""
        return read_result(RunFolder(self.path))

    @cached_property
    def scores(self) -> "pandas.DataFrame":
        """On classes never seen: a row for each descriptor (`trained`, `untrained`, ...), a column
        for each metric."""
        return frames.scores(self.result)

    @cached_property
    def history(self) -> "pandas.DataFrame":
        """A row for each epoch: loss, learning rate, and the scores of validated epochs."""
        return frames.history(stored_run.read(self.path))

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
    **settings: Unpack[Settings],
) -> Run:
    """Trains on some classes of `data`, selects on others, evaluates on classes never seen.

    Args:
        data: What the command line takes (a folder, table, .npz or name), a list of these (domains
            of one model), {"name": ...} with further values, any data set of (image, label), a list
            of (path, label), a datasets.Dataset, or (features, labels).
        out: The run's folder; the same call goes on where it was stopped.
        progress: Print what happens.
        accept_changes: Train a new run if the data of the last one have changed.
        allow_remote: A table on this disk may name files elsewhere.
        settings: The keys of a config, of which each has a default. A method with values is
            {"name": "m_per_class", "per_class": 4}; network, loss, miner, sampler, protocol,
            regularizers and metrics also take objects. `auto` is resolved by the data and the
            machine, and the run says why.

    Settings:
        loss (multi_similarity): what training lowers; several are a sum, `loss=[a, b]`.
        miner (auto): which pairs or triplets of a batch the loss sees; none: all.
        sampler (m_per_class): how batches are drawn.
        regularizers ([]): what else is lowered, each with its weight.
        optimizer (adamw): how a gradient moves the weights; `adamw`, `adam` or `sgd`.
        image_size (auto): the side of the images that are evaluated; none: there are no images.
        transform (auto): what images go through.
        label_noise (none): the share of training labels that are wrong on purpose.
        relevance ({}): who is the same as whom, and what else to evaluate by.
        strict (false): stop at an image that cannot be read, instead of going on without it.
        smallest_crop (none): the least share of an image that a crop shows in training; none:
            0.08 with `base`, as its source has it.
        training_sizes ([]): sizes of the images in training, small first, each in as many
            epochs; none: `image_size`.
        network (plain): `plain`, one that was published as a whole (`net_a` to `net_f`), or
            your own.
        backbone (auto): `small_conv`, a network of torchvision or timm; of features
            `features:512`.
        weights (auto): none: random; `imagenet`; or a file.
        pooling (auto): `own` (as published), `avg`, `max`, `avg+max`, `gem`; of transformers also
            `cls`, `cls+avg`, `attention`.
        mirror (false): the descriptor is the mean of an image's and its mirror image's;
            `evaluation`: not in training.
        adapter (none): `lora`: the layers stay, a small matrix beside each is trained.
        embedding_size (auto): how many numbers an embedding has.
        nested (none): prefixes of the embedding that are trained with it, the whole one last.
        head ({}): the layers from the pooled descriptor to the embedding.
        ensemble (none): learners that look at one map through masks.
        freeze_until (auto): a layer, or `pooled`: what comes before it does not change and runs
            only once.
        frozen_bn (off): what stays of batch norm: `off` nothing, `stats` its means and
            variances, `full` its weights too.
        cached_augmentations (auto): of each image, so many are kept as the frozen layers give
            them; 0: each as it is evaluated.
        lr (auto): the learning rate. Parameters of a loss have one of their own, `loss.lr`.
        weight_decay (0.0001): of the network's weights and the loss's parameters.
        schedule (cosine): how the learning rate goes: `cosine`, `constant` or `step`.
        seed (0): of the split, of every starting value and of the order of the batches.
        epochs (auto): how often the sampler's batches are gone through.
        batch_size (auto): images of a batch.
        precision (float32): of the network's layers in training: `float32`, `bf16` or `fp16`.
        ema (none): decay of the running average of the weights, which is evaluated and kept,
            e.g. 0.999.
        depth (auto): how far training goes down from the head, in stages: `head`,
            `last_layers` or `full`.
        stages ([]): further trainings, each from the best weights so far.
        time_budget (none): minutes; the run ends within them.
        memory (none): embeddings of earlier batches as references of pair losses.
        label_filter (none): `prism`: items whose label looks wrong are left out of a batch.
        manifold_mixup (false): `true`: images are mixed inside the network.
        loggers ([]): `tensorboard`, `wandb`, `mlflow`: the event log's numbers there as well.
        validate_every (1): epochs; the last one is always validated.
        validation_images (none): at most so many of each subset, in whole classes.
        select (validation): `validation` classes choose the epoch, or `test` classes, as in
            some papers.
        select_by (recall@1): `recall@1` or `map_at_r` chooses it; `last`: none does.
        monitor (validation): `test`: the curves show the test classes as well.
        layers_every (0): epochs after which every layer is evaluated; 0: never.
        patience (none): stop after so many epochs without a better score; none: where recall@1
            is 100 %, after ten validations.
        gain_by (none): the epoch from which on it must have gained, or training stops.
        refit (false): once the length is chosen, train on training and validation classes
            together.
        device (auto): `cpu`, `cuda`, `cuda:1`, ...
        threads (auto): of each process.
        workers (auto): processes that prepare images.
        cpu_processes (auto): processes of this machine that divide each batch.
        micro_batch (auto): images that are embedded at a time, with the gradient of the whole
            batch (GradCache); none: all.
        protocol (half_split): how the classes are divided.
        descriptor (embedding): `embedding`, a layer, or `best`: the one that is best on
            validation classes.
        normalize (auto): compare by the cosine; false: by the Euclidean distance.
        metrics ([recall@1, recall@2, recall@4, recall@8, map_at_r, r_precision, nmi]): their
            names, or a source's.
        shots ([]): images of each test class, to adapt the last layer with.
        open_set (false): evaluate also queries of classes that the gallery does not have.
        validation_fraction (auto): of the training classes, those that select.
        split_seed (0): draws the classes of all but half_split.
        folds (10): of k_fold.
        fold (0): the one that selects.
        shift (none): of `shift`, the step of its splits.
        train_domain (none): of several domains, train and select on this one, evaluate on all.

    Example:
        >>> import numpy as np, unseen
        >>> features = np.random.default_rng(0).normal(size=(64, 16)).astype("float32")
        >>> np.savez("toy.npz", features=features, labels=np.repeat(np.arange(16), 4))
        >>> run = unseen.fit("toy.npz", epochs=1, out="runs/a", progress=False)
        >>> bool(run.scores.loc["trained", "recall@1"] <= 1)
        True
    """
    values, objects = values_of(data, settings)
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


def backbones(
    data: Any,
    candidates: Sequence[str] = (),
    *,
    download: bool = False,
    images: int = MOST,
    **settings: Unpack[Settings],
) -> Race:
    """Compares frozen features of networks on classes of the training half; test classes are not
    read. `unseen.fit(data, **race.settings)` trains with the one that is chosen.

    Args:
        data: As in `fit`.
        candidates: Further ones: `"resnet50"` or `"resnet50=FILE"`. Those whose weights are
            installed or cached take part anyway.
        download: Also the recommended ones, from the hub.
        images: Of the largest sample.
        settings: As in `fit`, such as `pooling` and `image_size`.

    Example:
        >>> import numpy as np, unseen
        >>> photos = np.random.default_rng(0).integers(0, 256, (64, 32, 32, 3), dtype=np.uint8)
        >>> data = (photos, np.repeat(np.arange(16), 4))
        >>> race = unseen.backbones(data, images=20, image_size=32)
        >>> race.choice in [each.candidate for each in race.standings]
        True
    """
    values, objects = values_of(data, settings)
    named_backbones = [Candidate.of(word) for word in candidates]
    custom_components.trust([values, [each.backbone for each in named_backbones]])
    with custom_components.known_objects(objects):
        return race(values, named_backbones, download=download, most=images)


def load(run: str | Path, *, network: Any = None, trust: bool = False) -> Trained:
    """Opens a trained run, ready to embed images; the data of the run are not needed.

    Args:
        run: The run's folder.
        network: The network that the run was trained with, where it was an object.
        trust: Code that the run names may be executed, whoever wrote it.

    Example:
        >>> import torch, unseen
        >>> unseen.load("runs/a").embed(torch.ones(2, 16)).shape
        torch.Size([2, 128])
    """
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
    """Compares two runs on the same queries, pair by pair; `conclusion` says which is better.

    Args:
        first: A run, or its folder.
        second: Another one, with the same test classes.

    Example:
        >>> import unseen
        >>> unseen.compare("runs/a", "runs/a").conclusion.partition(" between")[0]
        'No clear difference'
    """
    return compare_runs(_path(first), _path(second))


def diagnose(run: str | Path | Run, also: Sequence[Any] = ()) -> dict[str, Any]:
    """What a run's embedding space looks like, in words and numbers; reads the test classes.

    Args:
        run: A run, or its folder.
        also: Further diagnostics, by name, as classes, objects or functions of embeddings and
            labels.

    Example:
        >>> import unseen
        >>> len(unseen.diagnose("runs/a")["findings"]) > 0
        True
    """
    return (run if isinstance(run, Run) else Run(Path(run))).diagnose(also)


def study(plan: str | Path | Mapping[str, Any], out: str | Path, **how: Any) -> Results:
    """Trains many configurations under one protocol and compares them. A second call runs only
    what is missing.

    Args:
        plan: A study file (TOML) or its values; docs/studies.md lists its keys.
        out: The study's folder.
        how: As in `unseen.studies.engine.Study.run`: `workers`, `storage`, ...

    Example:
        >>> import unseen
        >>> plan = {"name": "losses", "factors": {"loss": ["margin", "triplet"]}, "seeds": [0, 1]}
        >>> results = unseen.study(plan, "studies/losses")  # doctest: +SKIP
        >>> results.frame  # doctest: +SKIP
    """
    if isinstance(plan, Mapping):
        custom_components.trust(dict(plan))
        return Study(plans.make(dict(plan))).run(Path(out), **how)
    return Study(plans.load(Path(plan))).run(Path(out), **how)


def _path(run: str | Path | Run) -> Path:
    return run.path if isinstance(run, Run) else Path(run)
