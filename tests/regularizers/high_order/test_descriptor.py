"""All orders as a descriptor, against scikit-learn's principal components."""

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA
from torch import Tensor, nn

from unseen.core.contracts import Output
from unseen.losses.multi_similarity import MultiSimilarityLoss
from unseen.regularizers.high_order.descriptor import OrdersDescriptor
from unseen.regularizers.horde import HordeRegularizer


class Maps(nn.Module):
    """A network that hands on its input as maps."""

    def forward(self, images: Tensor) -> Output:
        pooled = images.mean(dim=(2, 3))
        return Output(pooled[:, :4], pooled, images)


def orders(size: int = 6) -> OrdersDescriptor:
    horde = HordeRegularizer(lambda _: MultiSimilarityLoss(), None, 5, 4, num_orders=3, dimension=8)
    return OrdersDescriptor(Maps(), horde, size)


def images(number: int = 40) -> Tensor:
    return torch.rand(number, 5, 3, 3, generator=torch.Generator().manual_seed(0))


@torch.no_grad()
def test_before_fitting_all_orders_side_by_side() -> None:
    result = orders()(images()).embeddings  # 4 values for each of 3 orders
    assert result.shape == (40, 12)
    assert torch.allclose(result.view(40, 3, 4).norm(dim=2), torch.ones(40, 3), atol=1e-5)


@torch.no_grad()
def test_equals_principal_components() -> None:
    descriptor = orders()
    everything = descriptor(images()).embeddings
    descriptor.fit(everything)
    result = descriptor(images()).embeddings.double().numpy()
    expected = PCA(6).fit_transform(everything.double().numpy())
    signs = np.sign((result * expected).sum(axis=0))
    assert result == pytest.approx(signs * expected, abs=1e-5)


def test_fewer_items_than_values_by_the_other_matrix() -> None:
    """9 items of 20 values: as the singular vectors of the items say; no more than 8 directions."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(9, 20, generator=generator, dtype=torch.float64)
    for size, directions in ((6, 6), (50, 8)):
        descriptor = orders(size)
        descriptor.fit(rows)
        mean = sum(rows[i] for i in range(9)) / 9
        expected = torch.linalg.svd(rows - mean)[2][:directions]
        signs = (descriptor.components * expected).sum(dim=1, keepdim=True).sign()
        assert torch.allclose(descriptor.mean, mean)
        assert torch.allclose(descriptor.components, signs * expected, atol=1e-9)
        assert descriptor.embedding_size == directions


@torch.no_grad()
def test_what_is_stored_brings_it_back_without_the_losses() -> None:
    first, second = orders(), orders()
    first.fit(first(images()).embeddings)
    state = first.own_state()
    assert not [name for name in state if "losses" in name or name.startswith("network")]
    for parameter in second.parameters():
        parameter.fill_(0.5)
    second.load_own_state(state)
    assert torch.equal(first(images()).embeddings, second(images()).embeddings)


def test_no_more_components_than_values() -> None:
    descriptor = orders(size=50)
    with torch.no_grad():
        descriptor.fit(descriptor(images()).embeddings)
    assert descriptor.components.shape == (12, 12)
