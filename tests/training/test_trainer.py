"""How the trainer lays pictures and weights into memory."""

import pytest
import torch
from torch import nn

from unseen.losses.multi_similarity import MultiSimilarity
from unseen.objective import MinedObjective
from unseen.training import optimisers
from unseen.training.optimisers import Descent, create_optimiser
from unseen.training.trainer import Trainer

CPU = torch.device("cpu")


def trainer(*layers: nn.Module) -> Trainer:
    network = nn.Sequential(*layers)
    still = create_optimiser("sgd", [{"params": network.parameters(), "lr": 0.0}], 0.0)
    objective = MinedObjective(MultiSimilarity())
    return Trainer(network, objective, Descent(still, optimisers.constant()), CPU, seed=0)


@pytest.mark.parametrize(
    "usual", [nn.Conv2d(16, 32, 1, 2), nn.Conv2d(3, 16, 1), nn.Conv2d(3, 16, 3, 2)]
)
def test_pictures_lie_with_channels_last(usual: nn.Module) -> None:
    assert trainer(usual).layout is torch.channels_last


@pytest.mark.parametrize("channels", [2, 3, 15])
def test_but_not_where_torch_would_end_the_process(channels: int) -> None:
    made = trainer(nn.Conv2d(3, channels, 3), nn.Conv2d(channels, 16, 1, 2))
    assert made.layout is torch.contiguous_format
