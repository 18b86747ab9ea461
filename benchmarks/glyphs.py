"""Short, real runs on the built-in characters: every loss, regularizer and sampler, same budget.

    python benchmarks/glyphs.py losses|regularizers|samplers [--out DIR] [--epochs 4] [--seeds 3]

Every run has the same data (32 px), network, number of steps, learning rate and one thread; two run
at a time. A run that is finished is not repeated, so the command can be stopped and started again.
The table gives the mean over seeds with a 95 % t-interval: recall@1 on the classes trained on and
on the test classes, and the spectral decay of the training embeddings (higher: fewer directions
used).
"""

import argparse
import multiprocessing
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from unseen.config import build
from unseen.config import schema as configs
from unseen.core import registry
from unseen.core.statistics import over_seeds
from unseen.diagnostics.spectrum import Spectrum
from unseen.runs.prepare import prepare
from unseen.runs.run import train_and_evaluate
from unseen.training import event_log
from unseen.training.events import Epoch
from unseen.training.run_folder import RunFolder
from unseen.training.selected_weights import read_selection

REGULARIZED = {
    "none": [],
    "rho switch 0.35": ["miner.switch=0.35"],
    "density": ['regularizers=[{name="density", weight=10.0}]'],
    "horde": ['regularizers=[{name="horde", weight=1.0, dimension=1024, num_orders=3}]'],
    "entropy": ['regularizers=[{name="entropy", weight=0.1}]'],
    "orthogonal": ['regularizers=[{name="global_orthogonal", weight=1.0}]'],
}


@dataclass(frozen=True)
class Job:
    """One run: its name, its settings, where it goes."""

    name: str
    words: tuple[str, ...]
    folder: Path
    seed: int


def settings(table: str) -> dict[str, list[str]]:
    """The rows of a table as overrides of the default config."""
    if table == "losses":
        return {name: [f"loss={name}"] for name in registry.names("losses")}
    if table == "samplers":
        names = registry.names("samplers")
        return {name: ["loss=margin", f"sampler={name}"] for name in names}
    return {
        f"{loss}, {name}": [f"loss={loss}", "miner=distance_weighted", *words]
        for loss in ("margin", "contrastive", "triplet")
        for name, words in REGULARIZED.items()
    }


def finish(job: Job) -> tuple[str, dict[str, float]]:
    """Runs a job, or reads it back."""
    torch.set_num_threads(1)
    folder = RunFolder(job.folder)
    if not folder.file("row.json").exists():
        began = time.perf_counter()
        context = prepare(configs.make(configs.override({}, list(job.words))))
        result = train_and_evaluate(context, job.folder, "benchmarks/glyphs.py")
        network = build.network(context.config)
        network.load_state_dict(folder.read_tensors("weights.safetensors"))
        _, transform = build.image_transforms(context.config, network)
        seen = context.embed(network, transform, context.split.train)
        labels = torch.from_numpy(context.dataset.labels[context.split.train])
        events = event_log.read(folder.file("events.jsonl"))
        epochs = {event.epoch: event for event in events if isinstance(event, Epoch)}
        row = {
            "seen": epochs[read_selection(folder).epoch].train["recall@1"],
            "test": result.scores["trained"].metrics["recall@1"].value,
            "decay": float(Spectrum()(seen, labels)["rho"]),
            "seconds": time.perf_counter() - began,
        }
        folder.write_json("row.json", row)
    return job.name, folder.read_json("row.json")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", choices=["losses", "regularizers", "samplers"])
    parser.add_argument("--out", type=Path, default=Path("runs/benchmarks"))
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    common = [f"epochs={options.epochs}", "data.size=32", 'metrics=["recall@1"]']
    jobs = [
        Job(
            name,
            (*words, *common, f"seed={seed}"),
            options.out / options.table / f"{name}-{seed}".replace(" ", "_"),
            seed,
        )
        for seed in range(options.seeds)
        for name, words in settings(options.table).items()
    ]
    rows: dict[str, list[dict[str, Any]]] = {}
    with multiprocessing.get_context("spawn").Pool(2, maxtasksperchild=8) as pool:
        for done, (name, row) in enumerate(pool.imap_unordered(finish, jobs), 1):
            rows.setdefault(name, []).append(row)
            print(f"{done}/{len(jobs)} {name}: {100 * row['test']:.1f}", flush=True)
    print_table(rows)


def print_table(rows: dict[str, list[dict[str, Any]]]) -> None:
    print(
        "\n| method | test R@1 | seen R@1 | spectral decay | seconds a run |\n|---|---|---|---|---|"
    )
    for name, values in sorted(
        rows.items(), key=lambda row: -sum(value["test"] for value in row[1]) / len(row[1])
    ):
        cells = []
        for key, factor, digits in (("test", 100, 1), ("seen", 100, 1), ("decay", 1, 3)):
            spread = over_seeds([factor * value[key] for value in values])
            half = (spread.high - spread.low) / 2
            cells.append(f"{spread.mean:.{digits}f} ± {half:.{digits}f}")
        seconds = sorted(value["seconds"] for value in values)[len(values) // 2]
        print(f"| {name} | {' | '.join(cells)} | {seconds:.0f} |")


if __name__ == "__main__":
    main()
