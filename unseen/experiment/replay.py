"""A step that broke, kept in one file and repeated at will.

    unseen replay runs/x/broken_step.pt

    from unseen.experiment.replay import replay
    found = replay(Path("runs/x/broken_step.pt"))   # found.why, found.layer, found.terms, ...

The file holds the settings, the batch, and the weights and random states from before the step;
neither the data nor the run are needed.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from torch import Tensor

from unseen import assemble
from unseen import config as configs
from unseen.config import SettledConfig
from unseen.contracts import Batch
from unseen.networks.taps import hooked
from unseen.relevance import Grades, Relevance
from unseen.training.guards import NonFiniteStepError
from unseen.training.run_folder import RunFolder
from unseen.training.trainer import Trainer

FILE = "broken_step.pt"


@dataclass
class Replayed:
    """`why`: what broke again, None where nothing did. `layer`: the first whose output is not
    finite. `parameters`: those whose gradient is not finite. `indices`: the pictures."""

    step: int
    indices: list[int]
    why: str | None = None
    layer: str | None = None
    terms: dict[str, float] = field(default_factory=dict)
    parameters: list[str] = field(default_factory=list)


def keep_bad_step(
    folder: RunFolder,
    config: SettledConfig,
    trainer: Trainer,
    num_classes: int,
    error: NonFiniteStepError,
) -> Path:
    """Writes the reproduction file of a step that has just gone wrong."""
    state = {
        "config": config.to_toml(),
        "num_classes": num_classes,
        "step": error.step,
        "why": error.why,
        "batch": error.batch._asdict(),
        "miner": error.miners,
        "network": trainer.network.state_dict(),
        "objective": trainer.objective_state(),
    } | _relation(trainer, error.batch.indices)
    folder.write_state(FILE, state)
    return folder.file(FILE)


def _relation(trainer: Trainer, indices: Tensor) -> dict[str, Any]:
    """Who is the same as whom among the pictures of a batch and of the memory."""
    objective = trainer.objective
    if objective.relevance is None:
        return {}
    stored = [] if objective.memory is None else [objective.memory.references()[1].cpu()]
    items = torch.cat([indices.cpu(), *stored]).unique()
    grades = objective.relevance.grade(items[:, None], items[None, :])
    return {"items": items, "grades": grades, "least": objective.relevance.least}


def _relevance(state: dict[str, Any]) -> Relevance | None:
    if "grades" not in state:
        return None
    items, grades = state["items"], state["grades"]

    def among(rows: Tensor, columns: Tensor) -> Tensor:
        found: Tensor = grades[torch.searchsorted(items, rows), torch.searchsorted(items, columns)]
        return found

    return Grades(among, state["least"])


def replay(path: Path) -> Replayed:
    """Repeats the step of a reproduction file; nothing is written."""
    state = _read(path)
    config = configs.make_settled(configs.parse(state["config"])).model_copy(
        update={"weights": None}
    )
    made = assemble.assemble(config, state["num_classes"], steps_per_epoch=1)
    network, objective, trainer = made.network, made.objective, made.trainer
    objective.relevance = _relevance(state)
    made.model.load_state_dict(state["network"])
    objective.load_state_dict(state["objective"])
    objective.load_miner_state(state["miner"])
    trainer.place.step = state["step"]
    batch = Batch(**state["batch"])
    found = Replayed(state["step"], batch.indices.tolist())
    try:
        with _watched(network, batch.images, found):
            every_class = torch.arange(state["num_classes"])
            trainer.epoch([batch], every_class, lambda event: found.terms.update(event.terms))
    except NonFiniteStepError as error:
        found.why, found.terms = error.why, error.terms
    named = [*network.named_parameters(), *objective.named_parameters()]
    found.parameters = [name for name, p in named if p.grad is not None and not _finite(p.grad)]
    return found


@contextmanager
def _watched(network: Any, images: Tensor, found: Replayed) -> Iterator[None]:
    """Notes the first layer that gives something not finite."""

    def look(name: str, output: Any) -> None:
        if found.layer is None and isinstance(output, Tensor) and not _finite(output):
            found.layer = name

    look("the pictures themselves", images)
    with hooked(network.named_layers(), look):
        yield


def _finite(tensor: Tensor) -> bool:
    values = tensor.coalesce().values() if tensor.is_sparse else tensor
    return bool(values.isfinite().all())


def _read(path: Path) -> dict[str, Any]:
    try:
        state: dict[str, Any] = torch.load(path, weights_only=True)
    except (UnpicklingError, RuntimeError, EOFError) as error:
        raise ValueError(f"{path} is no file of a bad step") from error
    if not isinstance(state, dict) or "batch" not in state:
        raise ValueError(f"{path} is no file of a bad step")
    return state
