"""What every diagnostic makes of every kind of relevance: a new file is covered by being there."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from unseen.core import registry
from unseen.core.relevance import KINDS, LabelSets, Relevance

NAMES = registry.names("diagnostics")
BY_PAIR = ("pair_weights",)  # what is the same decides, not a class
CLASSES = torch.arange(24) % 6
X = torch.randn(24, 5, generator=torch.Generator().manual_seed(0))


def same(one: Any, two: Any) -> bool:
    return all(
        np.array_equal(np.asarray(one[key]), np.asarray(two[key]), equal_nan=True) for key in one
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMES)
def test_every_kind_is_looked_at_by_class(
    name: str, kind: str, kinds: Callable[[Tensor], dict[str, Relevance]]
) -> None:
    diagnostic = registry.create("diagnostics", name)
    relevance = kinds(CLASSES)[kind]
    result = diagnostic(X, relevance.of(torch.arange(24)))
    if name not in BY_PAIR or kind in ("labels", "levels"):
        assert same(result, diagnostic(X, CLASSES))
        return
    relation = relevance.of(torch.arange(24)).to()
    numbers = [int(mask.triu(1).sum()) for mask in (relation.same, relation.different)]
    sides = [result["positive_weight"], result["negative_weight"]]
    assert [len(side) for side in sides] == numbers
    assert all(side.isfinite().all() for side in sides)


@pytest.mark.parametrize("name", NAMES)
def test_without_classes_it_is_refused_or_no_label_is_looked_at(name: str) -> None:
    diagnostic = registry.create("diagnostics", name)
    sets = LabelSets(np.stack([CLASSES, CLASSES + 6], axis=1)).of(torch.arange(24))
    try:
        result = diagnostic(X, sets)
    except ValueError as error:
        assert "diagnostics go by class, and the label_sets do not say which" in str(error)  # noqa: PT017
        return
    assert same(result, diagnostic(X, CLASSES))
