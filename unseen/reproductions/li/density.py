"""Density adaptivity, with and without: every class learns how densely it may lie.

Source   Y. Li et al., Deep Metric Learning with Density Adaptivity, IEEE TMM 2020,
         https://arxiv.org/abs/1909.03909, table 1, figures 4 to 8
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from torch import Tensor

from unseen.evaluation.evaluate import evaluate
from unseen.reports.score_tables import metric_title
from unseen.reports.tables import Table
from unseen.reproductions import maps
from unseen.reproductions.against_source import (
    baselines_message,
    drawn,
    number,
    seeds_message,
    signed,
)
from unseen.reproductions.charts import Point, bars, lines, point
from unseen.reproductions.li import density_table
from unseen.reproductions.li.density_table import LIFTED
from unseen.reproductions.numbers import table
from unseen.reproductions.published_study import Ask, Message, PublishedStudy
from unseen.reproductions.source_values import LI
from unseen.reproductions.training_space import of_runs
from unseen.studies.effect_figure import effects_drawn
from unseen.studies.findings import Section
from unseen.studies.results import Results, Run, effect
from unseen.studies.study_figures import Drawn
from unseen.studies.study_file import Plan, Values
from unseen.studies.study_tables import evaluated_tables
from unseen.studies.validity_checks import Compared, MethodRuns, compared, effect_text

RANKS = (1, 2, 4, 8, 16, 32, 64, 128)
METRICS = ("recall@1", "nmi")
LOSSES = ("contrastive", "triplet", "n_pair")
PLAIN, DENSITY, ALONE = "none", "density", "density, no inter-class term"
ENTROPY, ORTHOGONAL = "entropy", "orthogonal"
CURVE = "contrastive"  # their best: of the map of images, and of our quick weight curve
TARGET_RATE = 10.0  # of the targets over the network's rate
WEIGHT = 10.0


class Density(PublishedStudy):
    source = "Li et al. 2020, table 1, figures 1 and 3 to 9 (GoogLeNet, 128-d)"
    shows = "the density term with and without, its weight, and against entropy and orthogonality"
    origin = LI

    def plans(self, ask: Ask) -> list[Plan]:
        seeds = 2 if ask.is_quick else 5
        weights = (1.0, 5.0, 25.0) if ask.is_quick else (0.5, 1.0, 2.0, 5.0, 7.0, 15.0, 20.0, 25.0)
        curve = (CURVE,) if ask.is_quick else LOSSES
        others = {
            ALONE: _term(WEIGHT, preset="targets_only"),
            ENTROPY: {"regularizers": [{"name": "entropy"}]},
            ORTHOGONAL: {"regularizers": [{"name": "global_orthogonal"}]},
        }
        few = 1 if ask.is_quick else seeds
        main = {PLAIN: {"regularizers": []}, DENSITY: _term(WEIGHT)}
        tried = {f"{weight:g}": _term(weight) for weight in weights}
        plain: dict[str, Values] = {PLAIN: {"regularizers": []}}
        return [
            _plan(ask, "density", "With and without the density term.", main, LOSSES, seeds),
            _plan(ask, density_table.OTHERS, "Another loss of table 1.", plain, (LIFTED,), few),
            _plan(ask, "density_terms", "Other terms beside it.", others, LOSSES, few),
            _plan(ask, "density_weight", "The weight of the density term.", tried, curve, few),
        ]

    def measure(
        self, ask: Ask, results: Mapping[str, Results], progress: Message
    ) -> dict[str, Any]:
        main = results["density"]
        trained = of_runs(main.runs, _train_recall, progress)
        first = [
            run for term in (PLAIN, DENSITY) for loss in LOSSES for run in main.of(loss, term)[:1]
        ]
        first = [run for run in first if run.state == "done"]
        names = {run.planned.key: _panel(run) for run in first}
        drawn_maps = {
            kind: {names[key]: each for key, each in of_runs(first, make, progress).items()}
            for kind, make in (("ten", maps.of_some_classes), ("all", maps.of_all_classes))
        }
        shown = [run for run in first if _panel(run) == f"{CURVE}, with"]
        image_map = maps.of_test(shown[0], progress) if shown else None
        return {"train": trained, "maps": drawn_maps, "test_map": image_map}

    def sections(
        self, ask: Ask, results: Mapping[str, Results], measured: dict[str, Any]
    ) -> list[Section]:
        theirs = _published(ask.published_data)
        return [
            _with_and_without(results, theirs),
            density_table.section(results, theirs, ask),
            _inter_class(results),
            _weights(results),
            _against_others(results),
            _train_and_test(results, measured.get("train", {})),
            *_maps(measured),
        ]

    def differences(self, ask: Ask) -> list[str]:
        few = ["One seed for all but the first comparison; the weight curve is that of "
               f"{CURVE} alone."] if ask.is_quick else []  # fmt: skip
        return [
            f"Data: {ask.data}; the published column is of {ask.published_title}.",
            "The epoch is chosen on validation classes; they do not say how theirs was chosen.",
            f"Targets learn {TARGET_RATE:g} times as fast as the head, so that in a short run they "
            "can move about as far as in theirs; the paper does not say at what rate.",
            "The spread before the embedding (their D0) is taken over the training set with the "
            "initial network; the paper does not say.",
            "Entropy and orthogonality weigh 1; their weights and the form of the first are not "
            "given. The weight and comparison figures have no printed values.",
            *few,
        ]


def _plan(
    ask: Ask, name: str, about: str, terms: Mapping[str, Values], losses: Sequence[str], seeds: int
) -> Plan:
    ranks = dict.fromkeys([*RANKS, *density_table.ranks(ask)])
    config: Values = {"batch_size": 100, "metrics": [f"recall@{k}" for k in ranks] + ["nmi"]}
    factors = {"term": terms, "loss": {loss: {"loss": _loss(loss)} for loss in losses}}
    return ask.plan(name, about, factors, config, seeds, source=LI, compare="term")


def _loss(name: str) -> Values:
    return {"name": name} | ({} if name == LIFTED else {"preset": "density"})


def _term(weight: float, **values: Any) -> Values:
    regularizer = {"name": "density", "weight": weight, "lr_factor": TARGET_RATE} | values
    return {"regularizers": [regularizer]}


def _published(data: str) -> dict[str, dict[str, float]]:
    """Method -> metric -> percent; with the term under the loss's name and `density`."""
    result: dict[str, dict[str, float]] = {}
    for row in table("density_table1"):
        if row["dataset"] == data and isinstance(row["value"], float):
            metric = str(row["metric"])
            title = metric if metric == "nmi" else f"recall@{metric[1:]}"
            result.setdefault(str(row["method"]), {})[title] = row["value"]
    return result


