import math

import pytest
import torch
from torch import Tensor

from unseen.diagnostics import class_spectrum
from unseen.diagnostics.class_spectrum import ClassSpectrum

Data = tuple[Tensor, Tensor]


def unit(x: Tensor) -> Tensor:
    x = x.double()
    return x / x.norm(dim=1, keepdim=True)


@pytest.mark.parametrize("centered", [False, True])
@pytest.mark.parametrize("chunk", [50, 2**24])
def test_equals_one_class_after_the_other(
    cloud: Data, centered: bool, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(class_spectrum, "CHUNK", chunk)
    x, y = unit(cloud[0]), cloud[1]
    spectra = []
    for c in y.unique():
        rows = x[y == c]
        if len(rows) > 1:
            sigma = torch.linalg.svdvals(rows - rows.mean(0) if centered else rows)
            spectra.append(torch.nn.functional.pad(sigma / sigma.sum(), (0, 6 - len(sigma))))
    result = ClassSpectrum(centered)(*cloud)
    assert result["num_classes"] == len(spectra)
    torch.testing.assert_close(result["spectrum"], torch.stack(spectra).mean(0))
    assert float(result["spectrum"].sum()) == pytest.approx(1.0)


def test_at_most_as_many_values_as_items() -> None:
    x = torch.randn(30, 10, generator=torch.Generator().manual_seed(0))
    result = ClassSpectrum()(x, torch.arange(30) // 3)
    assert (result["spectrum"][3:] == 0).all()
    assert (result["spectrum"][:3] > 0).all()


def test_nothing_but_single_items() -> None:
    result = ClassSpectrum()(torch.eye(3), torch.arange(3))
    assert result["num_classes"] == 0
    assert math.isnan(float(result["spectrum"][0]))
