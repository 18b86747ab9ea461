"""Large pictures go through a network a few at a time; nothing is lost or reordered."""

import pytest
import torch

from unseen.networks.portions import portions


@pytest.mark.parametrize(
    ("shape", "sizes"),
    [
        ((45, 3, 224, 224), [20, 20, 5]),
        ((256, 1, 64, 64), [256]),
        ((2, 1, 1100, 1100), [1, 1]),
        ((300, 16), [300]),
    ],
)
def test_parts_of_a_batch(shape, sizes):
    images = torch.zeros(1).expand(shape)
    assert [len(part) for part in portions(images)] == sizes


def test_in_order():
    images = torch.arange(6.0)[:, None, None, None].expand(6, 1, 724, 724)
    assert torch.equal(torch.cat(portions(images)), images)