def _train_recall(embeddings: Tensor, labels: Tensor) -> dict[str, Any]:
    score = evaluate(embeddings, labels, metrics=("recall@1",), resamples=0, non_finite="worst")
    return {"recall@1": score.values["recall@1"].value}


def _panel(run: Run) -> str:
    with_it = "with" if run.planned.labels["term"] == DENSITY else "without"
    return f"{run.planned.labels['loss']}, {with_it}"


def _text(at: Point) -> str:
    if math.isnan(at.value):
        return "–"
    return f"{at.value:.1f}" + ("" if math.isnan(at.half) else f" ±{at.half:.1f}")


def _with_and_without(results: Mapping[str, Results], theirs: Any) -> Section:
    result, rows, sentences, evaluated = results["density"], [], [], []
    for metric in METRICS:
        words = []
        for loss in LOSSES:
            old, new = theirs.get(loss, {}).get(metric), theirs.get(f"da_{loss}", {}).get(metric)
            change = new - old if old is not None and new is not None else math.nan
            sides = MethodRuns(result, loss, PLAIN), MethodRuns(result, loss, DENSITY)
            each = compared(*sides, published=change, metric=metric)
            evaluated.append(replace(each, experiment=f"{loss}, {metric_title(metric)}"))
            cells = [_text(point(0, side.runs, metric)) for side in sides]
            cells += [effect_text(each.effect), number(old), number(new), signed(change), each.word]
            rows.append([loss, metric, *cells])
            words.append(
                f"{loss} {effect_text(each.effect)} (published {signed(change)}: {each.word})"
            )
        sentences.append(f"The density term changes {metric}, in points: {'; '.join(words)}.")
    sentences += [seeds_message(result), *baselines_message(result)]
    heads = ["loss", "metric", "without %", "with %", "gain"]
    heads += ["published without", "published with", "published gain", "conclusion"]
    return Section(
        "With and without",
        sentences,
        [Table(heads, rows), *evaluated_tables(evaluated)],
        [
            *[drawn for metric in METRICS for drawn in _effects(evaluated, metric, result)],
            *[_rank_curves(results, theirs, loss) for loss in LOSSES],
        ],
    )


