"""Unseen: deep metric learning that is judged on classes it has never seen."""

from unseen.evaluation.evaluate import evaluate

__all__ = ["evaluate"]
