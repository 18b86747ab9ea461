"""What each of two processes runs for test_processes.py; rank 0 leaves what it found in a file.

Run as `python two_processes.py FOLDER RUNS` with the variables torchrun sets.
"""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch

from unseen.config import schema as configs
from unseen.core import custom_components, registry
from unseen.runs import callbacks
from unseen.runs.evaluate_run import evaluate_run
from unseen.runs.prepare import Callbacks, RunContext, prepare
from unseen.runs.run import begin, train_and_evaluate
from unseen.runs.training_loop import TrainingLoop
from unseen.training.distributed import Processes, joined
from unseen.training.events import Event, Step
from unseen.training.gradients import WholeBatch
from unseen.training.objective import MinedObjective
from unseen.training.optimizers import SHARDED, ScheduledOptimizer, constant
from unseen.training.result import Result
from unseen.training.run_folder import RunFolder

sys.path.insert(0, str(Path(__file__).parent))
from test_gradients import (
    CLASSES,
    LABELS,
    OBJECTIVES,
    SIZE,
    TinyNetwork,
    gradients_of,
    make_objective,
)

RUN = [  # settings that the command line repeats
    "data.max_classes=24",
    "data.size=16",
    "batch_size=15",
    "embedding_size=16",
    "epochs=2",
    "sampler.per_class=3",
    "sampler.steps=4",
    "workers=0",
    "threads=1",
    "loss=margin",
    "memory.size=30",
    'metrics=["recall@1"]',
]

DIVIDED_RUN = [
    *("loss=arcface", "loss.sample_rate=0.5", "memory=none"),
    'sampler={name="hard_neighbors", per_class=3, search_every=2}',
]


def main(folder: Path, number: int) -> None:
    torch.set_num_threads(1)
    os.chdir(folder)
    callbacks.SECONDS_BETWEEN_CHECKPOINTS = 0.0
    with joined("cpu") as processes:
        result: dict[str, Any] = {"gradients": gradients(processes) | centers(processes)}
        result["runs"] = runs(processes, folder, number)
        result["resumed"] = resumed(processes, folder)
        if number > 1:
            result["resumed"] &= resumed(processes, folder / "divided", *DIVIDED_RUN)
        write(processes, folder, result)
        result["lost"] = lost(processes, folder)  # rank 1 ends here
        write(processes, folder, result)
        os._exit(0)  # nobody is left to say goodbye to


def write(processes: Processes, folder: Path, result: dict[str, Any]) -> None:
    if processes.is_first:
        (folder / "found.json").write_text(json.dumps(result))


def gradients(processes: Processes) -> dict[str, float]:
    """The largest difference between two processes and one with the whole batch, over several
    steps, so that miners and memories go on alike."""
    result = {}
    for name in OBJECTIVES:
        for micro_batch in (None, 4):
            alone, shared = (
                WholeBatch(TinyNetwork(), make_objective(name), who, micro_batch)
                for who in (None, processes)
            )
            differences = [step_difference(alone, shared, seed) for seed in range(3)]
            result[f"{name} {micro_batch}"] = max(differences)
    return result


def step_difference(alone: WholeBatch, shared: WholeBatch, seed: int) -> float:
    number = len(LABELS) - seed  # also numbers that two does not divide
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn(number, 3, 6, 6, dtype=torch.float64, generator=generator)
    batch = (images, LABELS[:number], torch.arange(number))
    own = shared.processes.fraction(number)
    for step in (alone, shared):
        step.network.zero_grad()
        step.objective.zero_grad()
    expected = alone(*batch, seed)
    got = shared(*(part[own] for part in batch), seed)
    assert torch.equal(got.indices, expected.indices)
    pairs = [
        (got.terms["total"].detach(), expected.terms["total"].detach()),
        (got.embeddings, expected.embeddings),
        (
            gradients_of(shared.network, shared.objective),
            gradients_of(alone.network, alone.objective),
        ),
    ]
    return max(float((a - b).abs().max()) for a, b in pairs)


def centers(processes: Processes) -> dict[str, float]:
    """The same of losses whose class centres are divided, against one process that holds all."""
    result = {}
    for name, rate in (("normalized_softmax", 0.4), ("arcface", 1.0), ("proxy_anchor", 0.5)):
        alone, shared = (
            WholeBatch(TinyNetwork(), MinedObjective(center_loss(name, rate, who)), who)
            for who in (None, processes)
        )
        (rows,) = shared.objective.sharded().values()
        for seed in range(3):
            result[f"{name} {seed}"] = center_difference(alone, shared, rows, seed)
    return result


def center_loss(name: str, rate: float, shards: Processes | None) -> Any:
    torch.manual_seed(0)
    context = {"num_classes": CLASSES, "embedding_size": SIZE, "shards": shards}
    return registry.create("losses", name, {"sample_rate": rate}, **context).double()


