"""Every loss of the catalogue under torch.compile: the same value and the same gradients."""

import pytest
import torch
from torch import Tensor

from unseen.core import registry
from unseen.losses.base import Loss

LABELS = torch.arange(4).repeat_interleave(3)


def priced(loss: Loss, call: Loss) -> list[Tensor]:
    """The value, the gradient of the embeddings and those of the loss's own parameters."""
    loss.zero_grad()
    x = torch.randn(12, 8, generator=torch.Generator().manual_seed(0)).double().requires_grad_()
    value = call(x, LABELS)
    value.backward()
    own = [p.grad.clone() for p in loss.parameters() if p.grad is not None]
    assert x.grad is not None
    return [value.detach(), x.grad, *own]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The .grad attribute")  # torch's own, where it cuts a function
@pytest.mark.parametrize("name", registry.names("losses"))
def test_compiled_losses_equal_plain_ones(name: str) -> None:
    torch.manual_seed(0)
    loss: Loss = registry.create("losses", name, {}, num_classes=4, embedding_size=8).double()
    torch.compiler.reset()  # one process may compile a function for a few losses only
    compiled = torch.compile(loss, backend="aot_eager")  # traced as ever, without a C++ compiler
    torch.testing.assert_close(priced(loss, compiled), priced(loss, loss))
