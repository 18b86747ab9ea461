"""One run from data to score: train, select on validation classes, read the test classes once.

    run(config, out)  trains and judges        judge(run)  judges the stored network again
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unseen import build, config as configs
from unseen.config import Config
from unseen.contracts import Dataset, IntArray, Split
from unseen.data.pictures import transforms
from unseen.data.pictures.loader import evaluation_batches, training_batches
from unseen.evaluation.embed import embed
from unseen.evaluation.evaluate import Evaluation, evaluate
from unseen.networks.network import EmbeddingNetwork
from unseen.training.journal import Journal
from unseen.training.run_folder import RunFolder
from unseen.training.trainer import Event, Listener, Trainer

SELECT_BY = "recall@1"
MONITORED = 2_000  # training pictures whose recall is followed beside the validation classes'
PIXEL_SIDE = 32  # the raw-pixel baseline compares pictures at this size


@dataclass
class Watch:
    """Who is told what happens: events of training, and (what, done, total) of long work."""

    listeners: list[Listener] = field(default_factory=list)
    progress: Callable[[str, int, int], None] = lambda what, done, total: None

    def tell(self, event: Event) -> None:
        for listener in self.listeners:
            listener(event)

    def of(self, what: str) -> Callable[[int, int], None]:
        return lambda done, total: self.progress(what, done, total)


@dataclass(frozen=True)
class Setting:
    """A settled config and what it stands for."""

    config: Config
    dataset: Dataset
    split: Split
    reasons: list[str]

    @property
    def device(self) -> torch.device:
        return torch.device(self.config.device)


def prepare(config: Config, watch: Watch | None = None) -> Setting:
    """Opens the data, settles the config and cuts the classes."""
    watch = watch or Watch()
    dataset = build.dataset(config.data, watch.of("reading the data"))
    config, reasons = build.settle(config, dataset)
    split = build.split(config, dataset)
    return Setting(config, dataset, split, reasons)


def run(setting: Setting, out: Path, command: str, watch: Watch | None = None) -> dict[str, Any]:
    """Trains, selects, judges; returns what stands in result.json."""
    watch = watch or Watch()
    folder = RunFolder(out)
    config = setting.config
    folder.write_text("config.toml", config.to_toml())
    folder.start_manifest(command, describe(setting), config.hash())
    selection = _train(setting, folder, watch)
    return judge(setting, folder, selection, "final evaluation", watch)


def _train(setting: Setting, folder: RunFolder, watch: Watch) -> dict[str, Any]:
    """Trains for all epochs, keeps the weights that were best on the validation classes."""
    config, dataset, split = setting.config, setting.dataset, setting.split
    network = build.network(config)
    train_transform, eval_transform = build.picture_transforms(config, network)
    sampler = build.sampler(config, split.train, dataset.labels)
    class_of = training_classes(dataset.labels, split.train)
    objective = build.objective(config, int(class_of.max()) + 1)
    assert isinstance(config.epochs, int)
    assert isinstance(config.workers, int)
    schedule = build.schedule(config, config.epochs * len(sampler))
    trainer = Trainer(
        network, objective, config.lr, config.weight_decay, schedule, setting.device
    )
    monitored = _monitored(split.train, dataset.labels, config.seed)
    best: dict[str, Any] = {"on": "validation", "metric": SELECT_BY, "epoch": -1, "value": -1.0}
    journal = Journal(folder.file("journal.jsonl"))
    try:
        for epoch in range(config.epochs):
            sampler.set_epoch(epoch)
            batches = training_batches(
                dataset, train_transform, sampler, epoch, config.seed, config.workers
            )
            listeners = [journal, *watch.listeners]
            event = trainer.epoch(epoch, batches, class_of, listeners)
            for name, items in (("train", monitored), ("validation", split.validation)):
                scores = _recall(setting, network, eval_transform, items)
                event[name] = event.get(name, {}) | scores
            value = event["validation"][SELECT_BY]
            event["best"] = value > best["value"]
            if event["best"]:
                best |= {"epoch": epoch, "value": value}
                folder.write_tensors("weights.safetensors", network.state_dict())
                folder.write_tensors("objective.safetensors", objective.state_dict())
                folder.write_json("selection.json", best)
            journal(event)
            watch.tell(event)
    finally:
        journal.close()
    return best


def judge(
    setting: Setting,
    folder: RunFolder,
    selection: dict[str, Any],
    purpose: str,
    watch: Watch | None = None,
) -> dict[str, Any]:
    """Reads the test classes: the selected network beside the untrained one and raw pixels."""
    watch = watch or Watch()
    config, split = setting.config, setting.split
    folder.note_test_read(purpose, config.hash())
    network = build.network(config).to(setting.device)
    _, transform = build.picture_transforms(config, network)
    spaces = {
        "untrained": _embed(setting, network, transform, split.test, watch.of("untrained network")),
        "pixels": _pixels(setting.dataset, split.test, watch.of("raw pixels")),
    }
    network.load_state_dict(folder.read_tensors("weights.safetensors"))
    trained = _embed(setting, network, transform, split.test, watch.of("trained network"))
    spaces = {"trained": trained, **spaces}
    labels = torch.from_numpy(setting.dataset.labels[split.test])
    scores = {
        name: evaluate(
            space,
            labels,
            metrics=tuple(config.metrics),
            normalise=config.normalise or name != "trained",
            seed=config.seed,
            progress=watch.of(f"judging {name}"),
        )
        for name, space in spaces.items()
    }
    result = describe(setting) | {
        "config_hash": config.hash(),
        "scores": {name: score.to_dict() for name, score in scores.items()},
        "seed": config.seed,
        "selection": selection,
    }
    _keep_embeddings(folder, trained, labels, split.test, scores)
    folder.write_json("result.json", result)
    folder.note_end()
    return result


def reopen(path: Path, watch: Watch | None = None) -> tuple[Setting, RunFolder]:
    """The setting of a stored run."""
    folder = RunFolder(path)
    if not folder.is_started:
        raise ValueError(f"{path} is not a run: it has no config.toml. `unseen train` makes one.")
    return prepare(configs.make(configs.load(folder.file("config.toml"))), watch), folder


def changed_keys(folder: RunFolder, config: Config) -> list[str]:
    """Keys whose values differ between a stored run and a config."""
    stored = configs.make(configs.load(folder.file("config.toml")))
    return [key for key in Config.model_fields if getattr(stored, key) != getattr(config, key)]


def steps_per_epoch(setting: Setting) -> int:
    """Batches in an epoch."""
    return len(build.sampler(setting.config, setting.split.train, setting.dataset.labels))


def describe(setting: Setting) -> dict[str, Any]:
    """Data and split in counts and fingerprints."""
    dataset, split = setting.dataset, setting.split
    parts = {"train": split.train, "validation": split.validation, "test": split.test}
    counts: dict[str, Any] = {f"{name}_items": len(items) for name, items in parts.items()}
    for name, items in parts.items():
        counts[f"{name}_classes"] = len(np.unique(dataset.labels[items]))
    counts["hash"] = split_hash(split)
    data = dataset.describe() | {"name": dataset.name, "fingerprint": dataset.fingerprint()}
    return {"data": data, "split": counts}


def split_hash(split: Split) -> str:
    """Changes when any item changes its part."""
    digest = hashlib.sha256()
    for items in (split.train, split.validation, split.test):
        digest.update(len(items).to_bytes(8, "little") + np.ascontiguousarray(items).tobytes())
    return digest.hexdigest()[:16]


def training_classes(labels: IntArray, train: IntArray) -> Tensor:
    """For each label of the data set its training class 0..C-1, or -1."""
    class_of = np.full(int(labels.max()) + 1, -1, dtype=np.int64)
    classes = np.unique(labels[train])
    class_of[classes] = np.arange(len(classes))
    return torch.from_numpy(class_of)


def _monitored(train: IntArray, labels: IntArray, seed: int) -> IntArray:
    """Whole training classes, chosen at random, up to MONITORED pictures."""
    classes = np.random.default_rng([seed, 1]).permutation(np.unique(labels[train]))
    sizes = np.bincount(labels[train])[classes]
    kept = classes[: max(2, int(np.searchsorted(np.cumsum(sizes), MONITORED)))]
    return train[np.isin(labels[train], kept)]


def _embed(
    setting: Setting,
    network: EmbeddingNetwork,
    transform: Any,
    items: IntArray,
    progress: Callable[[int, int], None] | None = None,
) -> Tensor:
    config = setting.config
    assert isinstance(config.workers, int)
    batches = evaluation_batches(setting.dataset, items, transform, 256, config.workers)
    return embed(network, batches, len(items), setting.device, progress)


def _recall(
    setting: Setting, network: EmbeddingNetwork, transform: Any, items: IntArray
) -> dict[str, float]:
    """Recall@1 among some items; a quick look between epochs, without intervals."""
    embeddings = _embed(setting, network, transform, items)
    labels = torch.from_numpy(setting.dataset.labels[items])
    score = evaluate(
        embeddings,
        labels,
        metrics=(SELECT_BY,),
        normalise=setting.config.normalise,
        resamples=0,
    )
    return {SELECT_BY: score.values[SELECT_BY].value}


def _pixels(
    dataset: Dataset, items: IntArray, progress: Callable[[int, int], None]
) -> Tensor:  # [n, 3 * side * side]
    """Pictures as they are, scaled down: what any network must beat."""
    half = (0.5, 0.5, 0.5)
    _, transform = transforms.named("small", PIXEL_SIDE, half, half)
    parts = []
    for batch in evaluation_batches(dataset, items, transform, 256, 0):
        parts.append(batch.images.flatten(1))
        progress(sum(len(part) for part in parts), len(items))
    return torch.cat(parts)


def _keep_embeddings(
    folder: RunFolder,
    embeddings: Tensor,
    labels: Tensor,
    items: IntArray,
    scores: dict[str, Evaluation],
) -> None:
    """The trained embeddings, and every method's value per query for paired comparisons."""
    folder.write_arrays(
        "embeddings/test.npz",
        embeddings=embeddings.numpy(),
        labels=labels.numpy(),
        indices=items,
    )
    folder.write_arrays(
        "embeddings/per_query.npz",
        **{
            f"{row}/{metric}": values.numpy()
            for row, score in scores.items()
            for metric, values in score.per_query.items()
        },
    )
