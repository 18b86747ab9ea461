"""Ten losses in a tournament, three ways to choose a model, two losses of the author's own.

Source   B. Psomas, Metric Learning: A Deep Dive, Master's thesis, National and Kapodistrian
         University of Athens, 2020, chapters 5 and 6
"""

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import matplotlib
import numpy as np
from scipy.stats import spearmanr

from unseen.reports.tables import metric_title
from unseen.studies import figures
from unseen.studies.document import Table
from unseen.studies.effects import effects_drawn
from unseen.studies.gates import Arm, compared, counted, effect_text, interval_text
from unseen.studies.plan import Plan, Values
from unseen.studies.published import pair_curves
from unseen.studies.published.charts import Point, lines, point
from unseen.studies.published.comparison import (
    baselines_told,
    drawn,
    fisher,
    number,
    seeds_told,
    signed,
)
from unseen.studies.published.numbers import table
from unseen.studies.published.objectives import CLASS_LR
from unseen.studies.published.page import Section
from unseen.studies.published.source_values import PSOMAS
from unseen.studies.published.study import Ask, PublishedStudy, Told
from unseen.studies.published.training_space import of_runs
from unseen.studies.results import Results, effect
from unseen.studies.tables import judged_tables
from unseen.studies.tournament import Tournament, tournament

LOSSES: dict[str, Values] = {
    "Contrastive": {"name": "contrastive"},
    "Triplet": {"name": "triplet"},
    "LiftedStructure": {"name": "lifted_structure"},
    "NPair": {"name": "n_pair"},
    "ProxyNCA": {"name": "proxy_nca", "lr": CLASS_LR},
    "Margin": {"name": "margin"},
    "ArcFace": {"name": "arcface", "lr": CLASS_LR},
    "MultiSimilarity": {"name": "multi_similarity"},
    "SoftTriple": {"name": "soft_triple", "lr": CLASS_LR},
    "ProxyAnchor": {"name": "proxy_anchor"},
}
CHOSEN = "MultiSimilarity"  # whose protocols the thesis compares
BESIDE = {"MultiSimilarity": "multi_similarity", "SoftTriple": "soft_triple",
          "ProxyAnchor": "proxy_anchor"}  # fmt: skip
RATIOS = {"70/30": 0.3, "80/20": 0.2, "90/10": 0.1, "95/5": 0.05}
GRIDS: dict[str, dict[str, list[float]]] = {  # quick: three values around theirs
    "MultiSimilarity": {
        "loss.base": [0.2, 0.5, 0.8],
        "loss.alpha": [2.0, 10.0, 18.0],
        "loss.beta": [26.0, 50.0, 76.0],
    }
}
FULL_GRIDS: dict[str, dict[str, list[float]]] = {
    "MultiSimilarity": {
        "loss.base": [i / 10 for i in range(11)],
        "loss.alpha": [2.0 * i for i in range(1, 51)],
        "loss.beta": [2.0 * i for i in range(1, 51)],
    },
    "ProxyAnchor": {
        "loss.delta": [i / 10 for i in range(11)],
        "loss.alpha": [2.0 * i for i in range(1, 51)],
    },
}
OWN = {"variant 1": 1, "variant 2": 2}


