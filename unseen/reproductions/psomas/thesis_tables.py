"""The thesis' tables and figures, published values beside ours: ten losses by dimension and network
(tables 6 to 11, 20 and 21, figures 27 to 31), its protocols (tables 12 to 16) and its own losses
(tables 17 to 19)."""

import math
from collections.abc import Mapping, Sequence
from functools import partial

import matplotlib
import numpy as np

from unseen.reports.score_tables import metric_title
from unseen.reports.tables import Table
from unseen.reproductions.against_source import baselines_message, drawn, number, rank_table
from unseen.reproductions.charts import Point, bars, lines, point
from unseen.reproductions.numbers import as_number, rows_of, table
from unseen.reproductions.published_study import Evidence
from unseen.reproductions.request import Ask
from unseen.reproductions.source_values import BN_INCEPTION
from unseen.studies import study_figures
from unseen.studies.findings import Section
from unseen.studies.results import Results, Run, effect
from unseen.studies.study_figures import Drawn
from unseen.studies.tournament import Tournament, tournament
from unseen.studies.validity_checks import interval_text

R1, USUAL = "recall@1", "resnet50"  # the network beside ours where ours is none of theirs
CHOSEN = "MultiSimilarity"  # whose protocols the thesis compares
BESIDE = {"MultiSimilarity": "multi_similarity", "SoftTriple": "soft_triple",
          "ProxyAnchor": "proxy_anchor"}  # fmt: skip
RATIOS = {"70/30": 0.3, "80/20": 0.2, "90/10": 0.1, "95/5": 0.05}
BARS, WIDE = 128, 512  # sizes of figures 27 and 31
CARRY = (
    "One parameter at a time, the others at the values of the thesis' text; of values that tie the "
    "first one listed is taken. The print does not say whether found values are carried on."
)
RESULT = {  # what theirs found, as printed; gamma 58 is not on its own grid of tens
    "MultiSimilarity": "margin 0.8, alpha 18, beta 76, epsilon 0.4; 65.2 before",
    "SoftTriple": "margin 0.4, scale 78, rate 5e-5, gamma 58, tau 0.4; 66.8 before",
    "ProxyAnchor": "margin 0.1, scale 32, as by default; 68.1 before",
}
Place = tuple[str, int, str]  # network, size, loss
Published = Mapping[Place, Sequence[float]]  # recall by rank


def sections(evidence: Evidence) -> list[Section]:
    ask, results = evidence.ask, evidence.results
    losses, ratios, folds = (results[f"thesis_{name}"] for name in ("losses", "ratios", "folds"))
    return [
        _tournament(losses, evidence.data),
        _by_place(losses, ask),
        _ratios(ratios, evidence.data),
        _folds(folds, evidence.data),
        _tuning(results["thesis_search"], ratios, evidence.data),
        _own(results["thesis_own"], ask),
    ]


def ranks(ask: Ask) -> tuple[int, ...]:
    """Those that the thesis prints for the data."""
    return (1, 10, 100, 1000) if ask.published_data == "online_products" else (1, 2, 4, 8)


def published(data: str) -> dict[Place, list[float]]:
    """Their tables of the data, in percent; NaN where nothing is printed."""
    names = {"bninception": BN_INCEPTION}
    return {
        (names.get(str(r["network"]), str(r["network"])), int(as_number(r["dim"])), str(r["loss"])):
        [as_number(r[f"v{i}"]) for i in range(1, 5)]
        for r in rows_of("thesis_losses", data)
    }  # fmt: skip


def own_published(data: str) -> dict[str, list[float]]:
    """Loss -> recall by rank of tables 17 to 19, with the author's own."""
    theirs = published(data)
    known = {loss: v for (n, size, loss), v in theirs.items() if (n, size) == (BN_INCEPTION, WIDE)}
    own = [[as_number(r[f"v{i}"]) for i in range(1, 5)] for r in rows_of("thesis_own_loss", data)]
    return known | ({"variant 2": own[0]} if own else {})


