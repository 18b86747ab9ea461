"""NumPy's and torch's way of selecting and sorting agree, ties and infinities included."""

import math

import torch

from unseen.neighbors.row_sort import above, in_order, kth_largest


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
        result = in_order(values, columns, 40)
        for row in range(50):
            pairs = sorted(
                zip(values[row].tolist(), columns[row].tolist(), strict=True),
                key=lambda pair: (-pair[0], pair[1]),
            )
            assert result[0][row].tolist() == [value for value, _ in pairs]
            assert result[1][row].tolist() == [column for _, column in pairs]
        first = in_order(values, columns, 7)
        assert all(torch.equal(few, full[:, :7]) for few, full in zip(first, result, strict=True))
        assert result[0].dtype == dtype
        assert result[1].dtype == torch.int32


def test_kth_largest() -> None:
    values, _ = rows(torch.float32)
    for k in (1, 7, 40):
        expected = values.sort(dim=1, descending=True).values[:, k - 1]
        assert torch.equal(kth_largest(values, k), expected)


def test_above_finds_what_clears_the_bar_row_by_row() -> None:
    values, _ = rows(torch.float32)
    bar = values.median(dim=1).values
    bar[7] = -math.inf
    row, column = (values > bar[:, None]).nonzero(as_tuple=True)
    for block in (values, values.T.contiguous().T):
        result = above(block, bar)
        expected = (row, column, values[row, column])
        assert all(torch.equal(a, b) for a, b in zip(result, expected, strict=True))
