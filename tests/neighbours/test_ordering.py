"""NumPy's and torch's way of sorting rows agree, ties and infinities included."""

import math

import torch

from unseen.neighbours.ordering import in_order, kth_largest


def rows(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    values = torch.randint(-3, 4, (50, 40), generator=generator).to(dtype) / 4
    values[values == 0] *= -1  # zeros of both signs are equal
    values[3, 5:9], values[4] = -math.inf, -math.inf
    values[5, 2] = 1e-45  # the smallest number there is
    columns = torch.stack([torch.randperm(40, generator=generator) for _ in range(50)]).int()
    columns[4] = -1
    return values, columns


def test_both_ways_equal_sorting_pairs() -> None:
    for dtype in (torch.float32, torch.float64):
        values, columns = rows(dtype)
        found = in_order(values, columns)
        for row in range(50):
            pairs = sorted(
                zip(values[row].tolist(), columns[row].tolist(), strict=True),
                key=lambda pair: (-pair[0], pair[1]),
            )
            assert found[0][row].tolist() == [value for value, _ in pairs]
            assert found[1][row].tolist() == [column for _, column in pairs]
        assert found[0].dtype == dtype
        assert found[1].dtype == torch.int32


def test_kth_largest() -> None:
    values, _ = rows(torch.float32)
    for k in (1, 7, 40):
        expected = values.sort(dim=1, descending=True).values[:, k - 1]
        assert torch.equal(kth_largest(values, k), expected)
