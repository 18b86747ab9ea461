"""The training embeddings of finished runs, for what the scores on test classes do not say.

    found = of_runs(results.runs, spectra, tell)      # key of a run -> plain values, to be stored
    by_method(results, found, "rho")                  # method -> one value per run

A run whose weights lie on another machine, or whose embeddings are broken, is left out.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor

from unseen.config import find_data
from unseen.core.contracts import Dataset
from unseen.core.statistics import over_seeds
from unseen.diagnostics.class_spectrum import ClassSpectrum
from unseen.diagnostics.spectrum import Spectrum
from unseen.diagnostics.spread import Spread
from unseen.neighbors.space import non_finite_rows
from unseen.reports.tables import Table
from unseen.reproductions.against_source import drawn, number, plain_text
from unseen.reproductions.charts import logarithmic
from unseen.reproductions.published_study import Message
from unseen.runs.batch_source import source_of
from unseen.runs.prepare import Callbacks, RunContext, computing, reopen, stored_config
from unseen.runs.run_networks import stored_network
from unseen.studies.findings import Section
from unseen.studies.results import Results, Run
from unseen.training.run_folder import RunFolder

Measured = Mapping[str, Mapping[str, Any]]  # key of a run -> what was measured of it
DIGITS = 7


def of_runs(
    runs: Sequence[Run], measure: Callable[[Tensor, Tensor], dict[str, Any]], progress: Message
) -> dict[str, dict[str, Any]]:
    """What `measure` says of the training embeddings and labels of every finished run."""
    result: dict[str, dict[str, Any]] = {}
    opened: dict[str, Dataset] = {}
    for place, run in enumerate(runs):
        progress("training embeddings", place, len(runs))
        folder = RunFolder(run.folder)
        if run.state != "done" or not folder.has("weights.safetensors"):
            continue
        config = stored_config(folder)
        name = config.data.model_dump_json()
        if name not in opened:
            opened[name] = find_data.open_data(config.data)
        context, _ = reopen(run.folder, dataset=opened[name])
        embeddings = _embedded(context, folder)
        if not len(non_finite_rows(embeddings)):
            labels = torch.from_numpy(context.dataset.labels[context.split.train])
            result[run.planned.key] = measure(embeddings, labels)
    progress("training embeddings", len(runs), len(runs))
    return result


def spectra(embeddings: Tensor, labels: Tensor) -> dict[str, Any]:
    """rho; singular values of all items and, as a mean, of classes, each over their sum."""
    whole = Spectrum()(embeddings, labels)
    sigma = whole["singular_values"]
    return {
        "rho": round(float(whole["rho"]), DIGITS),
        "all": _plain(sigma / sigma.sum()),
        "classes": _plain(ClassSpectrum()(embeddings, labels)["spectrum"]),
    }


def distances(embeddings: Tensor, labels: Tensor) -> dict[str, Any]:
    """rho; distances inside and between classes and their ratio: cosine as in the code of Roth et
    al., and Euclidean with plain means as printed."""
    result = Spread()(embeddings, labels) | {"rho": Spectrum()(embeddings, labels)["rho"]}
    printed = Spread("euclidean")(embeddings, labels)
    result |= {f"{name}_printed": value for name, value in printed.items()}
    return {name: round(float(value), DIGITS) for name, value in result.items()}


def by_method(results: Results, measured: Measured, name: str) -> dict[str, list[Any]]:
    """One value per measured run of each method, of methods with any."""
    result: dict[str, list[Any]] = {}
    for run in results.runs:
        if run.state == "done" and run.planned.key in measured:
            method = run.planned.labels[results.plan.compared]
            result.setdefault(method, []).append(measured[run.planned.key][name])
    return result


def measured_value(measured: Measured, name: str, run: Run) -> float:
    """A number of a run, or the first of several: rho, or the share of a class's first singular
    value; NaN where nothing was measured."""
    row = measured.get(run.planned.key)
    return math.nan if row is None else float(np.ravel(row[name])[0])


def mean_spectrum(spectra: Sequence[Sequence[float]]) -> NDArray[np.float64]:  # [D]
    """Over runs, without the values that are 0."""
    mean = np.mean(np.asarray(spectra, dtype=np.float64), axis=0)
    return mean[mean > 0]


def spectra_section(
    pairs: Mapping[str, tuple[Sequence[Run], Sequence[Run]]],
    measured: Measured,
    published: Mapping[str, Sequence[float]],
) -> Section:
    """rho, the share of a class's first value, and the spectra, of runs without and with
    something; published: rho of both."""
    known = {
        name: [
            [measured[run.planned.key] for run in runs
             if run.state == "done" and run.planned.key in measured] for runs in pair
        ]
        for name, pair in pairs.items()
    }  # fmt: skip
    known = {name: sides for name, sides in known.items() if all(sides)}
    if not known:
        return Section("Spectra", ["No pair of runs left weights to measure spectra of."])
    rows = []
    for name, sides in known.items():
        rhos = [plain_text(over_seeds([each["rho"] for each in side])) for side in sides]
        firsts = [100 * np.mean([each["classes"][0] for each in side]) for side in sides]
        printed = [number(value) for value in published.get(name, ())]
        rows.append([name, *rhos, *printed, *[f"{first:.1f}" for first in firsts]])
    heads = ["objective", "rho", "with it", *["published", "with it"] * bool(published)]
    caption = (
        "rho: ± half of the 95 % interval over seeds. In a class: the share of the first of its "
        "singular values, mean over classes."
    )
    figure = drawn(
        "spectra",
        "Singular values of the training embeddings over their sum, on a logarithmic scale, mean "
        "over seeds: of all items (above) and as a mean over classes (below). Flatter means that "
        "more directions are used.",
        lambda: _spectra_figure(known),
    )
    shown = Table([*heads, "in a class %", "with it"], rows, caption)
    return Section("Spectra", [], [shown], [figure])


def _spectra_figure(known: Mapping[str, Sequence[Sequence[Mapping[str, Any]]]]) -> Figure:
    figure = Figure(figsize=(2.4 * max(2, len(known)), 5), layout="constrained")
    grid = figure.subplots(2, len(known), squeeze=False, sharey="row")
    for row, (kind, title) in enumerate((("all", "all items"), ("classes", "mean over classes"))):
        for ax, (name, sides) in zip(grid[row], known.items(), strict=True):
            for side, style, label in zip(sides, ("-", "--"), ("without", "with it"), strict=True):
                values = mean_spectrum([each[kind] for each in side])
                ax.plot(range(1, len(values) + 1), values, style, label=label)
            logarithmic(ax)
            ax.set_title(name if row == 0 else "", fontsize=8, loc="left")
            ax.set_xlabel("singular value" if row else "")
        grid[row, 0].set_ylabel(f"share of the sum, {title}")
    figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside upper right", ncols=2)
    return figure


def _embedded(context: RunContext, folder: RunFolder) -> Tensor:  # [n, D]
    network = stored_network(context, folder)
    with computing(context):
        return source_of(context, network, Callbacks()).embed(context.split.train)


def _plain(values: Tensor) -> list[float]:
    return [round(float(value), DIGITS) for value in values]
