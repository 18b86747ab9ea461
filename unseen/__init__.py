"""Unseen: deep metric learning that is judged on classes it has never seen."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unseen.evaluation.evaluate import evaluate

__all__ = ["evaluate"]


def __getattr__(name: str) -> Any:
    """`unseen.evaluate` is found when it is asked for: importing torch takes seconds."""
    if name != "evaluate":
        raise AttributeError(f"module 'unseen' has no attribute {name!r}")
    from unseen.evaluation.evaluate import evaluate  # noqa: PLC0415

    return evaluate
