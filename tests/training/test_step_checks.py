"""Broken steps are named; embeddings that are all alike are told from merely similar ones."""

import math

import pytest
import torch

from unseen.core.contracts import Batch
from unseen.training.step_checks import NonFiniteStepError, collapse, trouble_with


def test_what_is_wrong_with_a_step() -> None:
    assert trouble_with(3.0, 2.0) is None
    assert trouble_with(math.nan) == "the loss became nan"
    assert trouble_with(-math.inf) == "the loss became -inf"
    assert trouble_with(2e9) == "the loss exploded to 2e+09"
    assert trouble_with(1.0, math.nan) == "the loss is 1, but its gradient became nan"


def test_a_broken_step_names_step_and_images() -> None:
    batch = Batch(torch.zeros(2, 3), torch.tensor([0, 1]), torch.tensor([41, 7]))
    error = NonFiniteStepError("the loss became nan", 12, batch, {}, {})
    assert str(error).startswith("the loss became nan at step 12: lower lr")
    assert "41, 7" in str(error)


@pytest.mark.parametrize("spread", [1e-7, 1e-3])
def test_alike_embeddings_are_a_collapse(spread: float) -> None:
    embeddings = torch.ones(50, 8) + spread * torch.randn(50, 8)
    assert "all embeddings are alike" in (collapse(embeddings) or "")


def test_similar_embeddings_are_none() -> None:
    assert collapse(torch.ones(50, 8) + 0.1 * torch.randn(50, 8)) is None
    assert collapse(torch.randn(50, 8)) is None
