"""The toy study against the figures measured for it (10 seeds each; here two)."""

import pytest
import torch

from unseen.reproductions.roth.toy_points import make_data, measure, train


@pytest.mark.parametrize(
    ("data", "configuration", "chance", "fraction", "tolerance"),
    [
        ("diagonal", "base", 0.0, 0.887, 0.06),
        ("diagonal", "switch", 0.4, 0.866, 0.06),
        ("diagonal", "paper_code", 0.001, 0.578, 0.08),
        ("vertical", "paper_code", 0.001, 0.638, 0.14),
    ],
)
def test_shares_of_singular_values(
    data: str, configuration: str, chance: float, fraction: float, tolerance: float
) -> None:
    runs = [train(make_data(data, seed), configuration, chance, seed) for seed in range(2)]
    assert torch.stack([run.fractions[0] for run in runs]).mean().item() == pytest.approx(
        fraction, abs=tolerance
    )


def test_data_as_described() -> None:
    data = make_data("diagonal", 0)
    assert data.train.shape == data.test.shape == (60, 2)
    assert torch.allclose(data.train[:, 0], data.train[:, 1])
    assert data.train[:15].min() >= 0.1
    assert data.train[:15].max() <= 0.3
    assert torch.allclose(data.test[:30, 0], torch.tensor(0.2))
    assert torch.allclose(make_data("vertical", 0).test[:, 0], torch.tensor(0.5))


def test_measures_by_hand() -> None:
    """Half of the points right, half up: equal singular values. Classes a quarter turn apart."""
    data = make_data("vertical", 0)
    points = torch.tensor([[1.0, 0.0], [0.0, 1.0]]).repeat(30, 1)
    quarters = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]])
    even = measure(data, points, quarters.repeat_interleave(15, dim=0))
    assert even.fractions.tolist() == pytest.approx([0.5, 0.5])
    assert even.decay == pytest.approx(0.0, abs=1e-6)
    assert even.separation == pytest.approx(2**0.5)


def test_bad_names() -> None:
    with pytest.raises(ValueError, match="data must be one of"):
        make_data("circle", 0)
    with pytest.raises(ValueError, match="variant must be one of"):
        train(make_data("diagonal", 0), "paper", 0.1, 0)
