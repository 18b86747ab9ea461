"""A training step that broke, stored in one file and repeated at will."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from torch import Tensor

from unseen.config import build
from unseen.config import schema as configs
from unseen.config.schema import ResolvedConfig
from unseen.core import read_limits
from unseen.core.contracts import Batch
from unseen.core.relevance import Grades, Relevance
from unseen.models.layer_outputs import hooked
from unseen.training.run_folder import RunFolder
from unseen.training.step_checks import NonFiniteStepError
from unseen.training.trainer import Trainer

FILE = "broken_step.pt"


@dataclass
class Replayed:
    """`why`: what broke again, None where nothing did. `layer`: the first whose output is not
    finite. `parameters`: those whose gradient is not finite. `indices`: the images."""

    step: int
    indices: list[int]
    why: str | None = None
    layer: str | None = None
    terms: dict[str, float] = field(default_factory=dict)
    parameters: list[str] = field(default_factory=list)


def keep_bad_step(
    folder: RunFolder,
    config: ResolvedConfig,
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
    """Who is the same as whom among the images of a batch and of the memory."""
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
        result: Tensor = grades[torch.searchsorted(items, rows), torch.searchsorted(items, columns)]
        return result

    return Grades(among, state["least"])


def replay(path: Path) -> Replayed:
    """Repeats the step of a reproduction file; nothing is written.

    The file holds the settings, the batch, and the weights and random states from before the
    step; neither the data nor the run are needed.

    Example:
        replay(Path("runs/x/broken_step.pt")).why
    """
    state = _read(path)
    config = configs.make_resolved(configs.parse(state["config"])).with_values({"weights": None})
    components = build.build(config, state["num_classes"], steps_per_epoch=1)
    network, objective, trainer = components.network, components.objective, components.trainer
    objective.relevance = _relevance(state)
    components.model.load_state_dict(state["network"])
    objective.load_state_dict(state["objective"])
    objective.load_miner_state(state["miner"])
    trainer.place.step = state["step"]
    batch = Batch(**state["batch"])
    result = Replayed(state["step"], batch.indices.tolist())
    try:
        with _watched(network, batch.images, result):
            every_class = torch.arange(state["num_classes"])
            trainer.epoch([batch], every_class, lambda event: result.terms.update(event.terms))
    except NonFiniteStepError as error:
        result.why, result.terms = error.why, error.terms
    named = [*network.named_parameters(), *objective.named_parameters()]
    result.parameters = [name for name, p in named if p.grad is not None and not _finite(p.grad)]
    return result


@contextmanager
def _watched(network: Any, images: Tensor, result: Replayed) -> Iterator[None]:
    """Notes the first layer that gives something not finite."""

    def check(name: str, output: Any) -> None:
        if result.layer is None and isinstance(output, Tensor) and not _finite(output):
            result.layer = name

    check("the images themselves", images)
    with hooked(network.named_layers(), check):
        yield


def _finite(tensor: Tensor) -> bool:
    values = tensor.coalesce().values() if tensor.is_sparse else tensor
    return bool(values.isfinite().all())


def _read(path: Path) -> dict[str, Any]:
    state: Any = None
    with path.open("rb") as stream, suppress(UnpicklingError, RuntimeError, EOFError):
        read_limits.check_zip(stream, path)
        state = torch.load(stream, weights_only=True)
    if not isinstance(state, dict) or "batch" not in state:
        raise ValueError(f"{path} is no file of a bad step")
    return state