def center_difference(alone: WholeBatch, shared: WholeBatch, rows: slice, seed: int) -> float:
    """Gradients of the network and of the rows that are here, and a step of both."""
    (whole,), (part,) = (list(step.objective.parameters()) for step in (alone, shared))
    descents = [
        scheduled_optimizer_of(alone, False, Processes()),
        scheduled_optimizer_of(shared, True, shared.processes),
    ]
    images = torch.randn(
        15, 3, 6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
    )
    for step, scheduled_optimizer in zip((alone, shared), descents, strict=True):
        scheduled_optimizer.zero()
        own = step.processes.fraction(15)
        step(images[own], LABELS[:15][own], torch.arange(15)[own], seed)
    pairs = [(gradients_of(shared.network), gradients_of(alone.network))]
    pairs += [(part.grad.to_dense(), whole.grad.to_dense()[rows])]
    norms = [torch.tensor(scheduled_optimizer.step(0)) for scheduled_optimizer in descents]
    pairs += [(norms[0], norms[1]), (part.detach(), whole.detach()[rows])]
    difference = max(float((a - b).abs().max()) for a, b in pairs)
    return float(shared.processes.largest(torch.tensor(difference)))


def scheduled_optimizer_of(
    step: WholeBatch, sharded: bool, processes: Processes
) -> ScheduledOptimizer:
    groups = [
        {"params": list(step.network.parameters())},
        {"params": list(step.objective.parameters()), SHARDED: sharded},
    ]
    optimizer = torch.optim.SGD(groups, lr=0.1)
    return ScheduledOptimizer(optimizer, constant(), clip_norm=1e-3, processes=processes)


def setting_of(processes: Processes, *words: str) -> RunContext:
    custom_components.trust([word.partition("=")[2] for word in words])
    config = configs.make(configs.override({}, [*RUN, *words]))
    return prepare(config, processes=processes)


def runs(processes: Processes, folder: Path, number: int) -> dict[str, dict[str, float]]:
    """So many kinds of whole runs: are all processes in the same state, and how far are they from
    one alone?"""
    cases = {
        "chunks, density, bank": [
            "micro_batch=4",
            'regularizers=["density"]',
            'sampler={name="greedy_coreset", per_class=3, pool_size=60}',
        ],
        "frozen layers": ["freeze_until=stage1", "cached_augmentations=2", "descriptor=best"],
        "class centres, hard neighbours": DIVIDED_RUN,
        # its batch norm stays as it is, otherwise several processes would be refused
        "adapters": ["backbone=./body.py:Body", "image_size=16", "adapter=lora"],
        # too few classes to select by: what is compared are the last weights
        "grades": [
            *("relevance.grades=./grades.py:near", "loss=graded_supcon", "miner=none"),
            "validation_fraction=0.1",
        ],
    }
    chosen = list(cases.items())[:number]
    return {name: compare(processes, folder / name, words) for name, words in chosen}


def compare(processes: Processes, folder: Path, words: list[str]) -> dict[str, float]:
    both = setting_of(processes, *words)
    place = RunFolder(folder / "two", processes)
    begin(both, place, "test")
    fit = TrainingLoop(both, place, Callbacks())
    fit.run()
    result = evaluate_run(both, place, fit.selection, "test", Callbacks())
    objective = fit.trainer.objective
    alike = [p for n, p in objective.named_parameters() if n not in objective.sharded()]
    state = torch.cat([p.detach().flatten() for p in [*fit.network.parameters(), *alike]])
    every = processes.gather(state[None], [1, 1])
    matches = {"ranks": float((every[0] - every[1]).abs().max())}
    if processes.is_first:
        one = train_and_evaluate(setting_of(Processes(), *words), folder / "one", "test")
        weights = [
            RunFolder(folder / n).read_tensors("weights.safetensors") for n in ("one", "two")
        ]
        matches["weights"] = max(
            float((weights[0][k] - weights[1][k]).abs().max()) for k in weights[0]
        )
        matches["recall"] = abs(recall_of(one) - recall_of(result))
    processes.wait()
    return matches


def recall_of(result: Result) -> float:
    return result.scores["trained"].metrics["recall@1"].value


class StoppedError(Exception):
    """A stop at a chosen step, in all processes."""


def resumed(processes: Processes, folder: Path, *words: str) -> bool:
    """Bit for bit the run that was never stopped, which the command line is compared with too."""

    def stop(event: Event) -> None:
        if isinstance(event, Step) and event.step == 6:
            raise StoppedError

    context = setting_of(processes, *words)
    train_and_evaluate(context, folder / "whole", "test")
    try:
        train_and_evaluate(context, folder / "parts", "test", Callbacks([stop]))
    except StoppedError:
        train_and_evaluate(context, folder / "parts", "test")
    names = ("result.json", "weights.safetensors", "objective.safetensors")
    files = [[(folder / run / name).read_bytes() for name in names] for run in ("whole", "parts")]
    return files[0] == files[1]


def lost(processes: Processes, folder: Path) -> str:
    """What the first process is told when the other is killed in the middle of an epoch."""

    def die(event: Event) -> None:
        if not processes.is_first and isinstance(event, Step) and event.step == 5:
            os.kill(os.getpid(), signal.SIGKILL)

    try:
        train_and_evaluate(setting_of(processes), folder / "killed", "test", Callbacks([die]))
    except ConnectionError as error:
        return str(error)
    return "nothing"


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
