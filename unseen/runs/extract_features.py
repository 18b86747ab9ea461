"""Pooled features of a data set from one pass through a backbone, in a file that `arrays` reads;
and the table of the splits of growing shift that are measured by them."""

import hashlib
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from unseen.config import build, find_data
from unseen.config.resolve import resolve
from unseen.config.schema import Config, ResolvedConfig
from unseen.core import read_limits
from unseen.core.contracts import (
    Dataset,
    FeatureDataset,
    FiledDataset,
    Network,
    Output,
    Progress,
)
from unseen.core.files import replacing
from unseen.data.arrays import FILES, OF, columns_of
from unseen.data.images.loader import evaluation_batches
from unseen.evaluation.embed import embed
from unseen.evaluation.shift_splits import ShiftSplits, shift_splits
from unseen.models.folding import folded
from unseen.models.freezing import split_network
from unseen.models.network import POOLED
from unseen.protocols.shift import own_halves
from unseen.runs.job_engines import Engine, Local
from unseen.runs.prepare import EMBED_BATCH, Callbacks
from unseen.training.run_folder import RunFolder

CHUNK = 2048  # items computed between two files


def write_features(
    config: ResolvedConfig,
    dataset: Dataset,
    out: Path,
    progress: Progress,
    engine: Engine | None = None,
) -> int:
    """Writes the features of all items and everything the data set says of them; the config must
    be resolved. engine: who computes, if not this process. Returns the number of features.

    Chunks of the work stay beside the file until it is complete: the same call resumes. They
    are named after the data and the config, so chunks of other work are never taken.
    """
    if isinstance(dataset, FeatureDataset):
        raise ValueError(f"{dataset.name} holds features already")
    with computed_features(config, dataset, out, progress, engine) as features:
        columns: dict[str, Any] = columns_of(dataset) | {OF: np.array(config.data.name)}
        if isinstance(dataset, FiledDataset):
            columns[FILES] = np.array([str(dataset.path(i)) for i in range(len(dataset))])
        with replacing(out) as aside, aside.open("wb") as stream:
            np.savez(stream, features=features, **columns)
    return int(features.shape[1])


@contextmanager
def computed_features(
    config: ResolvedConfig,
    dataset: Dataset,
    out: Path,
    progress: Progress,
    engine: Engine | None = None,
) -> Iterator[NDArray[np.float32]]:  # [n, P]
    """The features of all items; parts of them lie beside `out` until the block has ended."""
    key = hashlib.sha256(f"{config.hash()} {dataset.fingerprint()}".encode()).hexdigest()[:16]
    parts = out.with_name(f"{out.name}.{key}.parts")
    parts.mkdir(parents=True, exist_ok=True)
    yield _computed(config, dataset, parts, progress, engine or Local())
    shutil.rmtree(parts)


def _computed(
    config: ResolvedConfig, dataset: Dataset, parts: Path, progress: Progress, engine: Engine
) -> NDArray[np.float32]:  # [n, P]
    folder, total = RunFolder(parts), len(dataset)
    starts = range(0, total, CHUNK)
    todo = [start for start in starts if not folder.holds(f"{start}.npz")]
    here = isinstance(engine, Local)  # others open the data themselves
    make = partial(_Chunks, config, parts, total, *((dataset, progress) if here else ()))
    done = total - sum(min(CHUNK, total - start) for start in todo)
    for more in engine.run(make, todo):
        done += more
        progress(done, total)
    return np.concatenate(
        [read_limits.load(folder.checked(f"{s}.npz"))["features"] for s in starts]
    )


class _Chunks:
    """Writes parts of the features, by their first item; holds the network."""

    def __init__(
        self,
        config: ResolvedConfig,
        parts: Path,
        total: int,
        dataset: Dataset | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.config, self.folder, self.progress = config, RunFolder(parts), progress
        self.dataset = dataset or find_data.open_data(config.data, None, config.data.strict)
        if len(self.dataset) != total:
            raise ValueError(
                f"{self.dataset.name} holds {len(self.dataset)} items here, not {total}"
            )
        self.device = torch.device(config.training.machine.device)
        self.pooled, self.transform = pooling_network(config, self.device)

    def __call__(self, start: int) -> int:
        total, workers = len(self.dataset), self.config.training.machine.workers
        items = np.arange(start, min(start + CHUNK, total))
        batches = evaluation_batches(
            self.dataset, items, self.transform, EMBED_BATCH, workers=workers
        )

        def shown(done: int, _: int) -> None:
            if self.progress is not None:
                self.progress(start + done, total)

        fields = embed(self.pooled, batches, len(items), self.device, shown, ("pooled",))
        rows = fields["pooled"]
        self.folder.write_arrays(f"{start}.npz", features=rows.numpy())
        return len(items)


def pooling_network(config: ResolvedConfig, device: torch.device) -> tuple[Network, Any]:
    """The layers up to the pooled descriptor, batch norms folded, and the transform of images."""
    network = build.network(config).to(device)
    _, transform = build.image_transforms(config, network)
    frozen = split_network(network, POOLED).frozen
    spec = network.backbone.input_spec
    quick = folded(frozen, torch.zeros(1, 3, spec.size, spec.size, device=device))
    return _Pooled(quick, network.backbone.num_features), transform


class _Pooled(Network):
    """A module that pools, as a network of which only that is read."""

    def __init__(self, prefix: nn.Module, size: int) -> None:
        super().__init__()
        self.prefix, self.embedding_size = prefix, size

    def forward(self, images: Tensor) -> Output:
        pooled = self.prefix(images)
        return Output(pooled, pooled)


def make_shift_splits(
    config: Config, dataset: Dataset, out: Path, callbacks: Callbacks
) -> ShiftSplits:
    """Computes the descriptors where there are none, measures, and writes the table."""
    own = own_halves(dataset, config.evaluation.protocol.split_seed)
    progress = callbacks.of("measuring shifts")
    if isinstance(dataset, FeatureDataset):
        of = f"features of {dataset.name}"
        stages = shift_splits(dataset.features, dataset.labels, own, of, progress)
    else:
        resolved, _ = resolve(config, dataset)
        torch.set_num_threads(resolved.training.machine.threads)
        weights = resolved.model.weights or "random weights"
        of = f"{resolved.model.backbone} ({weights}), pooling {resolved.model.pooling}"
        computing = callbacks.of("computing features")
        with computed_features(resolved, dataset, out, computing) as features:
            stages = shift_splits(features, dataset.labels, own, of, progress)
    stages.write(out, dataset.label_names)
    return stages
