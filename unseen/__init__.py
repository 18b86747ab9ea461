"""Unseen: deep metric learning that is judged on classes it has never seen."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unseen.evaluation.evaluate import evaluate
    from unseen.experiment.trained import Trained

    load = Trained.open

__all__ = ["evaluate", "load"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """`unseen.evaluate` and `unseen.load` are found when asked for: importing torch takes
    seconds."""
    if name == "evaluate":
        from unseen.evaluation.evaluate import evaluate  # noqa: PLC0415

        return evaluate
    if name == "load":
        from unseen.experiment.trained import Trained  # noqa: PLC0415

        return Trained.open
    raise AttributeError(f"module 'unseen' has no attribute {name!r}")
