"""TensorBoard: `tensorboard --logdir runs` shows the curves of all runs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any


class TensorBoard:
    """Writes to `tensorboard/` of the run's folder."""

    def __init__(self, folder: Path, step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415

        self.writer: Any = SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1)

    def __call__(self, numbers: Mapping[str, float], step: int) -> None:
        for name, value in numbers.items():
            self.writer.add_scalar(name, value, step)

    def close(self) -> None:
        self.writer.close()


def open_logger(folder: Path, config: Mapping[str, Any], step: int) -> TensorBoard:
    return TensorBoard(folder, step)
