"""Every loss of the catalogue, and every preset of it, can be differentiated twice and transformed.

What a loss writes out by hand (its gradient in `slope`, measures with `back`) is compared with what
torch finds in the plain formula.
"""

import pytest
import torch
from torch import Tensor

from unseen.core import registry
from unseen.core.tuples import Triplets
from unseen.losses.base import LabelLoss, Loss


def variants(name: str) -> list[tuple[str, str | None]]:
    """The defaults and every preset that takes another way through the code: other words."""
    seen: dict[str, str | None] = {}
    for preset in (None, *registry.entry("losses", name).presets):
        values = registry.preset_values("losses", name, preset)
        seen.setdefault(str({k: v for k, v in values.items() if not isinstance(v, float)}), preset)
    return [(name, preset) for preset in seen.values()]


VARIANTS = [variant for name in registry.names("losses") for variant in variants(name)]
LABELS = torch.tensor([0, 1, 0, 2, 1, 0])


def make(name: str, preset: str | None) -> Loss:
    made: Loss = registry.create("losses", name, {}, preset, num_classes=3, embedding_size=3)
    draw = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.ndim > 1:
                parameter.copy_(torch.randn(parameter.shape, generator=draw))
    return made.double()


@pytest.fixture(params=VARIANTS, ids=str)
def loss(request: pytest.FixtureRequest) -> Loss:
    return make(*request.param)


def embeddings(seed: int = 0) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(6, 3, generator=draw, dtype=torch.float64)


def gradient(loss: Loss, x: Tensor, *given: Triplets) -> Tensor:
    x = x.clone().requires_grad_()
    (result,) = torch.autograd.grad(loss(x, LABELS, *given), x)
    return result


def test_gradients_by_torch_func_are_those_of_backward(loss: Loss) -> None:
    x = embeddings()
    result, value = torch.func.grad_and_value(lambda x: loss(x, LABELS))(x)
    torch.testing.assert_close(value, loss(x, LABELS).detach())
    torch.testing.assert_close(result, gradient(loss, x))


# item 2 is a positive of item 0 and, by the switch, a negative too
SWITCHED = Triplets(torch.tensor([0, 0]), torch.tensor([2, 0]), torch.tensor([1, 2]))
LISTED = Triplets(torch.tensor([0]), torch.tensor([2]), torch.tensor([1]))


@pytest.mark.parametrize("given", [LISTED, SWITCHED], ids=["listed", "switched"])
@pytest.mark.parametrize(
    "variant", [v for v in VARIANTS if not isinstance(make(*v), LabelLoss)], ids=str
)
def test_gradients_of_listed_triplets_by_torch_func(
    variant: tuple[str, str | None], given: Triplets
) -> None:
    loss = make(*variant)
    x = embeddings()
    result, value = torch.func.grad_and_value(lambda x: loss(x, LABELS, given))(x)
    torch.testing.assert_close(value, loss(x, LABELS, given).detach())
    torch.testing.assert_close(result, gradient(loss, x, given))


def test_several_batches_at_once(loss: Loss) -> None:
    stack = torch.stack([embeddings(0), embeddings(1)])
    together = torch.func.vmap(torch.func.grad(lambda x: loss(x, LABELS)), randomness="same")(stack)
    torch.testing.assert_close(together, torch.stack([gradient(loss, x) for x in stack]))


@pytest.mark.parametrize("variant", [v for v in VARIANTS if make(*v).exact_gradient], ids=str)
def test_gradients_of_the_gradient(variant: tuple[str, str | None]) -> None:
    loss = make(*variant)
    x = embeddings().requires_grad_()
    learned = [p for p in loss.parameters() if p.requires_grad]
    assert torch.autograd.gradgradcheck(
        lambda x, *_: loss(x, LABELS), (x, *learned), fast_mode=True, atol=1e-4
    )


def test_a_graph_that_is_kept_gives_the_same_gradient_again(loss: Loss) -> None:
    x = embeddings().requires_grad_()
    value = loss(x, LABELS)
    first, second = (torch.autograd.grad(value, x, retain_graph=True)[0] for _ in range(2))
    assert torch.equal(first, second)
