"""Ten losses by dimension and network: recall at every rank beside the published one (tables 6 to
10, 20 and 21) and figures 27 to 31 of the thesis."""

import math
from collections.abc import Mapping, Sequence
from functools import partial

from unseen.reports.tables import Table
from unseen.reproductions.against_source import drawn, rank_table
from unseen.reproductions.charts import Point, bars, lines, point
from unseen.reproductions.numbers import table
from unseen.reproductions.request import Ask
from unseen.reproductions.source_values import BN_INCEPTION
from unseen.studies.findings import Section
from unseen.studies.results import Results, Run
from unseen.studies.study_figures import Drawn

Published = Mapping[tuple[str, int, str], list[float]]  # network, size, loss -> recall by rank
USUAL = "resnet50"  # the network beside ours where ours is none of theirs
BARS, WIDE = 128, 512  # sizes of figures 27 and 31


def ranks(ask: Ask) -> tuple[int, ...]:
    """Those that the thesis prints for the data."""
    return (1, 10, 100, 1000) if ask.published_data == "online_products" else (1, 2, 4, 8)


def published(ask: Ask) -> dict[tuple[str, int, str], list[float]]:
    """Their tables of the data, in percent; NaN where nothing is printed."""
    return {
        (_network(str(r["network"])), int(str(r["dim"]).split(".")[0]), str(r["loss"])): [
            value if isinstance(value := r[f"v{i}"], float) else math.nan for i in range(1, 5)
        ]
        for r in table("thesis_losses")
        if r["dataset"] == ask.published_data
    }


def _network(name: str) -> str:
    return BN_INCEPTION if name == "bninception" else name


def experiment(network: str, size: int) -> str:
    return f"{network} {size}"


def section(result: Results, ask: Ask) -> Section:
    """Every rank, and how recall goes with dimension and network."""
    theirs = published(ask)
    sizes = sorted({_size(run) for run in result.runs})
    networks = list(dict.fromkeys(_own_network(run) for run in result.runs))
    tables = [_table(result, theirs, network, size, ask) for network in networks for size in sizes]
    figures = [*_bars_of_ranks(result, theirs, networks[0], sizes, ask)]
    figures += [each for n in networks for each in _by_size(result, theirs, n, sizes)]
    figures += _by_network(result, theirs, networks, max(s for s in sizes if s <= WIDE))
    beside = {network: network or USUAL for network in networks}
    message = "; ".join(f"ours {n or 'as given'}, theirs {b}" for n, b in beside.items())
    sentences = [f"Recall in percent beside the published one of the same size ({message})."]
    return Section(
        "Ranks, dimensions, networks",
        sentences if theirs else [],
        tables,
        figures,
    )


def _size(run: Run) -> int:
    return int(run.planned.labels["embedding_size"])


def _own_network(run: Run) -> str:
    return run.planned.labels.get("backbone", "")


def runs_of(result: Results, network: str, size: int, loss: str) -> list[Run]:
    return [
        run
        for run in result.runs
        if (_own_network(run), _size(run)) == (network, size) and run.planned.labels["loss"] == loss
    ]


def _table(result: Results, theirs: Published, network: str, size: int, ask: Ask) -> Table:
    metrics = {f"R@{k}": f"recall@{k}" for k in ranks(ask)}
    rows = [
        (
            loss,
            runs_of(result, network, size, loss),
            dict(
                zip(metrics.values(), theirs.get((network or USUAL, size, loss), ()), strict=False)
            ),
        )
        for loss in result.methods()
    ]
    return rank_table(f"{network or 'ours'}, {size}-d", metrics, rows)


def _bars_of_ranks(
    result: Results, theirs: Published, network: str, sizes: Sequence[int], ask: Ask
) -> list[Drawn]:
    """Figure 27."""
    size = BARS if BARS in sizes else sizes[-1]
    ours: dict[str, dict[str, Point]] = {f"R@{k}": {} for k in ranks(ask)}
    other: dict[str, dict[str, Point]] = {f"R@{k}": {} for k in ranks(ask)}
    for loss in result.methods():
        runs, known = (
            runs_of(result, network, size, loss),
            theirs.get((network or USUAL, size, loss)),
        )
        for column, k in enumerate(ranks(ask)):
            ours[f"R@{k}"][loss] = point(loss, runs, f"recall@{k}")
            other[f"R@{k}"] |= {loss: Point(loss, known[column])} if known else {}
    return [
        drawn(f"ranks_by_loss_{whose}", f"Recall by loss at {size} dimensions, {whose}.",
              partial(bars, series, "recall, %"))
        for whose, series in (("ours", ours), ("published", other))
        if any(not math.isnan(p.value) for each in series.values() for p in each.values())
    ]  # fmt: skip


def _by_size(result: Results, theirs: Published, network: str, sizes: Sequence[int]) -> list[Drawn]:
    """Figures 28 to 30."""
    ours = {
        loss: [point(size, runs_of(result, network, size, loss), "recall@1") for size in sizes]
        for loss in result.methods()
    }
    beside = network or USUAL
    all_sizes = sorted({size for n, size, _ in theirs if n == beside})
    other = {
        loss: [Point(size, theirs[beside, size, loss][0]) for size in all_sizes]
        for loss in result.methods()
        if all_sizes
    }
    named = {"ours": (f"by_size_{network}".rstrip("_"), ours), f"{beside}, published": (
        f"by_size_published_{beside}", other)}  # fmt: skip
    return [
        drawn(name, f"Recall@1 against dimension, a line a loss: {whose}.",
              partial(lines, series, "dimension", "recall@1, %"))
        for whose, (name, series) in named.items()
        if series
    ]  # fmt: skip


def _by_network(
    result: Results, theirs: Published, networks: Sequence[str], size: int
) -> list[Drawn]:
    """Figure 31."""
    series: dict[str, dict[str, Point]] = {
        f"ours, {network or 'as given'}": {
            loss: point(loss, runs_of(result, network, size, loss), "recall@1")
            for loss in result.methods()
        }
        for network in networks
    }
    for network in dict.fromkeys(n for n, s, _ in theirs if s == size):
        series[f"published, {network}"] = {
            loss: Point(loss, theirs[network, size, loss][0])
            for loss in result.methods()
            if (network, size, loss) in theirs
        }
    caption = f"Recall@1 by network at {size} dimensions, grouped by loss."
    return [drawn("by_network", caption, lambda: bars(series, "recall@1, %"))]
