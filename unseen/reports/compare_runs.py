"""Two runs on the same queries: how much better is the second, is it chance, and what changed.

Values per query are paired, and classes are drawn as a whole: images of one class succeed and
fail together. Runs of several domains are also compared on the queries of each. Runs evaluated on
different test items are refused.
"""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from unseen.core import read_limits
from unseen.core.contracts import Dataset
from unseen.core.files import replace_bytes
from unseen.core.html_templates import render
from unseen.core.statistics import Comparison, compare
from unseen.reports import queries, stored_run, thumbnails
from unseen.reports.queries import ResultItems
from unseen.reports.score_tables import metric_title, percent
from unseen.reports.stored_run import StoredRun, TestEmbeddings
from unseen.reports.tables import Table
from unseen.training.checksums import checked
from unseen.training.manifest import DataMetadata

METRIC = "recall@1"
ON = " on "  # between a metric, or a row, and a domain
SHOWN = 12
NEAREST = 4
SEED = 0
EXPLAINED = (
    "interval: 95 %, over classes; p: two-sided, signs of classes flipped;\nbetter, worse: queries"
)
ONE = "The methods stay inconclusive: one run each; `unseen study` compares methods."


@dataclass(frozen=True)
class Pair:
    """Two evaluated runs on the same test items, and their metrics compared over classes."""

    runs: tuple[StoredRun, StoredRun]
    tests: tuple[TestEmbeddings, TestEmbeddings]
    values: dict[str, tuple[float, float]]  # by metric
    compared: dict[str, Comparison]

    @property
    def conclusion(self) -> str:
        """The difference in recall@1 (or the first metric) in a sentence, and what stays open."""
        name = METRIC if METRIC in self.compared else next(iter(self.compared))
        result = self.compared[name]
        one, two = (run.name for run in self.runs)
        ends = f"{100 * result.difference.low:+.1f} to {100 * result.difference.high:+.1f} points"
        if result.difference.low > 0:
            return (
                f"{two} is better than {one} on unseen classes ({metric_title(name)} {ends}). {ONE}"
            )
        if result.difference.high < 0:
            low, high = (
                f"{-100 * end:+.1f}" for end in (result.difference.high, result.difference.low)
            )
            ends = f"{low} to {high} points"
            return (
                f"{one} is better than {two} on unseen classes ({metric_title(name)} {ends}). {ONE}"
            )
        return f"No clear difference between {one} and {two} ({metric_title(name)} {ends}). {ONE}"


@dataclass(frozen=True)
class Change:
    """Queries whose first answer is right only with the run of this name: how many, and some."""

    name: str
    count: int
    rows: list[thumbnails.Row]


def compare_runs(first: Path, second: Path, seed: int = 0) -> Pair:
    """Reads two run folders; ValueError where their test items differ."""
    runs = stored_run.read(first), stored_run.read(second)
    tests = _tests(runs, (first, second))
    per_query = [_per_query(path) for path in (first, second)]
    labels = torch.from_numpy(tests[0].labels)
    asking = labels if tests[0].query is None else labels[tests[0].query]
    values, compared = {}, {}
    for name in [name for name in per_query[0] if name in per_query[1]]:
        one, two = (torch.from_numpy(table[name]) for table in per_query)
        classes = asking if len(one) == len(asking) else labels  # clusterings: of all items
        compared[name] = compare(one, two, classes, seed=seed)
        values[name] = float(one.nanmean()), float(two.nanmean())
    return Pair(runs, tests, values, compared)


def comparison_table(pair: Pair) -> Table:
    """Difference in points, with its interval over classes."""
    rows, marks = [], []
    for name, result in pair.compared.items():
        difference = result.difference
        low, high = (f"{100 * end:+.1f}" for end in (difference.low, difference.high))
        metric, on, domain = name.partition(ON)
        counts = (f"{len(queries):,}" for queries in (result.improved, result.worsened))
        rows.append(
            [
                f"{metric_title(metric)}{on}{domain}".replace("R-precision", "R-prec"),
                *map(percent, pair.values[name]),
                f"{100 * difference.value:+.1f}",
                f"{low} … {high}",
                f"{result.p:.4f}" if result.p >= 0.0001 else "<0.0001",
                *counts,
            ]
        )
        marks.append("main" if difference.low > 0 or difference.high < 0 else "")
    heads = ["", "A", "B", "change", "interval", "p", "better", "worse"]
    return Table(heads, rows, EXPLAINED, marks=marks, numbers=range(1, len(heads)))


def write_page(pair: Pair, dataset: Dataset, out: Path) -> Path:
    """Queries whose first answer became right or wrong, with both runs' neighbours."""
    founds = tuple(
        queries.find(test, bool(run.config.get("normalize", True)))
        for run, test in zip(pair.runs, pair.tests, strict=True)
    )
    right = [result.matches[:, 0] & result.askable for result in founds]
    changes, rng = [], np.random.default_rng(SEED)
    for one, other in ((1, 0), (0, 1)):
        changed = right[one] & ~right[other]
        chosen = rng.permutation(np.flatnonzero(changed))[:SHOWN]
        rows = [_row(int(query), founds, pair, dataset) for query in chosen]
        changes.append(Change(pair.runs[one].name, int(changed.sum()), rows))
    html = render(
        "reports/comparison",
        names=[run.name for run in pair.runs],
        conclusion=pair.conclusion,
        compared=comparison_table(pair),
        changes=changes,
    )
    replace_bytes(out, html.encode())
    return out


def _row(
    query: int, founds: tuple[ResultItems, ...], pair: Pair, dataset: Dataset
) -> thumbnails.Row:
    items = pair.tests[0].indices
    answers = [
        thumbnails.answer(items[place], dataset, bool(result.matches[query, rank]), f"run {number}")
        for number, result in enumerate(founds, start=1)
        for rank, place in enumerate(result.positions[query, :NEAREST])
        if place >= 0
    ]
    return thumbnails.Row(thumbnails.query(items[query], dataset), answers)


def _items(data: DataMetadata) -> str:
    return data.name if data.items is None else f"{data.items:,} items of {data.name}"


def _tests(
    runs: tuple[StoredRun, StoredRun], paths: tuple[Path, Path]
) -> tuple[TestEmbeddings, TestEmbeddings]:
    result: list[TestEmbeddings] = []
    for run, path in zip(runs, paths, strict=True):
        if run.test is None or run.result is None:
            evaluate_run = f"unseen evaluate run {shlex.quote(str(path))}"
            raise ValueError(f"{path} is not evaluated yet: `{evaluate_run}` does it")
        result.append(run.test)
    data = [run.result.data for run in runs if run.result]
    prints = [each.fingerprint for each in data]
    if prints[0] != prints[1]:
        raise ValueError(
            f"the runs were evaluated on different data ({_items(data[0])}, {_items(data[1])}; "
            "fingerprints differ): only the same queries can be compared, so train both on the same"
        )
    if not np.array_equal(result[0].indices, result[1].indices):
        raise ValueError(
            f"the runs have different test items ({len(result[0]):,} and {len(result[1]):,}): give "
            "both the same data, protocol and split settings"
        )
    return result[0], result[1]


def _per_query(folder: Path) -> dict[str, Any]:
    """The trained network's values by metric, then by metric on the queries of a domain."""
    with read_limits.load(checked(folder, "embeddings/per_query.npz")) as arrays:
        result = {}
        for name in sorted(arrays, key=lambda name: ON in name):
            row, _, metric = name.partition("/")
            if row.partition(ON)[0] == "trained":
                result[metric + row.removeprefix("trained")] = arrays[name]
        return result