def protocol(name: str, data: str) -> dict[str, dict[str, float]]:
    """Setting, or the loss where there is none -> numbers of a table that is of CUB-200 alone."""
    return {
        (f"{setting:g}" if isinstance(setting := row["setting"], float)
         else str(setting or row["loss"])): {
            key: value for key, value in row.items() if isinstance(value, float)
        }
        for row in table("thesis_protocols")
        if row["table"] == name and data == "cub200"
    }  # fmt: skip


def place_of(results: Results, experiment: str) -> tuple[str, int]:
    """Network and size of an experiment; without a network of theirs the usual one."""
    labels = next(
        run.planned.labels for run in results.runs if results.experiment(run) == experiment
    )
    return labels.get("backbone", USUAL), int(labels["embedding_size"])


def _by_place(result: Results, ask: Ask) -> Section:
    """Every rank, and how recall goes with dimension and network."""
    theirs = published(ask.published_data)
    experiments = {place_of(result, each): each for each in result.experiments()}
    networks = list(dict.fromkeys(network for network, _ in experiments))
    sizes = sorted({size for _, size in experiments})

    def runs(network: str, size: int, loss: str) -> list[Run]:
        return result.of(experiments[network, size], loss)

    is_theirs = any("backbone" in run.planned.labels for run in result.runs)
    titles = {network: network if is_theirs else "ours" for network in networks}
    metrics = {f"R@{k}": f"recall@{k}" for k in ranks(ask)}
    tables = [
        rank_table(f"{titles[network]}, {size}-d", metrics, [
            (loss, runs(network, size, loss),
             dict(zip(metrics.values(), theirs.get((network, size, loss), ()), strict=False)))
            for loss in result.methods()
        ])
        for network in networks for size in sizes
    ]  # fmt: skip
    size = BARS if BARS in sizes else sizes[-1]  # figure 27
    at_ranks: dict[str, dict[str, dict[str, Point]]] = {"ours": {}, "published": {}}
    for column, (title, metric) in enumerate(metrics.items()):
        for loss in result.methods():
            known = theirs.get((networks[0], size, loss), [math.nan] * len(metrics))[column]
            ours = point(loss, runs(networks[0], size, loss), metric)
            at_ranks["ours"].setdefault(title, {})[loss] = ours
            at_ranks["published"].setdefault(title, {})[loss] = Point(loss, known)
    figures = [
        drawn(f"ranks_by_loss_{whose}", f"Recall by loss at {size} dimensions, {whose}.",
              partial(bars, series, "loss", "recall, %"))
        for whose, series in at_ranks.items()
        if any(not math.isnan(p.value) for each in series.values() for p in each.values())
    ]  # fmt: skip
    for network in networks:  # figures 28 to 30
        by_size = {loss: [point(size, runs(network, size, loss), R1) for size in sizes]
                   for loss in result.methods()}  # fmt: skip
        printed_sizes = sorted({size for name, size, _ in theirs if name == network})
        printed = {loss: [Point(size, theirs[network, size, loss][0]) for size in printed_sizes]
                   for loss in result.methods() if printed_sizes}  # fmt: skip
        title = f"by_size_{network}" if is_theirs else "by_size"
        named = {title: ("ours", by_size), f"by_size_published_{network}": (
            f"{network}, published", printed)}  # fmt: skip
        figures += [
            drawn(name, f"Recall@1 against dimension, a line a loss: {whose}.",
                  partial(lines, series, "dimension", "recall@1, %"))
            for name, (whose, series) in named.items() if series
        ]  # fmt: skip
    figures.append(_by_network(result, theirs, experiments, titles))
    sentences = [f"Recall in percent beside the published one of the same size and network ({USUAL}"
                 " where ours is none of theirs)."]  # fmt: skip
    return Section("Ranks, dimensions, networks", sentences * bool(theirs), tables, figures)


