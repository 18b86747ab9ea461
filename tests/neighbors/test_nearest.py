import math

import pytest
import torch
from torch import Tensor

from unseen.neighbors.nearest import nearest
from unseen.neighbors.space import make_space


def points(n: int, size: int, seed: int = 0) -> Tensor:
    return torch.randn(n, size, generator=torch.Generator().manual_seed(seed))


def whole_matrix(x: Tensor, normalize: bool) -> Tensor:
    """All similarities at once, in float64, oneself at -inf."""
    x = x.double()
    if normalize:
        x = x / x.norm(dim=1, keepdim=True)
        sim = x @ x.T
    else:
        sim = -torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist").square()
    return sim.fill_diagonal_(-math.inf)


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize(
    ("block", "memory"), [(32, 2**30), (64, 2**30), (64, 0), (4096, 2**30)], ids=str
)
@pytest.mark.parametrize("keep", [1, 7, 299])
def test_equals_the_whole_matrix(normalize: bool, block: int, memory: int, keep: int) -> None:
    x = points(300, 16)
    expected = whole_matrix(x, normalize).topk(keep)
    values, items = nearest(make_space(x, normalize=normalize), keep, block=block, memory=memory)
    torch.testing.assert_close(values.double(), expected.values, atol=2e-5, rtol=1e-6)
    torch.testing.assert_close(
        whole_matrix(x, normalize).gather(1, items), expected.values, atol=2e-5, rtol=1e-6
    )
    assert (items.sort(1).values.diff(dim=1) > 0).all()


def test_a_block_with_more_hits_than_room() -> None:
    """Bars set among strangers, then a block where everything is nearer than anything before."""
    x = torch.cat([points(32, 8), points(32, 8, 1), torch.ones(64, 8) + 0.01 * points(64, 8, 2)])
    x[:16] = torch.ones(16, 8) + 0.01 * points(16, 8, 3)
    values, _ = nearest(make_space(x), 3, block=32)
    expected = whole_matrix(x, True).topk(3).values
    torch.testing.assert_close(values.double(), expected, atol=1e-6, rtol=0)


def test_keep_beyond_the_block() -> None:
    x = points(100, 4)
    values, items = nearest(make_space(x), 100, block=32)
    assert (items[:, -1] == -1).all()
    assert (values[:, -1] == -math.inf).all()
    assert (items[:, :-1] >= 0).all()


@pytest.mark.parametrize("block", [32, 1024])
def test_gallery(block: int) -> None:
    queries, gallery = points(70, 6), points(130, 6, 1)
    values, items = nearest(make_space(queries, gallery), 5, block=block)
    sim = torch.nn.functional.cosine_similarity(queries[:, None], gallery[None], dim=2)
    torch.testing.assert_close(values, sim.topk(5).values, atol=1e-6, rtol=0)
    assert torch.equal(items, sim.topk(5).indices)


def test_progress_ends_at_the_total() -> None:
    for memory in (2**30, 0):
        message: list[tuple[int, int]] = []
        nearest(
            make_space(points(200, 4)),
            3,
            block=64,
            memory=memory,
            progress=lambda done, total, message=message: message.append((done, total)),
        )
        assert [done for done, _ in message] == list(range(1, message[0][1] + 1))
        assert {total for _, total in message} == {message[0][1]}


def test_symmetry_halves_the_work() -> None:
    totals = {}
    for memory in (2**30, 0):
        message: list[int] = []
        nearest(
            make_space(points(640, 4)),
            1,
            block=64,
            memory=memory,
            progress=lambda _, total, message=message: message.append(total),
        )
        totals[memory] = message[-1]
    assert totals == {2**30: 55, 0: 100}
