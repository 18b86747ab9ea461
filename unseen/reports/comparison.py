"""Two runs on the same queries: how much better is the second, is it chance, and what changed.

Values per query are paired, and classes are drawn as a whole: pictures of one class succeed and
fail together. Runs of several domains are also compared on the queries of each. Runs judged on
different test items are refused.
"""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.table import Table

from unseen.contracts import Dataset
from unseen.files import replace_bytes
from unseen.pages import render
from unseen.reports import queries, stored_run, thumbnails
from unseen.reports.queries import FoundItems
from unseen.reports.stored_run import StoredRun, TestEmbeddings
from unseen.reports.tables import metric_title, percent
from unseen.statistics import Comparison, compare
from unseen.training.checksums import checked
from unseen.training.manifest import DataFacts

METRIC = "recall@1"
ON = " on "  # between a metric, or a row, and a domain
SHOWN = 12
NEAREST = 4
SEED = 0
ONE = "Of their methods it cannot be judged: one run each; `unseen study` compares methods."


@dataclass(frozen=True)
class Pair:
    """Two judged runs on the same test items, and their metrics compared over classes."""

    runs: tuple[StoredRun, StoredRun]
    tests: tuple[TestEmbeddings, TestEmbeddings]
    values: dict[str, tuple[float, float]]  # by metric
    compared: dict[str, Comparison]

    @property
    def verdict(self) -> str:
        """Which is better on unseen classes, if any, in a sentence."""
        return verdict(self)


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
    """For the terminal: difference in points, with its interval over classes."""
    one, two = (run.name for run in pair.runs)
    table = Table(
        title=f"B, {two},\nagainst A, {one}, %",
        caption="interval: 95 %, over classes; p: two-sided, signs of classes flipped;\n"
        "better, worse: queries",
    )
    for head in ("", "A", "B", "change", "interval", "p", "better", "worse"):
        table.add_column(head, justify="left" if not head else "right")
    for name, found in pair.compared.items():
        difference = found.difference
        low, high = (f"{100 * end:+.1f}" for end in (difference.low, difference.high))
        clear = difference.low > 0 or difference.high < 0
        table.add_row(
            _title(name).replace("R-precision", "R-prec"),
            *map(percent, pair.values[name]),
            f"{100 * difference.value:+.1f}",
            f"{low} … {high}",
            f"{found.p:.4f}" if found.p >= 0.0001 else "<0.0001",
            f"{len(found.improved):,}",
            f"{len(found.worsened):,}",
            style="bold" if clear else "",
        )
    return table


def verdict(pair: Pair) -> str:
    """The comparison of recall@1 (or the first metric) in a sentence, and what it does not say."""
    name = METRIC if METRIC in pair.compared else next(iter(pair.compared))
    found = pair.compared[name]
    one, two = (run.name for run in pair.runs)
    ends = f"{100 * found.difference.low:+.1f} to {100 * found.difference.high:+.1f} points"
    if found.difference.low > 0:
        return f"{two} is better than {one} on unseen classes ({metric_title(name)} {ends}). {ONE}"
    if found.difference.high < 0:
        low, high = (f"{-100 * end:+.1f}" for end in (found.difference.high, found.difference.low))
        ends = f"{low} to {high} points"
        return f"{one} is better than {two} on unseen classes ({metric_title(name)} {ends}). {ONE}"
    return f"No clear difference between {one} and {two} ({metric_title(name)} {ends}). {ONE}"


def write_page(pair: Pair, dataset: Dataset, out: Path) -> Path:
    """Queries whose first answer became right or wrong, with both runs' neighbours."""
    founds = tuple(
        queries.find(test, bool(run.config.get("normalise", True)))
        for run, test in zip(pair.runs, pair.tests, strict=True)
    )
    right = [found.matches[:, 0] & found.askable for found in founds]
    changes, rng = [], np.random.default_rng(SEED)
    for one, other in ((1, 0), (0, 1)):
        changed = right[one] & ~right[other]
        chosen = rng.permutation(np.flatnonzero(changed))[:SHOWN]
        rows = [_row(int(query), founds, pair, dataset) for query in chosen]
        changes.append(Change(pair.runs[one].name, int(changed.sum()), rows))
    html = render(
        "reports/comparison",
        names=[run.name for run in pair.runs],
        verdict=verdict(pair),
        metrics={_title(name): _numbers(pair, name) for name in pair.compared},
        changes=changes,
    )
    replace_bytes(out, html.encode())
    return out


def _title(name: str) -> str:
    """recall@1 on birds -> R@1 on birds"""
    metric, on, domain = name.partition(ON)
    return f"{metric_title(metric)}{on}{domain}"


def _numbers(pair: Pair, name: str) -> list[str]:
    """Of both runs, of the difference, its interval, p."""
    found = pair.compared[name]
    ends = f"{100 * found.difference.low:+.1f} to {100 * found.difference.high:+.1f}"
    values = map(percent, pair.values[name])
    return [*values, f"{100 * found.difference.value:+.1f}", ends, f"{found.p:.4f}"]


def _row(
    query: int, founds: tuple[FoundItems, ...], pair: Pair, dataset: Dataset
) -> thumbnails.Row:
    items = pair.tests[0].indices
    answers = [
        thumbnails.answer(items[place], dataset, bool(found.matches[query, rank]), f"run {number}")
        for number, found in enumerate(founds, start=1)
        for rank, place in enumerate(found.positions[query, :NEAREST])
        if place >= 0
    ]
    return thumbnails.Row(thumbnails.query(items[query], dataset), answers)


def _items(data: DataFacts) -> str:
    return data.name if data.items is None else f"{data.items:,} items of {data.name}"


def _tests(
    runs: tuple[StoredRun, StoredRun], paths: tuple[Path, Path]
) -> tuple[TestEmbeddings, TestEmbeddings]:
    found: list[TestEmbeddings] = []
    for run, path in zip(runs, paths, strict=True):
        if run.test is None or run.result is None:
            judge = f"unseen evaluate {shlex.quote(str(path))}"
            raise ValueError(f"{path} is not judged yet: `{judge}` does it")
        found.append(run.test)
    data = [run.result.data for run in runs if run.result]
    prints = [each.fingerprint for each in data]
    old = [run.name for run in runs if run.manifest.data.items is None]
    if prints[0] != prints[1] and len(old) == 1:
        raise ValueError(
            f"{old[0]} was made by version 0.1, whose fingerprints were others: whether both runs "
            "were judged on the same items cannot be known. Train it again"
        )
    if prints[0] != prints[1]:
        raise ValueError(
            f"the runs were judged on different data ({_items(data[0])}, {_items(data[1])}; "
            "fingerprints differ): only the same queries can be compared, so train both on the same"
        )
    if not np.array_equal(found[0].indices, found[1].indices):
        raise ValueError(
            f"the runs have different test items ({len(found[0]):,} and {len(found[1]):,}): give "
            "both the same data, protocol and split settings"
        )
    return found[0], found[1]


def _per_query(folder: Path) -> dict[str, Any]:
    """The trained network's values by metric, then by metric on the queries of a domain."""
    with np.load(checked(folder, "embeddings/per_query.npz")) as arrays:
        found = {}
        for name in sorted(arrays, key=lambda name: ON in name):
            row, _, metric = name.partition("/")
            if row.partition(ON)[0] == "trained":
                found[metric + row.removeprefix("trained")] = arrays[name]
        return found