def _by_network(
    result: Results, theirs: Published, experiments: Mapping[tuple[str, int], str],
    titles: Mapping[str, str],
) -> Drawn:  # fmt: skip
    """Figure 31."""
    size = max(size for _, size in experiments if size <= WIDE)
    series: dict[str, dict[str, Point]] = {
        f"ours, {title}": {
            loss: point(loss, result.of(experiments[network, size], loss), R1)
            for loss in result.methods()
        }
        for network, title in titles.items()
    }
    for (network, own_size, loss), values in theirs.items():
        if own_size == size and loss in result.methods():
            series.setdefault(f"published, {network}", {})[loss] = Point(loss, values[0])
    caption = f"Recall@1 by network at {size} dimensions, grouped by loss."
    return drawn("by_network", caption, lambda: bars(series, "loss", "recall@1, %"))


def _tournament(result: Results, data: str) -> Section:
    """Table 11: methods that have a run of every experiment."""
    known: dict[str, dict[str, float]] = {}
    for (network, size, loss), row in published(data).items():
        known.setdefault(f"{network} {size}", {})[loss] = row[0]
    done = [run for run in result.runs if run.state == "done"]
    scores = {
        each: {m: point(0, result.of(each, m), R1).value for m in result.methods()}
        for each in result.experiments()
    }
    full = [m for m in result.methods()
            if not any(math.isnan(row[m]) for row in scores.values())]  # fmt: skip
    if len(full) < 3 or not done:
        few = "Fewer than three losses have finished everywhere: there is no tournament."
        return Section("Tournament", [few])
    theirs = tournament(known) if known else None
    ours = tournament({each: {m: row[m] for m in full} for each, row in scores.items()})
    sentences = [
        _differs_significantly("Ours", ours),
        *([] if theirs is None else [_differs_significantly("Published", theirs)]),
        *baselines_message(result),
    ]
    return Section(
        "Tournament", sentences, [_places(scores, ours, theirs)], _drawn_places(ours, theirs)
    )


def _differs_significantly(whose: str, result: Tournament) -> str:
    count = len(result.experiments)
    gap = result.places[-1].mean - result.places[0].mean
    verb = "are" if gap > result.critical_difference else "are not"
    return (
        f"{whose}: over {count} experiments mean ranks must differ by "
        f"{result.critical_difference:.1f} (Nemenyi): the first and the last {verb} significantly "
        f"different, {gap:.1f} apart."
    )


def _places(
    scores: Mapping[str, Mapping[str, float]], ours: Tournament, theirs: Tournament | None
) -> Table:
    ranked = {
        place.method: (str(i), f"{place.mean:.2f} ±{place.std:.2f}")
        for i, place in enumerate(theirs.places if theirs else (), start=1)
    }
    rows = [
        [place.method, str(i), ranked.get(place.method, ("–",))[0], f"{place.mean:.2f}",
         ranked.get(place.method, ("–",))[-1], *(number(row[place.method])
                                                 for row in scores.values())]
        for i, place in enumerate(ours.places, start=1)
    ]  # fmt: skip
    heads = ["loss", "place", "published place", "mean rank", "published mean rank"]
    heads += [f"{metric_title(R1)} %, {each}" for each in scores]
    caption = "±: standard deviation of the published ranks over 12 experiments, as in the thesis."
    return Table(heads, rows, caption)


def _drawn_places(ours: Tournament, theirs: Tournament | None) -> list[Drawn]:
    made = []
    for name, title, result in (("ours", "Ours", ours), ("published", "Published", theirs)):
        if result is not None:
            message = f"{title}: {study_figures.cd_caption(result)}"
            draw = partial(study_figures.critical_difference, result)
            made.append(drawn(f"places_{name}", message, draw))
            caption = f"{title}: rank of every loss in every experiment; 1 is best."
            made.append(drawn(f"ranks_{name}", caption, partial(study_figures.ranks, result)))
    return made


