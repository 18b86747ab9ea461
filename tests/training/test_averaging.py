"""The average of weights equals a loop by hand, is lent and given back, and survives saving."""

import pytest
import torch
from torch import nn

from unseen.training.averaging import Averaging


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))


def step(net: nn.Module) -> None:
    net(torch.randn(5, 3))  # moves the running statistics
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(torch.randn_like(parameter))


def test_it_equals_a_loop_by_hand() -> None:
    net = network()
    averaging = Averaging(net, 0.5)
    expected = {name: value.clone().double() for name, value in net.state_dict().items()}
    for number in range(8):
        step(net)
        averaging.update(number)
        decay = min(0.5, (1 + number) / (10 + number))
        for name, value in net.state_dict().items():
            counted = name.endswith("num_batches_tracked")
            mixed = decay * expected[name] + (1 - decay) * value.double()
            expected[name] = value.double() if counted else mixed
    for name, value in averaging.state_dict().items():
        assert torch.allclose(value.double(), expected[name], atol=1e-5), name
    assert int(averaging.state_dict()["1.num_batches_tracked"]) == 8


def test_it_is_lent_and_given_back_even_after_an_error() -> None:
    net = network()
    averaging = Averaging(net, 0.9)
    step(net)
    averaging.update(0)
    before = {name: value.clone() for name, value in net.state_dict().items()}

    def fail_inside() -> None:
        with averaging.applied():
            for name, value in net.state_dict().items():
                assert torch.equal(value, averaging.state_dict()[name])
            raise RuntimeError("inside")

    with pytest.raises(RuntimeError, match="inside"):
        fail_inside()
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


def test_a_loaded_average_goes_on_as_the_saved_one() -> None:
    one = network()
    first = Averaging(one, 0.9)
    step(one)
    first.update(0)
    two = network()
    two.load_state_dict(one.state_dict())
    second = Averaging(two, 0.9)
    second.load_state_dict({name: value.clone() for name, value in first.state_dict().items()})
    first.update(1)
    second.update(1)
    for name, value in first.state_dict().items():
        assert torch.equal(value, second.state_dict()[name])


@pytest.mark.parametrize("decay", [0.0, 1.0])
def test_a_decay_outside_is_refused(decay: float) -> None:
    with pytest.raises(ValueError, match="decay must be between 0 and 1"):
        Averaging(network(), decay)
