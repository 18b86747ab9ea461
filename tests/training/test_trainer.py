"""How the trainer lays images and weights into memory."""

import pytest
import torch
from torch import nn

from unseen.losses.multi_similarity import MultiSimilarityLoss
from unseen.training import optimizers
from unseen.training.objective import MinedObjective
from unseen.training.optimizers import ScheduledOptimizer, create_optimizer
from unseen.training.trainer import Trainer

CPU = torch.device("cpu")


def trainer(*layers: nn.Module) -> Trainer:
    network = nn.Sequential(*layers)
    still = create_optimizer("sgd", [{"params": network.parameters(), "lr": 0.0}], 0.0)
    objective = MinedObjective(MultiSimilarityLoss())
    return Trainer(
        network, objective, ScheduledOptimizer(still, optimizers.constant()), CPU, seed=0
    )


@pytest.mark.parametrize(
    "usual", [nn.Conv2d(16, 32, 1, 2), nn.Conv2d(3, 16, 1), nn.Conv2d(3, 16, 3, 2)]
)
def test_images_lie_with_channels_last(usual: nn.Module) -> None:
    assert trainer(usual).layout is torch.channels_last


@pytest.mark.parametrize("channels", [2, 3, 15])
def test_but_not_where_torch_would_end_the_process(channels: int) -> None:
    made = trainer(nn.Conv2d(3, channels, 3), nn.Conv2d(channels, 16, 1, 2))
    assert made.layout is torch.contiguous_format
