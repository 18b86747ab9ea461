"""The head: sizes, starting values, and its raw output."""

import pytest
import torch

from unseen.models.head import Head


def test_linear_by_default():
    head, pooled = Head(6, 4), torch.randn(3, 6)
    torch.testing.assert_close(head(pooled), pooled @ head.fc1.weight.T + head.fc1.bias)


def test_hidden_layers_have_relu_between():
    head, pooled = Head(6, 4, [5, 7]), torch.randn(3, 6)
    x = torch.relu(head.fc1(pooled))
    x = torch.relu(head.fc2(x))
    torch.testing.assert_close(head(pooled), head.fc3(x))
    assert (head(torch.randn(100, 6)) < 0).any()


def test_no_layer_at_all():
    head, pooled = Head(6, None), torch.randn(3, 6)
    assert torch.equal(head(pooled), pooled)
    assert head.embedding_size == 6
    assert not list(head.parameters())


def test_starts():
    head = Head(400, 1000, start="kaiming")
    assert head.fc1.weight.std().item() == pytest.approx((2 / 1000) ** 0.5, rel=0.02)
    assert not head.fc1.bias.any()
    assert Head(6, 4, bias=False).fc1.bias is None
    Head(6, 4, bias=False, start="kaiming")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hidden": [0]}, "layer sizes must be positive"),
        ({"dropout": 1.0}, r"dropout must be in \[0, 1\)"),
        ({"start": "zero"}, "start must be one of default, kaiming, principal"),
    ],
)
def test_bad_values(options, message):
    with pytest.raises(ValueError, match=message):
        Head(6, 4, **options)


def test_principal_directions_are_those_of_the_unit_descriptors():
    generator = torch.Generator().manual_seed(0)
    pooled = torch.randn(50, 6, generator=generator) @ torch.randn(6, 6, generator=generator) + 1
    head = Head(6, 3, start="principal")
    head.start_from(pooled)
    rows = pooled.double() / pooled.double().norm(dim=1, keepdim=True)
    expected = torch.linalg.svd(rows)[2][:3]
    agreement = (head.fc1.weight.double() * expected).sum(1).abs()  # a direction has no sign
    torch.testing.assert_close(agreement, torch.ones(3, dtype=torch.float64))
    assert not head.fc1.bias.any()


def test_as_many_directions_as_features_keep_every_cosine():
    pooled = torch.randn(4, 6, generator=torch.Generator().manual_seed(1))  # fewer items, too
    head = Head(6, 6, bias=False, start="principal")
    head.start_from(pooled)
    torch.testing.assert_close(head(pooled) @ head(pooled).T, pooled @ pooled.T)


@pytest.mark.parametrize(("size", "hidden"), [(7, ()), (4, (5,)), (None, ())])
def test_principal_directions_need_one_layer(size, hidden):
    with pytest.raises(ValueError, match="start = principal needs one layer"):
        Head(6, size, hidden, start="principal")
