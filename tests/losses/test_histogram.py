from types import SimpleNamespace

import pytest
import torch
from pytorch_metric_learning import losses as pml

from unseen.losses.histogram import HistogramLoss


def slow(case, nodes: int) -> float:
    spacing = 2 / (nodes - 1)

    def histogram(pairs: list[tuple[int, int]]) -> list[float]:
        bins = [0.0] * nodes
        for i, j in pairs:
            u, v = case.x[i], case.columns[j]
            similarity = (u @ v / (u.norm() * v.norm())).item()
            for r in range(nodes):
                bins[r] += max(0.0, 1 - abs(similarity - (-1 + r * spacing)) / spacing) / len(pairs)
        assert sum(bins) == pytest.approx(1, abs=1e-12)
        return bins

    of_positives, of_negatives = histogram(case.positives), histogram(case.negatives)
    return sum(of_negatives[r] * sum(of_positives[: r + 1]) for r in range(nodes))


@pytest.mark.parametrize("nodes", [2, 7, 11, 65])
def test_equals_a_loop(case, nodes) -> None:
    assert case(HistogramLoss(nodes)).item() == pytest.approx(slow(case, nodes), abs=1e-10)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_numbers_of_the_sources(spec: SimpleNamespace, dtype: torch.dtype) -> None:
    close = 1e-5 if dtype == torch.float64 else 1e-4
    for nodes, expected in ((5, 0.169371), (11, 0.127642), (65, 0.062427)):
        result = HistogramLoss(nodes)(spec.T.to(dtype), spec.labels).item()
        assert result == pytest.approx(expected, abs=close)
        assert HistogramLoss(nodes)(spec.COL.to(dtype), spec.labels).item() == pytest.approx(
            1, abs=close
        )
        assert HistogramLoss(nodes)(spec.ORT.to(dtype), spec.labels).item() == pytest.approx(
            0, abs=close
        )


def test_one_where_every_negative_is_more_similar() -> None:
    x = torch.tensor([[1.0, 0], [-1, 0], [1, 0], [-1, 0]], dtype=torch.float64)
    negatives = torch.tensor([0, 1]), torch.tensor([2, 3])
    positives = torch.tensor([0, 2]), torch.tensor([1, 3])
    priced = HistogramLoss()(x, torch.tensor([0, 0, 1, 1]), (*positives, *negatives))
    assert priced.item() == pytest.approx(1, abs=1e-12)


@pytest.mark.filterwarnings("ignore:Using a non-tuple sequence|:UserWarning")
def test_equals_the_peer(cases) -> None:
    """Where it runs: it stops on duplicates, and wants every class to have a positive."""
    case = cases[0]
    kept = case.y != 7
    x, y = case.x[kept], case.y[kept]
    for bins in (10, 64):
        expected = pml.HistogramLoss(n_bins=bins)(x, y).item()
        assert HistogramLoss(bins + 1)(x, y).item() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("nodes", [7, 65])
def test_gradient(cases, nodes) -> None:
    for case in cases[:6]:
        x = case.x.clone().requires_grad_()
        assert torch.autograd.gradcheck(lambda x, c=case: c(HistogramLoss(nodes), x), (x,))


def test_bad_values() -> None:
    with pytest.raises(ValueError, match="nodes"):
        HistogramLoss(1)