def _effects(evaluated: Sequence[Compared], metric: str, result: Results) -> list[Drawn]:
    title = metric_title(metric)
    some = [each for each in evaluated if each.experiment.endswith(f", {title}")]
    return effects_drawn(some, metric, f"effects_{metric.partition('@')[0]}", result.on_test)


def _rank_curves(results: Mapping[str, Results], theirs: Any, loss: str) -> Any:
    metrics = {k: f"recall@{k}" for k in RANKS}
    series = {
        title: [point(str(k), results[plan].of(loss, term), m) for k, m in metrics.items()]
        for title, plan, term in (
            ("without", "density", PLAIN),
            ("with the density term", "density", DENSITY),
            ("without its inter-class term", "density_terms", ALONE),
        )
    }
    dashed = []
    for title, name in (("published, without", loss), ("published, with", f"da_{loss}")):
        known = theirs.get(name, {})
        if known:
            series[title] = [Point(str(k), known.get(m, math.nan)) for k, m in metrics.items()]
            dashed.append(title)
    caption = (
        f"{loss}: recall at ranks 1 to 128 on unseen classes; dashed: published, other network."
    )
    return drawn(f"ranks_{loss}", caption, lambda: lines(series, "rank k", "recall@k, %", dashed))


def _inter_class(results: Mapping[str, Results]) -> Section:
    rows, words = [], []
    for loss in LOSSES:
        alone, whole = (
            results["density_terms"].of(loss, ALONE),
            results["density"].of(loss, DENSITY),
        )
        changes = [effect_text(effect(alone, whole, m)) for m in ("recall@1", "nmi")]
        rows.append([loss, _text(point(0, alone, "recall@1")), *changes])
        words.append(f"{loss} {changes[0]}")
    caption = (
        f"Adding the inter-class term to the rest changes recall@1, in points: {'; '.join(words)}. "
        "The paper finds that it always helps a little (in a figure, without numbers)."
    )
    heads = [
        "loss",
        "recall@1 % without it",
        "gain in recall@1",
        "gain in NMI",
    ]
    return Section("The inter-class term", [caption, seeds_message(results["density_terms"])],
                   [Table(heads, rows)])  # fmt: skip


def _of_seeds(result: Results, loss: str, term: str, other: Results) -> list[Run]:
    """The runs whose seeds another study has too: only those can be set beside its runs."""
    return [run for run in result.of(loss, term) if run.replicate[0] in other.plan.seeds]


def _weights(results: Mapping[str, Results]) -> Section:
    curve, main = results["density_weight"], results["density"]
    series, sentences = {}, []
    for loss in curve.experiments():
        ends = {0.0: PLAIN, WEIGHT: DENSITY}
        runs = {weight: _of_seeds(main, loss, term, curve) for weight, term in ends.items()}
        runs |= {float(weight): curve.of(loss, weight) for weight in curve.methods()}
        for metric in ("recall@1", "nmi"):
            points = [point(weight, runs[weight], metric) for weight in sorted(runs)]
            series[f"{loss}, {metric}"] = points
            known = [p for p in points if not math.isnan(p.value)]
            if known:
                best = max(known, key=lambda p: p.value)
                listed = ", ".join(f"{p.x:g}: {p.value:.1f}" for p in known)
                sentences.append(f"{loss}: {metric} is highest at weight {best.x:g} ({listed}).")
    sentences.append("Published: NMI peaks at 10 and is flat above 7 (Cars, in a figure).")
    figure = drawn(
        "weight",
        "Scores on unseen classes by the weight of the density term; 0 is without it.",
        lambda: lines(series, "weight of the term", "score, %"),
    )
    return Section("Its weight", [*sentences, seeds_message(curve)], [], [figure])