def _ratios(result: Results, data: str) -> Section:
    theirs = protocol("fixed validation ratio", data)
    rows, tests = [], {}
    for loss in result.experiments():
        for ratio in RATIOS:
            runs = result.of(loss, ratio)
            test = tests[loss, ratio] = point(ratio, runs, R1)
            known = theirs.get(ratio, {}) if loss == CHOSEN else {}
            printed = [number(known.get(key)) for key in ("validation_r1", "test_r1")]
            rows.append([loss, ratio, number(_selected(runs)), number(test.value), *printed])
    sentences = ["Validation recall is far above test recall, because few classes compete."]
    series = {"test classes": [tests[CHOSEN, ratio] for ratio in RATIOS]}
    dashed = "test classes, published"
    if theirs:
        series[dashed] = [Point(r, row["test_r1"]) for r, row in theirs.items()]
    figure = drawn(
        "ratios", f"Recall@1 of {CHOSEN} on test classes by the share of training classes kept for "
        "training" + ("; dashed as published." if theirs else "."),
        lambda: lines(series, "training / validation classes, %", "recall@1, %", [dashed]),
    )  # fmt: skip
    heads = ["loss", "ratio", "validation %", "test %", "published validation", "published test"]
    return Section("Validation ratios", sentences, [Table(heads, rows)], [figure])


def _selected(runs: Sequence[Run]) -> float:
    """The mean score on validation classes, in percent."""
    values = [100 * run.selection.value for run in runs if run.selection]
    return float(np.mean(values)) if values else math.nan


def _folds(result: Results, data: str) -> Section:
    """Mean and deviation, then validation and test of every fold; their order is by chance."""
    theirs, rows = protocol("10-fold", data), []
    for loss in result.methods():
        scores = [100 * r.score(R1) for r in result.of("", loss) if r.state == "done"]
        spread = float(np.std(scores, ddof=1)) if len(scores) > 1 else math.nan
        known = theirs.get(BESIDE[loss], {})
        printed = [number(known.get(key), 2) for key in ("test_r1", "test_std")]
        mean = float(np.mean(scores)) if scores else math.nan
        rows.append([loss, str(len(scores)), number(mean, 2), number(spread, 2), *printed])
    heads = ["loss", "folds", "test R@1 %", "s", "published R@1", "published s"]
    folds, cells = protocol(f"10-fold {BESIDE[CHOSEN]} fold", data), []
    for run in result.of("", CHOSEN):
        fold = run.replicate[1] + 1
        known = folds.get(str(fold), {})
        ours = [number(_selected([run]), 2), number(100 * run.score(R1), 2)]
        printed = [number(known.get(key), 2) for key in ("validation_r1", "test_r1")]
        cells.append([str(fold), *ours, *printed])
    columns = ["fold", "validation R@1 %", "test R@1 %", "published validation", "published test"]
    each = Table(columns, cells, f"{CHOSEN}, each fold once for validation.")
    return Section("Cross validation by class", [], [Table(heads, rows), each])


def _tuning(result: Results, plain: Results, data: str) -> Section:
    theirs, rows = protocol("tuned on 90/10", data), []
    for loss in result.methods():
        runs, default = result.of("", loss), plain.of(loss, "90/10")
        chosen = runs[0].planned.parameters if runs else {}
        words = ", ".join(f"{key.partition('.')[2]} {value:g}" for key, value in chosen.items())
        before, after = (number(point(0, group, R1).value) for group in (default, runs))
        printed = number(theirs.get(BESIDE[loss], {}).get("test_r1"))
        rows.append([loss, words, before, after, interval_text(effect(default, runs, R1)), printed,
                     RESULT[loss] if theirs else "–"])  # fmt: skip
    heads = ["loss", "chosen", "default R@1 %", "tuned R@1 %", "95 % interval", "published tuned",
             "its values"]  # fmt: skip
    with matplotlib.rc_context(study_figures.STYLE):
        curves = study_figures.search(result)
    return Section("Coordinate search", [CARRY], [Table(heads, rows)], curves)


def _own(result: Results, ask: Ask) -> Section:
    """Tables 17 to 19: the author's own loss beside all ten, at every rank."""
    theirs = own_published(ask.published_data)
    metrics = {f"R@{k}": f"recall@{k}" for k in ranks(ask)}
    rows = [
        (loss, result.of("", loss), dict(zip(metrics.values(), theirs.get(loss, ()), strict=False)))
        for loss in result.methods()
    ]
    return Section("The author's own losses", [], [rank_table("loss", metrics, rows)])
