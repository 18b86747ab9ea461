"""Weights & Biases, project `unseen`; WANDB_MODE=offline and its other variables hold."""

import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unseen.training.loggers import remember, remembered, run_name


class WeightsAndBiases:
    """One run there for one run here; `step` is the axis of all curves."""

    def __init__(self, folder: Path, config: Mapping[str, Any]) -> None:
        import wandb  # noqa: PLC0415

        known = remembered(folder, "wandb") or uuid.uuid4().hex
        remember(folder, "wandb", known)
        self.run: Any = wandb.init(
            project="unseen",
            id=known,
            name=run_name(folder),
            resume="allow",
            dir=str(folder),
            config=dict(config),
            settings=wandb.Settings(silent=True),
        )
        self.run.define_metric("*", step_metric="step")

    def __call__(self, numbers: Mapping[str, float], step: int) -> None:
        self.run.log({**numbers, "step": step})

    def close(self) -> None:
        self.run.finish()


def open_logger(folder: Path, config: Mapping[str, Any], step: int) -> WeightsAndBiases:
    return WeightsAndBiases(folder, config)