class Thesis(PublishedStudy):
    source = "Psomas 2020, chapters 5 and 6 (ResNet-50, BN-Inception, GoogLeNet, 64 to 1024-d)"
    shows = "ten losses in a tournament, validation ratios, folds, search, the author's own losses"
    source_values = PSOMAS

    def plans(self, ask: Ask) -> list[Plan]:
        quick = ask.is_quick
        sizes = [64, 128] if quick else [64, 128, 512, 1024]
        factors: Values = {"loss": _settings(LOSSES), "embedding_size": sizes}
        if ask.has_pictures and not quick:
            factors["backbone"] = ["resnet50", "bn_inception", "googlenet"]
        some = {CHOSEN: LOSSES[CHOSEN]} if quick else {n: LOSSES[n] for n in BESIDE}
        one = _settings(some)
        shares = {name: {"validation_share": share} for name, share in RATIOS.items()}
        folded: Values = {"protocol": "k_fold", "folds": 5 if quick else 10}
        own = _settings({"ProxyAnchor": LOSSES["ProxyAnchor"]}) | {
            name: {"loss": {"name": "proxy_repulsion", "preset": "thesis", "variant": variant}}
            for name, variant in OWN.items()
        }
        grids = GRIDS if quick else FULL_GRIDS
        tuned = _settings({name: LOSSES[name] for name in grids})
        few = 1 if quick else 3
        return [
            _plan(ask, "thesis_losses", "Ten losses.", factors, seeds=few),
            _plan(ask, "thesis_ratios", "Shares of validation classes.",
                  {"ratio": shares, "loss": one}, seeds=few),
            _plan(ask, "thesis_folds", "Cross validation by class.", {"loss": one}, folded, 1),
            _plan(ask, "thesis_search", "One parameter at a time.", {"loss": tuned},
                  seeds=few, search=_search(ask, grids)),
            _plan(ask, "thesis_own", "The author's own losses.", {"loss": own},
                  seeds=2 if quick else 5),
        ]  # fmt: skip

    def measure(self, ask: Ask, results: Mapping[str, Results], tell: Told) -> dict[str, Any]:
        """Pair weights of every loss on one batch of training items."""
        found = results["thesis_losses"]
        first = found.experiments()[0]
        done = [run for run in found.of(first, CHOSEN) if run.state == "done"][:1]
        batches = list(of_runs(done, pair_curves.batch_of, tell).values())
        runs = [run for method in found.methods() for run in found.of(first, method)[:1]]
        return {"pair_weights": pair_curves.curves(runs, batches[0]) if batches else {}}

    def sections(
        self, ask: Ask, results: Mapping[str, Results], measured: dict[str, Any]
    ) -> list[Section]:
        return [
            _tournament(results["thesis_losses"], ask),
            _ratios(results["thesis_ratios"], ask),
            _folds(results["thesis_folds"], ask),
            _tuning(results, ask),
            _own(results["thesis_own"], ask),
            _pair_weights(measured.get("pair_weights", {})),
        ]

    def differences(self, ask: Ask) -> list[str]:
        quick = [
            "Quick budget: one seed, sizes 64 and 128 of one network (theirs: 12 experiments), 5 "
            "folds of one loss, a search over three values a parameter."
        ]
        return [
            f"Data: {ask.data}; the published column is of {ask.published_title}.",
            "The epoch is chosen on validation classes; the thesis' tournament sets none aside.",
            "All losses draw 5 items of a class (theirs: some draw at random); values as in the "
            f"thesis, class parameters learn at {CLASS_LR:g}.",
            *(quick if ask.is_quick else []),
        ]


def _settings(losses: Mapping[str, Values]) -> dict[str, Values]:
    return {name: {"loss": {"preset": "thesis"} | loss} for name, loss in losses.items()}


def _plan(
    ask: Ask, name: str, about: str, factors: Values, more: Values | None = None, seeds: int = 1,
    **rest: Any,
) -> Plan:  # fmt: skip
    config: Values = {
        "sampler": {"name": "samples_per_class", "preset": "thesis"},
        "batch_size": 100,
        "metrics": [f"recall@{k}" for k in (1, 2, 4, 8)] + ["map_at_r"],
    }
    rest = {"compare": "ratio" if "ratio" in factors else "loss"} | rest
    return ask.plan(name, about, factors, config | (more or {}), seeds, **rest)


