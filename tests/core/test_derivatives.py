import pytest
import torch

from unseen.core.geometry import dot


def test_rows_changed_after_the_value_give_no_wrong_gradient() -> None:
    rows = torch.ones(2, 3, requires_grad=True) * 1
    products = dot(rows).sum()
    rows.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        products.backward()


def test_a_graph_is_gone_after_its_gradient() -> None:
    products = dot(torch.ones(2, 3, requires_grad=True)).sum()
    products.backward()
    with pytest.raises(RuntimeError, match="a second time"):
        products.backward()
