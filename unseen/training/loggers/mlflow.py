"""MLflow, experiment `unseen`: on the server MLFLOW_TRACKING_URI names, or in `mlflow.db` of the
run's folder."""

import logging
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unseen.training.loggers import remember, remembered, run_name

EXPERIMENT = "unseen"


class Mlflow:
    """One run there for one run here. Its names have no @: recall@1 is recall_at_1."""

    def __init__(self, folder: Path, config: Mapping[str, Any]) -> None:
        from mlflow.entities import Metric, Param  # noqa: PLC0415
        from mlflow.tracking import MlflowClient  # noqa: PLC0415

        logging.getLogger("mlflow").setLevel(logging.WARNING)  # it tells of every table it makes
        self.metric = Metric
        place = (
            os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{folder.resolve() / 'mlflow.db'}"
        )
        self.client: Any = MlflowClient(tracking_uri=place)
        known = remembered(folder, "mlflow")
        if known is None:
            result = self.client.get_experiment_by_name(EXPERIMENT)
            experiment = (
                result.experiment_id if result else self.client.create_experiment(EXPERIMENT)
            )
            known = self.client.create_run(experiment, run_name=run_name(folder)).info.run_id
            remember(folder, "mlflow", known)
            params = [Param(key, str(value)[:500]) for key, value in config.items()]
            self.client.log_batch(known, params=params)
        self.run_id = known
        self.client.update_run(known, status="RUNNING")

    def __call__(self, numbers: Mapping[str, float], step: int) -> None:
        now = int(1000 * time.time())
        metrics = [
            self.metric(name.replace("@", "_at_"), value, now, step)
            for name, value in numbers.items()
        ]
        self.client.log_batch(self.run_id, metrics=metrics)

    def close(self) -> None:
        self.client.set_terminated(self.run_id)


def open_logger(folder: Path, config: Mapping[str, Any], step: int) -> Mlflow:
    return Mlflow(folder, config)