def _search(ask: Ask, grids: Mapping[str, Mapping[str, list[float]]]) -> Values:
    parameters = [
        {"key": key, "values": values, "where": {"loss": loss}}
        for loss, grid in grids.items()
        for key, values in grid.items()
    ]
    epochs = max(1, ask.epochs // 2)
    return {"mode": "coordinate", "config": {"epochs": epochs}, "parameters": parameters}


def _published(ask: Ask) -> dict[str, dict[str, float]]:
    """Experiment -> loss -> recall@1 in percent."""
    found: dict[str, dict[str, float]] = {}
    for row in table("thesis_losses"):
        if row["dataset"] == ask.published_data and isinstance(row["v1"], float):
            size = row["dim"]
            assert isinstance(size, float)
            found.setdefault(f"{row['network']} {size:.0f}", {})[str(row["loss"])] = row["v1"]
    return found


def _protocol(name: str, ask: Ask) -> list[dict[str, Any]]:
    """The rows of one of the tables that the thesis has on CUB-200 alone."""
    is_theirs = ask.published_data == "cub200"
    return [row for row in table("thesis_protocols") if row["table"] == name and is_theirs]


def _tournament(found: Results, ask: Ask) -> Section:
    known = _published(ask)
    theirs = tournament(known) if known else None
    ours = figures.played(found)
    if ours is None or not any(run.state == "done" for run in found.runs):
        return Section("Tournament", ["No run has finished: there is no tournament."])
    best, worst = ours.places[0], ours.places[-1]
    sentences = [
        f"{best.method} comes first with a mean rank of {best.mean:.2f}, {worst.method} last with "
        f"{worst.mean:.2f}.",
        _told_apart(ours),
        *([] if theirs is None else _agreement(ours, theirs)),
        *baselines_told(found),
    ]
    return Section(
        "Tournament", sentences, [_places(found, ours, theirs)], _drawn_places(ours, theirs)
    )


def _agreement(ours: Tournament, theirs: Tournament) -> list[str]:
    published = {place.method: place.mean for place in theirs.places}
    means = [place.mean for place in ours.places]
    r: Any = spearmanr(means, [published[place.method] for place in ours.places])
    low, high = fisher(float(r.statistic), len(means))
    best, worst = theirs.places[0], theirs.places[-1]
    return [
        f"Published: {best.method} first ({best.mean:.2f}), {worst.method} last ({worst.mean:.2f})."
        f" {_told_apart(theirs)}",
        f"The order agrees with the published one by Spearman's r = {r.statistic:.2f} (95 % "
        f"interval {low:.2f} to {high:.2f}, {len(means)} losses).",
    ]


def _told_apart(result: Tournament) -> str:
    count = len(result.experiments)
    gap = result.places[-1].mean - result.places[0].mean
    verb = "are" if gap > result.critical_difference else "are not"
    return (
        f"Over {count} experiments mean ranks must differ by {result.critical_difference:.1f} "
        f"(Nemenyi): the first and the last {verb} told apart, {gap:.1f} apart."
    )


def _places(found: Results, ours: Tournament, theirs: Tournament | None) -> Table:
    known = theirs.places if theirs else ()
    ranked = {
        place.method: (str(i), f"{place.mean:.2f} ±{place.std:.2f}")
        for i, place in enumerate(known, start=1)
    }
    rows = []
    for number_, place in enumerate(ours.places, start=1):
        other, other_mean = ranked.get(place.method, ("–", "–"))
        scores = [point(0, found.of(e, place.method), "recall@1") for e in found.experiments()]
        rows.append([
            place.method, str(number_), other, f"{place.mean:.2f}", other_mean,
            *["failed" if math.isnan(s.value) else f"{s.value:.1f}" for s in scores],
        ])  # fmt: skip
    heads = ["loss", "place", "published place", "mean rank", "published mean rank"]
    heads += [f"{metric_title('recall@1')} %, {e}" for e in found.experiments()]
    caption = "±: standard deviation of the published ranks over 12 experiments, as in the thesis."
    return Table(heads, rows, caption)


def _drawn_places(ours: Tournament, theirs: Tournament | None) -> list[figures.Drawn]:
    made = []
    for name, title, result in (("ours", "Ours", ours), ("published", "Published", theirs)):
        if result is None:
            continue
        message = f"{title}: {figures.cd_caption(result)}"
        made.append(drawn(f"places_{name}", message, partial(figures.critical_difference, result)))
        caption = f"{title}: rank of every loss in every experiment; 1 is best."
        made.append(drawn(f"ranks_{name}", caption, partial(figures.ranks, result)))
    return made


def _ratios(found: Results, ask: Ask) -> Section:
    theirs = {str(row["setting"]): row for row in _protocol("fixed validation ratio", ask)}
    rows, tests = [], {}
    for loss in found.experiments():
        for ratio in RATIOS:
            runs = found.of(loss, ratio)
            chosen = [100 * run.selection.value for run in runs if run.selection]
            test = point(ratio, runs, "recall@1")
            tests[f"{loss} {ratio}"] = test
            known = theirs.get(ratio, {}) if loss == CHOSEN else {}
            rows.append([
                loss, ratio, number(float(np.mean(chosen)) if chosen else None), number(test.value),
                number(known.get("validation_r1")), number(known.get("test_r1")),
            ])  # fmt: skip
    known_tests = {name: p for name, p in tests.items() if not math.isnan(p.value)}
    sentences = ["No run has finished."]
    if known_tests:
        best = max(known_tests, key=lambda name: known_tests[name].value)
        worst = min(known_tests, key=lambda name: known_tests[name].value)
        sentences = [
            f"Test recall@1 is highest with {best} ({known_tests[best].value:.1f} %) and lowest "
            f"with {worst} ({known_tests[worst].value:.1f} %); published on CUB-200: highest with "
            "90/10 (64.4 %), lowest with 70/30 (61.3 %).",
            "Validation recall is far above test recall, because few classes compete. "
            + seeds_told(found),
        ]
    series = {
        "test classes": [tests[f"{CHOSEN} {ratio}"] for ratio in RATIOS],
        "test classes, published": [Point(r, float(row["test_r1"])) for r, row in theirs.items()],
    }
    figure = drawn(
        "ratios", f"Recall@1 of {CHOSEN} on test classes by the share of training classes kept for "
        "training; dashed as published.",
        lambda: lines(series, "training / validation classes, %", "recall@1, %",
                      ["test classes, published"]),
    )  # fmt: skip
    heads = ["loss", "ratio", "validation %", "test %", "published validation", "published test"]
    return Section("Validation ratios", sentences, [Table(heads, rows)], [figure])


def _folds(found: Results, ask: Ask) -> Section:
    theirs = {str(row["loss"]): row for row in _protocol("10-fold", ask)}
    rows, sentences = [], []
    for loss in found.methods():
        scores = [100 * r.score("recall@1") for r in found.of("", loss) if r.state == "done"]
        spread = float(np.std(scores, ddof=1)) if len(scores) > 1 else math.nan
        row = theirs.get(BESIDE[loss], {})
        known = [number(row.get(key), 2) for key in ("test_r1", "test_std")]
        mean = float(np.mean(scores)) if scores else math.nan
        rows.append([loss, str(len(scores)), number(mean, 2), number(spread, 2), *known])
        sentences.append(
            f"{loss}: {number(mean, 2)} ±{number(spread, 2)} over {len(scores)} folds (sample "
            f"standard deviation); published {known[0]} ±{known[1]} over 10 folds."
        )
    heads = ["loss", "folds", "test R@1 %", "s", "published R@1", "published s"]
    return Section("Cross validation by class", sentences, [Table(heads, rows)])


def _tuning(results: Mapping[str, Results], ask: Ask) -> Section:
    found, plain = results["thesis_search"], results["thesis_losses"]
    size = next((e for e in plain.experiments() if e.startswith("embedding_size 128")), "")
    theirs = {str(row["loss"]): row["test_r1"] for row in _protocol("tuned on 90/10", ask)}
    rows, sentences = [], []
    for loss in found.methods():
        runs = found.of("", loss)
        default = plain.of(size, loss)
        gain = effect(default, runs, "recall@1")
        chosen = runs[0].cell.parameters if runs else {}
        words = ", ".join(f"{key.partition('.')[2]} {value:g}" for key, value in chosen.items())
        before, after = (point(0, group, "recall@1").value for group in (default, runs))
        rows.append([loss, words, number(before), number(after), interval_text(gain),
                     number(theirs.get(BESIDE[loss]))])  # fmt: skip
        sentences.append(
            f"{loss}: the search on validation classes chose {words or 'nothing'}; test recall@1 "
            f"{number(before)} with the values of the thesis' text, {number(after)} with these "
            f"(difference {interval_text(gain)}). Published for "
            f"{loss}: {number(theirs.get(BESIDE[loss]))}"
            + (" with margin 0.8, alpha 18, beta 76; 65.2 before." if loss == CHOSEN else ".")
        )
    heads = ["loss", "chosen", "default R@1 %", "tuned R@1 %", "95 % interval", "published tuned"]
    with matplotlib.rc_context(figures.STYLE):
        curves = figures.search(found)
    return Section("Coordinate search", sentences, [Table(heads, rows)], curves)


def _own(found: Results, ask: Ask) -> Section:
    theirs = {str(row["dataset"]): row["v1"] for row in table("thesis_own_loss")}
    anchor = _published(ask).get("bninception 512", {}).get("ProxyAnchor", math.nan)
    value = theirs.get(ask.published_data)
    own = value if isinstance(value, float) else math.nan
    rows, judged = [], []
    for loss in found.methods():
        at = point(0, found.of("", loss), "recall@1")
        half = "" if math.isnan(at.half) else f" ±{at.half:.1f}"
        known = {"ProxyAnchor": anchor, "variant 2": own}.get(loss, math.nan)
        rows.append([loss, number(at.value) + half, number(known)])
        if loss != "ProxyAnchor":
            arms = Arm(found, "", "ProxyAnchor"), Arm(found, "", loss)
            judged.append(compared(*arms, published=known - anchor))
    words = "; ".join(f"{each.arm} {effect_text(each.effect)}" for each in judged)
    caption = (
        f"Against ProxyAnchor, in points of recall@1: {words}. "
        f"Published (BN-Inception, 512-d): {number(own)} against {number(anchor)}, "
        f"{signed(own - anchor)}: {counted(judged)}."
    )
    shown = [Table(["loss", "R@1 %", "published"], rows), *judged_tables(judged)]
    drawings = effects_drawn(judged, on_test=found.on_test)
    return Section("The author's own losses", [caption], shown, drawings)


def _pair_weights(found: pair_curves.Curves) -> Section:
    if not found:
        return Section("Pair weights", ["No finished run to take a batch from."])
    steepest = {
        loss: max(sides["negative"], key=lambda p: p[1], default=[math.nan, math.nan])
        for loss, sides in found.items()
    }
    words = "; ".join(
        f"{loss} at {at[0]:.2f} ({at[1]:.1f} times the mean)" if at[1] > 0 else f"{loss} nowhere"
        for loss, at in steepest.items()
    )
    caption = (
        f"Pairs of two classes are pushed hardest, by similarity: {words}. Losses with class "
        "parameters have no pairs."
    )
    figure = drawn(
        "pair_weights",
        "Mean |dL/dS| of pairs by their similarity, over its mean on the batch: five training "
        f"items of each of twenty classes, embedded by the run of {CHOSEN}; miners included.",
        lambda: pair_curves.figure(found),
    )
    return Section("Pair weights", [caption], [], [figure])
