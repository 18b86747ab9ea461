"""Measures of training embeddings; whole runs are measured in the tests of `rho` and `mixup`."""

from pathlib import Path

import pytest
import torch

from unseen.diagnostics.spectrum import Spectrum
from unseen.studies.plan import Cell
from unseen.studies.published.training_space import distances, mean_spectrum, of_runs, spectra
from unseen.studies.results import Run


def test_spectra_are_shares() -> None:
    generator = torch.Generator().manual_seed(0)
    embeddings, labels = torch.randn(60, 8, generator=generator), torch.arange(60) % 6
    found = spectra(embeddings, labels)
    assert sum(found["all"]) == pytest.approx(1, abs=1e-5)
    assert sum(found["classes"]) == pytest.approx(1, abs=1e-5)
    assert found["rho"] == pytest.approx(Spectrum()(embeddings, labels)["rho"], abs=1e-6)
    assert distances(embeddings, labels)["rho"] == found["rho"]


def test_mean_of_spectra_leaves_out_what_is_0_in_all() -> None:
    assert mean_spectrum([[0.8, 0.2, 0.0], [0.6, 0.2, 0.0]]).tolist() == pytest.approx([0.7, 0.2])


def test_runs_without_weights_are_left_out(tmp_path: Path) -> None:
    told = []
    runs = [Run(Cell("final", {}, {"seed": 0}), tmp_path, state) for state in ("failed", "done")]
    found = of_runs(runs, spectra, lambda what, done, total: told.append((done, total)))
    assert found == {}
    assert told[-1] == (2, 2)
