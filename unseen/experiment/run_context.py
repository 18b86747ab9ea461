"""What a run is about: a settled config, its data and its split; and who watches it."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from unseen import assemble, find_data, outside
from unseen import config as configs
from unseen.config import Config, SettledConfig
from unseen.config_tables import Part, Relating
from unseen.contracts import (
    Batch,
    Dataset,
    IdentifiedDataset,
    IntArray,
    Network,
    Progress,
    Sampler,
    Split,
    annotations_of,
    domains_of,
)
from unseen.data.own.pairs_file import GRADE, SAME, with_pairs
from unseen.data.pictures.loader import evaluation_batches
from unseen.evaluation.embed import embed, embed_layers
from unseen.evaluation.retrieval_task import RetrievalTask
from unseen.experiment.items import read_items, refuse_other_items
from unseen.experiment.leaks import Copies, copies, refuse_shared_classes
from unseen.experiment.unreadable_pictures import UnreadablePictures
from unseen.names import near_path
from unseen.networks.network import LayeredNetwork
from unseen.networks.taps import EMBEDDING
from unseen.relating import relevance_of
from unseen.relevance import AnyLabels, Relevance
from unseen.rungs import FIRST, WHOLE, rung_config
from unseen.settle import settle
from unseen.training.events import Event
from unseen.training.processes import Processes
from unseen.training.run_folder import RunFolder
from unseen.training.selection import FILE as SELECTION
from unseen.training.selection import read_selection

EMBED_BATCH = 256
BY_MACHINE = (
    "device",
    "threads",
    "workers",
    "shares",
    "micro_batch",
)  # what "auto" settles by where it runs
BY_PLAN = ("minutes", "depth", "ladder", "picture_size", "mirror", "refit")  # `budget.py`
OF_PLAN = ("ladder: ", "minutes = ", "speed: ", "plan: ")  # how its reasons begin
NO_TIME = "plan: no time for the whole network"


@dataclass
class Watch:
    """Who is told what happens: events of training, (what, done, total) of long work, warnings."""

    listeners: list[Callable[[Event], None]] = field(default_factory=list)
    progress: Callable[[str, int, int], None] = lambda what, done, total: None
    warn: Callable[[str], None] = lambda text: None

    def tell(self, event: Event) -> None:
        for listener in self.listeners:
            listener(event)

    def of(self, what: str) -> Progress:
        return lambda done, total: self.progress(what, done, total)


@dataclass(frozen=True)
class RunContext:
    """A settled config and what it stands for; `reasons` says why each "auto" became what it is."""

    config: SettledConfig
    dataset: Dataset
    split: Split
    reasons: list[str]
    known_scores: dict[bytes, Any] = field(default_factory=dict)  # of spaces, see `judge`
    copies: Copies | None = None
    unreadable: UnreadablePictures = field(default_factory=UnreadablePictures)
    processes: Processes = field(default_factory=Processes)
    asked: Config | None = None  # the config before it was settled
    now: Callable[[], float] = time.monotonic
    began: float | None = None  # by `now`
    plan: Sequence[str] = ()  # how the minutes are to be used, in words
    shift: float | None = None  # between training and test classes, where it was measured

    @property
    def device(self) -> torch.device:
        return torch.device(self.config.device)

    @cached_property
    def training_labels(self) -> IntArray:  # [n]
        """What the training items are taken for: their labels, some wrong where the config asks
        for it."""
        noise = self.config.label_noise
        if noise is None:
            return self.dataset.labels
        if self.relevance.kind != "labels":
            raise ValueError(
                f"label_noise changes classes, and the data have {self.relevance.kind}"
            )
        from unseen.experiment.label_noise import with_noise  # noqa: PLC0415 - k-means, on demand

        return with_noise(self.dataset, self.split.train, noise, self.config.seed)

    @property
    def if_unreadable(self) -> UnreadablePictures | None:
        """Who is told of a picture that cannot be read; None: it ends the run."""
        return None if self.config.strict else self.unreadable

    def embed(
        self,
        network: Network,
        transform: Any,
        items: IntArray,
        progress: Progress | None = None,
        field: Literal["embeddings", "pooled"] = "embeddings",
    ) -> Tensor:  # [n, D]
        """Embeddings (or pooled descriptors) of some items, in their order. Several processes
        embed a part each, and all get all of them."""
        own = self.own_part(items)
        batches = self.batches(transform, own)
        rows = embed(network, batches, len(own), self.device, progress, field)
        return self.gathered(rows, len(items))

    def embed_layers(
        self,
        network: LayeredNetwork,
        transform: Any,
        items: IntArray,
        layers: Sequence[str],
        progress: Progress | None = None,
    ) -> dict[str, Tensor]:  # each [n, d]
        """Descriptors of several layers from one forward pass; the embedding stays raw where the
        run compares raw embeddings, which takes a second pass."""
        own = self.own_part(items)
        batches = self.batches(transform, own)
        parts = embed_layers(network, layers, batches, len(own), self.device, progress)
        found = {name: self.gathered(rows, len(items)) for name, rows in parts.items()}
        if EMBEDDING in found and not self.config.normalise:
            found[EMBEDDING] = self.embed(network, transform, items, progress)
        return found

    @cached_property
    def relevance(self) -> Relevance:
        """Who is the same as whom among the items."""
        return relevance_of(self.config, self.dataset)

    def labels_of(self, items: IntArray) -> AnyLabels:  # [n]
        """What some items are compared by: their classes, or the relevance."""
        if self.relevance.kind == "labels":
            return torch.from_numpy(self.dataset.labels[items])
        return self.relevance.of(torch.from_numpy(items))

    def retrieval_task(self, items: IntArray, columns: Sequence[str] = ()) -> RetrievalTask:
        """Who asks whom among some items, by their class and by further label columns."""
        annotations = annotations_of(self.dataset)
        labels = self.labels_of(items)
        more: dict[str, AnyLabels] = {
            name: torch.from_numpy(annotations.labels[name][items]) for name in columns
        }
        groups = annotations.ignore_groups
        query = gallery = None
        if np.array_equal(items, self.split.test):
            query, gallery = self.split.query, self.split.gallery
        return RetrievalTask(
            {"": labels, **more} if more else labels,
            None if query is None else torch.from_numpy(query),
            None if gallery is None else torch.from_numpy(gallery),
            None if groups is None else torch.from_numpy(groups[items]),
        )

    def batches(self, transform: Any, items: IntArray) -> Iterator[Batch]:
        """Some items as they are judged, in their order."""
        return evaluation_batches(
            self.dataset,
            items,
            transform,
            EMBED_BATCH,
            workers=self.config.workers,
            on_unreadable=self.if_unreadable,
        )

    def own_part(self, items: IntArray) -> IntArray:
        """What this process embeds of some items; all of them where some would get none."""
        shared = len(items) >= self.processes.count
        return items[self.processes.share(len(items))] if shared else items

    def gathered(self, rows: Tensor, total: int) -> Tensor:
        """The rows of all processes, each of its part."""
        if total < self.processes.count:
            return rows
        return self.processes.gather(rows, self.processes.lengths(len(rows), rows.device))


@contextmanager
def computing(context: RunContext) -> Iterator[None]:
    """The config's number of threads while the block runs: results depend on it in the last bit."""
    before = torch.get_num_threads()
    torch.set_num_threads(context.config.threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def prepare(
    config: Config,
    watch: Watch | None = None,
    dataset: Dataset | None = None,
    processes: Processes | None = None,
    is_named: bool = False,
) -> RunContext:
    """Opens the data (unless it is given), settles the config and cuts the classes. is_named: the
    config says where the given data set comes from; otherwise nobody else can open it."""
    watch, processes, began = watch or Watch(), processes or Processes(), time.monotonic()
    if dataset is not None and not is_named:
        config = config.model_copy(update={"data": Part(name=outside.object_name(dataset))})
    if config.device != "auto" and (why := unusable(config.device)):
        raise ValueError(
            f"device={config.device} cannot be used here ({why}): device=cpu, or device=auto, "
            "which takes a GPU where there is one"
        )
    progress = watch.of("reading the data")
    with processes.first_ahead():  # it leaves what it has read in the cache
        dataset = dataset or find_data.open_data(config.data, progress, config.strict)
        _read(dataset, watch)
    if config.relevance.is_listed:
        dataset = listed_in(config.relevance, dataset)
    settled, reasons = settle(config, dataset)
    reasons = find_data.data_reasons(config.data) + reasons
    split = assemble.split(settled, dataset, watch.warn)
    refuse_shared_classes(dataset, split, relevance_of(settled, dataset))
    found = copies(dataset, split)
    return RunContext(
        settled,
        dataset,
        split,
        reasons,
        copies=found,
        processes=processes,
        asked=config,
        began=began,
        shift=assemble.shift(settled, dataset),
    )


def listed_in(relating: Relating, dataset: Dataset) -> Dataset:
    """The data set with the pairs that a config names."""
    if relating.pairs is not None:
        return with_pairs(dataset, relating.pairs, SAME, 1.0)
    return with_pairs(dataset, str(relating.grades), GRADE, relating.from_grade)


def reopen(
    path: Path,
    watch: Watch | None = None,
    data: str | None = None,
    dataset: Dataset | None = None,
) -> tuple[RunContext, RunFolder]:
    """The setting of a stored run: its items and its split. data: where the items lie now;
    dataset: or the data set itself. Items that have come since are left out; where some are lost
    or changed, a ValueError says which."""
    folder, watch = RunFolder(path), watch or Watch()
    if not folder.is_started:
        near = near_path(path) or ". `unseen train` makes one."
        raise ValueError(f"{path} is not a run: it has no config.toml{near}")
    config, kept = stored_config(folder), read_items(folder)
    if unusable(config.device):  # trained elsewhere
        config = config.model_copy(update={"device": "cpu"})
    if dataset is None:
        known = find_data.found_again(config.data, folder.manifest().data.place or [], path)
        part = known if data is None else find_data.moved_data(config.data, data)
        dataset = find_data.open_data(part, watch.of("reading the data"), config.strict)
    _read(dataset, watch)
    if kept is None:
        split = assemble.split(settle(config, dataset)[0], dataset)
        refuse_other_items(folder, dataset, split)
    else:
        changes = kept.changes(dataset)
        if changes.any_lost:
            raise ValueError(
                f"the data of {path} have changed since it was trained: {changes}. Put them back, "
                "or say where the same items lie now, with --data PATH"
            )
        if changes.added:
            watch.warn(f"left out, because {path} was not trained with them: {changes}")
        dataset, split = kept.found_in(dataset), kept.split
    config, reasons = settle(config, dataset)
    shift = folder.manifest().data.split.shift
    found = copies(dataset, split)
    return RunContext(config, dataset, split, reasons, copies=found, shift=shift), folder


def unusable(device: str) -> str:
    """Why nothing can be computed on a device; "": it can."""
    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        return str(error).partition("\n")[0].rstrip(".")
    return ""


def _read(dataset: Dataset, watch: Watch) -> None:
    """What items hold, under a bar: files that nobody has read before take their time."""
    if isinstance(dataset, IdentifiedDataset):
        dataset.digests(watch.of("reading what is in the pictures"))


def stored_config(folder: RunFolder) -> SettledConfig:
    """What the kept network was trained with: of a ladder that was climbed, the kept rung."""
    config = begun_config(folder)
    if config.ladder and folder.holds(SELECTION):
        ladder = read_selection(folder).ladder
        return rung_config(config, FIRST if ladder is None else ladder.kept)
    return config


def begun_config(folder: RunFolder) -> SettledConfig:
    """As it was settled when the run began."""
    folder.refuse_later_version()
    return configs.make_settled(configs.load(folder.checked("config.toml")))


def as_stored(context: RunContext, folder: RunFolder) -> RunContext:
    """A run goes on with what "auto" was settled to where it began, on whatever machine."""
    if context.asked is None or not folder.is_started:
        return context
    stored, asked = dict(begun_config(folder)), dict(context.asked)
    kept = {key: stored[key] for key in BY_MACHINE if asked[key] == "auto"}
    begun_with: Sequence[str] = ()
    if context.config.minutes is not None:
        begun_with = folder.manifest().plan or ()
        given = {key for key in context.asked.model_fields_set if asked[key] != stored[key]}
        if asked["depth"] == WHOLE and any(line.startswith(NO_TIME) for line in begun_with):
            given.discard("depth")
        kept |= {key: stored[key] for key in BY_PLAN if key not in given}
    differing = {k: v for k, v in kept.items() if getattr(context.config, k) != v}
    if differing.get("device") and not torch.cuda.is_available():
        raise ValueError(
            f"{folder.path} was trained on {kept['device']}, which is not here: go on where there "
            "is one, or start anew with another --out"
        )
    reasons = [r for r in context.reasons if r.partition(" = ")[0] not in differing]
    plan = context.plan
    if "ladder" in differing:  # what this machine would plan today is of no use
        plan = begun_with
        reasons = [r for r in reasons if not r.startswith(OF_PLAN)] + list(plan)
    said = {key: value for key, value in differing.items() if key != "ladder"}
    reasons += [f"{key} = {value}: as when the run began" for key, value in said.items()]
    config = context.config.model_copy(update=differing)
    return replace(context, config=config, reasons=reasons, plan=plan)


def changed_keys(folder: RunFolder, config: SettledConfig) -> list[str]:
    """Keys whose values differ between a stored run and a config."""
    stored = begun_config(folder)
    return [key for key in Config.model_fields if getattr(stored, key) != getattr(config, key)]


def steps_per_epoch(context: RunContext) -> int:
    """Batches in an epoch."""
    return len(sampler_of(context))


def sampler_of(context: RunContext) -> Sampler:
    """The sampler of a run, at its start."""
    dataset = context.dataset
    return assemble.sampler(
        context.config,
        context.split.train,
        context.training_labels,
        context.relevance,
        domains_of(dataset),
    )
