"""What a run is about: a resolved config, its data and its split; and who watches it."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unseen.config import build, find_data
from unseen.config import schema as configs
from unseen.config.build_relevance import listed_in, relevance_of
from unseen.config.resolve import ResolvedKeys, resolve, resolve_keys
from unseen.config.schema import Config, ResolvedConfig
from unseen.config.stages import FIRST, stage_config
from unseen.config.tables import Component
from unseen.core import custom_components
from unseen.core.contracts import (
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
from unseen.core.files import shown
from unseen.core.names import by_front_end, near_path
from unseen.core.reason import Reason
from unseen.core.relevance import AnyLabels, Relevance
from unseen.data.images.decode import UnreadableImageError
from unseen.data.images.loader import evaluation_batches
from unseen.evaluation.embed import Field, embed, embed_layers
from unseen.evaluation.retrieval_task import RetrievalTask
from unseen.models.layer_outputs import EMBEDDING
from unseen.models.network import LayeredNetwork
from unseen.runs.leaks import Copies, copies, refuse_shared_classes
from unseen.runs.run_items import read_items
from unseen.training.distributed import Processes
from unseen.training.events import Event, Unreadable
from unseen.training.run_folder import RunFolder
from unseen.training.selected_weights import FILE as SELECTION
from unseen.training.selected_weights import read_selection


class UnreadableImages:
    """Called with each error; `tell` hears of each file once.

    A run skips them (`strict = true`: it stops): each file is logged once and counted in the
    result, the same number whether the run was stopped in between or not.
    """

    def __init__(self) -> None:
        self.paths: set[str] = set()
        self.log: Callable[[Unreadable], None] = lambda event: None

    def __call__(self, error: UnreadableImageError) -> None:
        path = shown(error.path)
        if path not in self.paths:
            self.paths.add(path)
            self.log(Unreadable(path, error.reason))

    def remember(self, events: Iterable[Event]) -> None:
        """What an event log says was told before."""
        self.paths |= {event.path for event in events if isinstance(event, Unreadable)}


EMBED_BATCH = 256


@dataclass
class Callbacks:
    """Who is told what happens: events of training, (what, done, total) of long work, warnings."""

    listeners: list[Callable[[Event], None]] = field(default_factory=list)
    progress: Callable[[str, int, int], None] = lambda what, done, total: None
    warn: Callable[[str], None] = lambda text: None

    def log(self, event: Event) -> None:
        for listener in self.listeners:
            listener(event)

    def of(self, what: str) -> Progress:
        return lambda done, total: self.progress(what, done, total)


@dataclass(frozen=True)
class RunContext:
    """A resolved config and what it stands for; `reasons` says why each "auto" became what it
    is."""

    config: ResolvedConfig
    dataset: Dataset
    split: Split
    reasons: list[Reason]
    known_scores: dict[bytes, Any] = field(default_factory=dict)  # of spaces, see `evaluate`
    copies: Copies | None = None
    unreadable: UnreadableImages = field(default_factory=UnreadableImages)
    processes: Processes = field(default_factory=Processes)
    request: Config | None = None  # the config before it was resolved
    keys: ResolvedKeys | None = None  # of the request, before its stages were decided
    now: Callable[[], float] = time.monotonic
    began: float | None = None  # by `now`
    plan: Sequence[Reason] = ()  # how the time budget is to be used
    shift: float | None = None  # between training and test classes, where it was measured

    @property
    def device(self) -> torch.device:
        return torch.device(self.config.training.machine.device)

    @cached_property
    def training_labels(self) -> IntArray:  # [n]
        """What the training items are taken for: their labels, some wrong where the config asks
        for it."""
        noise = self.config.data.label_noise
        if noise is None:
            return self.dataset.labels
        if self.relevance.kind != "labels":
            raise ValueError(
                f"label_noise changes classes, and the data have {self.relevance.kind}"
            )
        from unseen.runs.label_noise import with_noise  # noqa: PLC0415 - k-means, on demand

        return with_noise(self.dataset, self.split.train, noise, self.config.training.seed)

    @property
    def if_unreadable(self) -> UnreadableImages | None:
        """Who is told of an image that cannot be read; None: it ends the run."""
        return None if self.config.data.strict else self.unreadable

    def embed(
        self,
        network: Network,
        transform: Any,
        items: IntArray,
        progress: Progress | None = None,
        field: Field = "embeddings",
    ) -> Tensor:  # [n, D]
        """Embeddings (or pooled descriptors) of some items, in their order."""
        return self.embed_fields(network, transform, items, progress, (field,))[field]

    def embed_fields(
        self,
        network: Network,
        transform: Any,
        items: IntArray,
        progress: Progress | None,
        fields: Sequence[Field],
    ) -> dict[str, Tensor]:  # each [n, D]
        """Several of them from one forward pass. Several processes embed a part each, and all get
        all of them."""
        own = self.own_items(items)
        batches = self.batches(transform, own)
        rows = embed(network, batches, len(own), self.device, progress, fields)
        return {name: self.gathered(values, len(items)) for name, values in rows.items()}

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
        own = self.own_items(items)
        batches = self.batches(transform, own)
        parts = embed_layers(network, layers, batches, len(own), self.device, progress)
        result = {name: self.gathered(rows, len(items)) for name, rows in parts.items()}
        if EMBEDDING in result and not self.config.evaluation.normalize:
            result[EMBEDDING] = self.embed(network, transform, items, progress)
        return result

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
        """Some items as they are evaluated, in their order."""
        return evaluation_batches(
            self.dataset,
            items,
            transform,
            EMBED_BATCH,
            workers=self.config.training.machine.workers,
            on_unreadable=self.if_unreadable,
        )

    def own_items(self, items: IntArray) -> IntArray:
        """What this process embeds of some items; all of them where some would get none."""
        shared = len(items) >= self.processes.count
        return items[self.processes.fraction(len(items))] if shared else items

    def gathered(self, rows: Tensor, total: int) -> Tensor:
        """The rows of all processes, each of its part."""
        if total < self.processes.count:
            return rows
        return self.processes.gather(rows, self.processes.lengths(len(rows), rows.device))


class Show:
    """Callbacks of both phases of a run; those here do nothing."""

    def preparing(self, processes: Processes) -> AbstractContextManager[Callbacks]:
        """While the data are read and the config is resolved."""
        return nullcontext(Callbacks())

    def training(self, context: RunContext, out: Path) -> AbstractContextManager[Callbacks]:
        """While it trains and is evaluated; the context says what and why."""
        return nullcontext(Callbacks())


@contextmanager
def computing(context: RunContext) -> Iterator[None]:
    """The config's number of threads while the block runs: results depend on it in the last bit."""
    before = torch.get_num_threads()
    torch.set_num_threads(context.config.training.machine.threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def prepare(
    config: Config,
    callbacks: Callbacks | None = None,
    dataset: Dataset | None = None,
    processes: Processes | None = None,
    is_named: bool = False,
) -> RunContext:
    """Opens the data (unless it is given), resolves the config, splits the classes. is_named: the
    config says where the given data set comes from; otherwise nobody else can open it."""
    callbacks, processes = callbacks or Callbacks(), processes or Processes()
    began = time.monotonic()
    if dataset is not None and not is_named:
        name = custom_components.object_name(dataset)
        config = config.with_values({"data": Component(name=name)})
    device = config.training.machine.device
    if device != "auto" and (why := unusable(device)):
        raise ValueError(
            f"device={device} cannot be used here ({why}): device=cpu, or device=auto, "
            "which takes a GPU where there is one"
        )
    progress = callbacks.of("reading the data")
    with processes.rank_zero_first():  # it leaves what it has read in the cache
        dataset = dataset or find_data.open_data(config.data, progress, config.data.strict)
        _read(dataset, callbacks)
    if config.data.relevance.is_listed:
        dataset = listed_in(config.data.relevance, dataset)
    keys = resolve_keys(config, dataset)
    resolved, reasons = keys.complete()
    reasons = find_data.data_reasons(config.data) + reasons
    split = build.split(resolved, dataset, callbacks.warn)
    refuse_shared_classes(dataset, split, relevance_of(resolved, dataset))
    return RunContext(
        resolved,
        dataset,
        split,
        reasons,
        copies=copies(dataset, split),
        processes=processes,
        request=config,
        keys=keys,
        began=began,
        shift=build.shift(resolved, dataset),
    )


def reopen(
    path: Path,
    callbacks: Callbacks | None = None,
    data: str | None = None,
    dataset: Dataset | None = None,
) -> tuple[RunContext, RunFolder]:
    """The setting of a stored run: its items and its split. data: where the items lie now;
    dataset: or the data set itself. Items that have come since are left out; where some are lost
    or changed, a ValueError says which."""
    folder, callbacks = require_run(path), callbacks or Callbacks()
    config, stored_items = stored_config(folder), read_items(folder)
    if unusable(config.training.machine.device):  # trained elsewhere
        config = config.with_values({"device": "cpu"})
    if dataset is None:
        known = find_data.data_from_here(config.data, folder.manifest().data.place or [], path)
        component = known if data is None else find_data.moved_data(config.data, data)
        dataset = find_data.open_data(
            component, callbacks.of("reading the data"), config.data.strict
        )
    _read(dataset, callbacks)
    changes = stored_items.changes(dataset)
    if changes.any_lost:
        raise ValueError(
            f"the data of {path} have changed since it was trained: {changes}. Put them back"
            + by_front_end(", or say where the same items lie now, with --data PATH", "")
        )
    if changes.added:
        callbacks.warn(f"left out, because {path} was not trained with them: {changes}")
    dataset, split = stored_items.select_from(dataset), stored_items.split
    config, reasons = resolve(config, dataset)
    shift = folder.manifest().data.split.shift
    return RunContext(
        config, dataset, split, reasons, copies=copies(dataset, split), shift=shift
    ), folder


def require_run(path: Path) -> RunFolder:
    """The folder of a run that has begun; ValueError: it is none."""
    folder = RunFolder(path)
    if not folder.is_started:
        near = near_path(path) or ". `unseen train` makes one."
        raise ValueError(f"{path} is not a run: it has no config.toml{near}")
    return folder


def unusable(device: str) -> str:
    """Why nothing can be computed on a device; "": it can."""
    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        return str(error).partition("\n")[0].rstrip(".")
    return ""


def _read(dataset: Dataset, callbacks: Callbacks) -> None:
    """What items hold, under a bar: files that nobody has read before take their time."""
    if isinstance(dataset, IdentifiedDataset):
        dataset.digests(callbacks.of("reading what is in the images"))


def stored_config(folder: RunFolder) -> ResolvedConfig:
    """What the selected network was trained with: its stage, where the run had stages."""
    config = config_at_start(folder)
    if config.training.stages and folder.holds(SELECTION):
        stages = read_selection(folder).stages
        return stage_config(config, FIRST if stages is None else stages.selected)
    return config


def config_at_start(folder: RunFolder) -> ResolvedConfig:
    """As it was resolved when the run began."""
    folder.refuse_later_version()
    return configs.make_resolved(configs.load(folder.checked("config.toml")))


def sampler_of(context: RunContext) -> Sampler:
    """The sampler of a run, at its start."""
    dataset = context.dataset
    return build.sampler(
        context.config,
        context.split.train,
        context.training_labels,
        context.relevance,
        domains_of(dataset),
    )