def _against_others(results: Mapping[str, Results]) -> Section:
    others, main = results["density_terms"], results["density"]
    terms = {ENTROPY: others, ORTHOGONAL: others, DENSITY: main}
    plain = {loss: _of_seeds(main, loss, PLAIN, others) for loss in LOSSES}
    series: dict[str, dict[str, Point]] = {}
    rows, means = [], {}
    for term, study in terms.items():
        runs = {loss: _of_seeds(study, loss, term, others) for loss in LOSSES}
        result = {loss: effect(plain[loss], runs[loss], "nmi") for loss in LOSSES}
        series[term] = {
            loss: Point(loss, 100 * gain.value, 100 * gain.half)
            for loss, gain in result.items()
            if gain is not None
        }
        recall = [effect(plain[loss], runs[loss], "recall@1") for loss in LOSSES]
        rows.append([term, *[effect_text(g) for g in (*result.values(), *recall)]])
        values = [p.value for p in series[term].values()]
        means[term] = float(np.mean(values)) if values else math.nan
    order = sorted(means, key=lambda term: means[term])
    agrees = "as" if order == [ENTROPY, ORTHOGONAL, DENSITY] else "not as"
    caption = (
        "Mean gain in NMI over the losses, in points: "
        + ", ".join(f"{term} {means[term]:+.1f}" for term in order)
        + f"; {agrees} published (entropy < orthogonal < density, in a figure)."
    )
    figure = drawn(
        "regularizers",
        "What each regularizer adds to NMI on unseen classes; bars without intervals are one run.",
        lambda: bars(series, "gain in NMI, points"),
    )
    heads = ["term", *[f"NMI, {x}" for x in LOSSES], *[f"recall@1, {x}" for x in LOSSES]]
    return Section(
        "Against other regularizers",
        [caption, seeds_message(others)],
        [Table(heads, rows)],
        [figure],
    )


def _train_and_test(results: Mapping[str, Results], trained: Mapping[str, Any]) -> Section:
    result = results["density"]
    series: dict[str, dict[str, Point]] = {"training classes": {}, "unseen classes": {}}
    gaps = {}
    for loss in LOSSES:
        for term in (PLAIN, DENSITY):
            runs = [run for run in result.of(loss, term) if run.planned.key in trained]
            if not runs:
                continue
            name = f"{loss}, {'with' if term == DENSITY else 'without'}"
            seen = 100 * float(np.mean([trained[run.planned.key]["recall@1"] for run in runs]))
            series["training classes"][name] = Point(name, seen)
            series["unseen classes"][name] = point(name, runs, "recall@1")
            gaps[name] = (seen, series["unseen classes"][name].value)
    caption = "; ".join(
        f"{name}: {seen:.1f} train, {new:.1f} test" for name, (seen, new) in gaps.items()
    )
    figure = drawn(
        "train_test",
        "Recall@1 on training and on unseen classes, with and without the density term.",
        lambda: bars(series, "recall@1, %"),
    )
    words = (
        f"Recall@1 in percent: {caption}. Published for n-pair on Cars: 99.2 train, 56.5 test "
        "without the term."
    )
    return Section("Training and unseen classes", [words], [], [figure] if gaps else [])


def _maps(measured: dict[str, Any]) -> list[Section]:
    figures, result = [], measured.get("maps") or {}
    for kind in ("ten", "all"):
        if result.get(kind):
            figures.append(maps.classes_figure(f"map_{kind}", result[kind], len(LOSSES)))
    if measured.get("test_map"):
        figures.append(maps.test_figure("map_test", measured["test_map"]))
    caption = (
        "t-SNE of ten training classes and of all, under each loss without and with the term, and "
        f"of the unseen classes under {CURVE} with it: for looking; distances in such maps mean "
        "little."
    )
    return [Section("Maps", [caption], [], figures)] if figures else []
