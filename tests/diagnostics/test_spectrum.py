import math

import pytest
import torch
from torch import Tensor

from unseen.diagnostics.spectrum import Spectrum, spectral_decay

Data = tuple[Tensor, Tensor]


def unit(x: Tensor) -> Tensor:
    x = x.double()
    return x / x.norm(dim=1, keepdim=True)


def decay(sigma: list[float], dropped: int) -> tuple[float, float]:
    rest = sigma[dropped:]
    p = [s / sum(rest) for s in rest]
    forward = sum(math.log(1 / len(p) / q) for q in p) / len(p)
    return forward, sum(q * math.log(q * len(p)) for q in p)


def test_worked_examples() -> None:
    result = spectral_decay(torch.tensor([10.0, 6.0, 1.0, 1.0]))
    assert result["rho"] == pytest.approx(0.3836, abs=5e-5)
    assert result["rho_reverse"] == pytest.approx(0.3630, abs=5e-5)
    result = spectral_decay(0.97 ** torch.arange(128, dtype=torch.float64))
    assert result["rho"] == pytest.approx(0.560, abs=5e-4)
    assert result["rho_reverse"] == pytest.approx(0.456, abs=5e-4)
    assert spectral_decay(torch.ones(9))["rho"] == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("dropped", [0, 1, 3])
def test_equals_the_definition(cloud: Data, dropped: int) -> None:
    sigma = torch.linalg.svdvals(unit(cloud[0])).tolist()
    result = Spectrum(dropped)(*cloud)
    assert result["singular_values"].tolist() == pytest.approx(sigma)
    assert (result["rho"], result["rho_reverse"]) == pytest.approx(decay(sigma, dropped))
    assert result["num_clamped"] == 0


@pytest.mark.parametrize(("n", "floor"), [(1000, 0.0165), (5864, 0.0026), (59551, 0.0003)])
def test_floor_of_random_directions(n: int, floor: float) -> None:
    x = torch.randn(n, 128, generator=torch.Generator().manual_seed(0))
    assert Spectrum()(x, torch.zeros(n))["rho"] == pytest.approx(floor, rel=0.07, abs=5e-5)


def test_dead_dimensions_are_counted() -> None:
    x = torch.randn(50, 8, generator=torch.Generator().manual_seed(0))
    x[:, 5:] = 0
    result = Spectrum()(x, torch.zeros(50))
    assert result["num_clamped"] == 3
    assert math.isfinite(result["rho"])
    assert math.isnan(spectral_decay(torch.tensor([3.0, 0.0, 0.0]))["rho"])  # one direction only


def test_bad_values() -> None:
    with pytest.raises(ValueError, match="dropped"):
        Spectrum(-1)
    with pytest.raises(ValueError, match="below the size 2"):
        Spectrum(2)(torch.ones(3, 2), torch.zeros(3))
    with pytest.raises(ValueError, match="hold NaN or infinity"):
        Spectrum()(torch.full((3, 2), math.nan), torch.zeros(3))
