"""Measures of training embeddings; whole runs are measured in the tests of `rho` and `mixup`."""

from pathlib import Path

import pytest
import torch

from unseen.diagnostics.spectrum import Spectrum
from unseen.reproductions.training_space import distances, mean_spectrum, of_runs, spectra
from unseen.studies.results import Run
from unseen.studies.study_file import PlannedRun


def test_spectra_are_shares() -> None:
    generator = torch.Generator().manual_seed(0)
    embeddings, labels = torch.randn(60, 8, generator=generator), torch.arange(60) % 6
    result = spectra(embeddings, labels)
    assert sum(result["all"]) == pytest.approx(1, abs=1e-5)
    assert sum(result["classes"]) == pytest.approx(1, abs=1e-5)
    assert result["rho"] == pytest.approx(Spectrum()(embeddings, labels)["rho"], abs=1e-6)
    assert distances(embeddings, labels)["rho"] == result["rho"]


def test_mean_of_spectra_leaves_out_what_is_0_in_all() -> None:
    assert mean_spectrum([[0.8, 0.2, 0.0], [0.6, 0.2, 0.0]]).tolist() == pytest.approx([0.7, 0.2])


def test_runs_without_weights_are_left_out(tmp_path: Path) -> None:
    message = []
    runs = [
        Run(PlannedRun("final", {}, {"seed": 0}), tmp_path, state) for state in ("failed", "done")
    ]
    result = of_runs(runs, spectra, lambda what, done, total: message.append((done, total)))
    assert result == {}
    assert message[-1] == (2, 2)
