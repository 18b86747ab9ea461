"""Density adaptivity, with and without: every class learns how densely it may lie.

Source   Y. Li et al., Deep Metric Learning with Density Adaptivity, IEEE TMM 2020,
         https://arxiv.org/abs/1909.03909, table 1, figures 1 and 3 to 9
"""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from torch import Tensor

from unseen.evaluation.evaluate import evaluate
from unseen.regularizers.density import spreads
from unseen.reports.tables import Table
from unseen.reproductions import maps
from unseen.reproductions.against_source import (
    baselines_message,
    drawn,
    rank_table,
)
from unseen.reproductions.charts import Point, bars, lines, point
from unseen.reproductions.claims import Claim
from unseen.reproductions.effects import Finding, against, changed, gap, versus
from unseen.reproductions.numbers import rows_of
from unseen.reproductions.published_study import ByPlan, Evidence, Message, PublishedStudy
from unseen.reproductions.request import Ask
from unseen.reproductions.source_values import LI
from unseen.reproductions.training_space import of_runs
from unseen.studies.findings import Section
from unseen.studies.results import Results, Run, effect
from unseen.studies.study_figures import Drawn
from unseen.studies.study_file import Plan, Values
from unseen.studies.validity_checks import MethodRuns

RANKS, PRODUCT_RANKS = (1, 2, 4, 8, 16, 32, 64, 128), (1, 10, 100, 1000)
R1, NMI = "recall@1", "nmi"
LOSSES = ("contrastive", "triplet", "n_pair")
PLAIN, DENSITY, ALONE = "none", "density", "density, no inter-class term"
ENTROPY, ORTHOGONAL = "entropy", "orthogonal"
LIFTED, OTHERS, MEANS = "lifted_structure", "density_others", "density_means"
CURVE = "contrastive"  # their best: of the map of images, and of our quick weight curve
TARGET_RATE = 10.0  # of the targets over the network's rate
WEIGHT = 10.0
ROWS = {  # table 1, their name -> plan, loss and term of ours; none: published only
    "triplet": ("density", "triplet", PLAIN),
    LIFTED: (OTHERS, LIFTED, PLAIN),
    "n_pair": ("density", "n_pair", PLAIN),
    "clustering": None,
    "contrastive": ("density", "contrastive", PLAIN),
    "hdc": None,
    "da_triplet": ("density", "triplet", DENSITY),
    "da_n_pair": ("density", "n_pair", DENSITY),
    "da_contrastive": ("density", "contrastive", DENSITY),
}
SPREAD = "mean D_c of training classes"
HDC_READ = (
    "HDC is read at 128 values in table 1 (71.42 on Cars196); its own joined outputs have 73.7 "
    "(Vo and Hays, table 3)."
)
CLUSTERING = (
    "HDC and the clustering loss (facility location) are not in the catalogue: their rows have the "
    "published values alone."
)


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
        means = {"reduction": "mean"}
        return [
            _plan(ask, "density", "With and without the density term.", main, LOSSES, seeds),
            _plan(ask, OTHERS, "Another loss of table 1.", plain, (LIFTED,), few),
            _plan(ask, MEANS, "The same beside means.", main, (CURVE,), few, means),
            _plan(ask, "density_terms", "Other terms beside it.", others, LOSSES, few),
            _plan(ask, "density_weight", "The weight of the density term.", tried, curve, few),
        ]

    def measure(self, ask: Ask, results: ByPlan, progress: Message) -> dict[str, Any]:
        main = results["density"]
        trained = of_runs(main.runs, _training_classes, progress)
        groups = [main.of(loss, term) for term in (PLAIN, DENSITY) for loss in LOSSES]
        first = [run for runs in groups for run in [r for r in runs if r.state == "done"][:1]]
        names = {run.planned.key: _panel(run) for run in first}
        drawn_maps = {
            kind: {names[key]: each for key, each in of_runs(first, make, progress).items()}
            for kind, make in (("ten", maps.of_some_classes), ("all", maps.of_all_classes))
        }
        shown = [run for run in first if _panel(run) == f"{CURVE}, with"]
        image_map = maps.of_test(shown[0], progress) if shown else None
        return {"train": trained, "maps": drawn_maps, "test_map": image_map}

    def claims(self, evidence: Evidence) -> list[Claim]:
        results, theirs = evidence.results, _published(evidence.data)
        main, terms, weights = (
            results[name] for name in ("density", "density_terms", "density_weight")
        )
        of_train = partial(partial, _of_train, evidence.measured.get("train", {}))

        def side(loss: str, term: str = PLAIN, study: Results = main) -> MethodRuns:
            return MethodRuns(study, loss, term)

        def over(loss: str, other: MethodRuns, metric: str, title: str = "") -> Finding:
            """Of the density term against another one."""
            return versus(other, side(loss, DENSITY), of=f"{title}{loss}, {metric}", metric=metric)

        def change(loss: str, value: Any, of: str = "", expected: int = 1) -> Finding:
            """By the term, of a number of the training classes."""
            pair = (side(loss), side(loss, DENSITY))
            return changed(of or loss, pair, of_train(value), expected=expected)

        claimed = {R1: ("D01", "D03", "D02"), NMI: ("D04", "D06", "D05")}
        claims = [
            Claim(name, [against(main, PLAIN, DENSITY, gap(theirs, loss, f"da_{loss}", metric),
                                 f"{loss}, {metric}", loss, metric)])
            for metric, names in claimed.items()
            for name, loss in zip(names, LOSSES, strict=True)
        ]  # fmt: skip
        pairs = {other: (side(CURVE), side(other)) for other in LOSSES[1:]}
        classes = "points between training and test classes"
        return [
            *claims,
            Claim("D14", [over(loss, side(loss, ALONE, terms), R1) for loss in LOSSES]),
            *(Claim(name, [over(loss, side(loss, term, terms), NMI) for loss in LOSSES])
              for name, term in (("D16", ENTROPY), ("D17", ORTHOGONAL))),
            Claim("D18", [against(terms, ENTROPY, ORTHOGONAL, of=f"{loss}, nmi", experiment=loss,
                                  metric=NMI) for loss in LOSSES]),
            Claim("D20", [
                over(loss, side(loss, f"{weight}", weights), NMI, f"10 against {weight}, ")
                for loss in weights.experiments() for weight in (1, 25)
            ]),
            Claim("D08", [changed(f"{other} less contrastive", pair, of_train(_gap))
                          for other, pair in pairs.items()], classes),
            Claim("D09", [change(CURVE, _gap, expected=-1)], classes),
            Claim("D10", [changed(f"{other} less contrastive", pair, of_train(_spread), expected=-1)
                          for other, pair in pairs.items()], SPREAD),
            Claim("D12", [change(loss, _spread) for loss in LOSSES], SPREAD),
            Claim("D13", [change(loss, _recall, f"{loss}, recall@1 of training classes less that "
                                 "before it") for loss in LOSSES]),
        ]  # fmt: skip

    def sections(self, evidence: Evidence) -> list[Section]:
        results, measured = evidence.results, evidence.measured
        theirs, main = _published(evidence.data), results["density"]
        sentences = [*baselines_message(main), HDC_READ, CLUSTERING]
        return [
            Section("Table 1", sentences, [_table_1(results, theirs, evidence.ask)]),
            _means(results),
            _inter_class(results, theirs),
            _weights(results),
            _against_others(results),
            _train_and_test(main, measured.get("train", {})),
            *_maps(measured),
        ]


def ranks(ask: Ask) -> tuple[int, ...]:
    """Those of table 1."""
    return PRODUCT_RANKS if ask.published_data == "online_products" else RANKS


def _plan(
    ask: Ask, name: str, about: str, terms: Mapping[str, Values], losses: Sequence[str], seeds: int,
    more: Values | None = None,
) -> Plan:  # fmt: skip
    known = dict.fromkeys([*RANKS, *ranks(ask)])
    config: Values = {"batch_size": 100, "metrics": [f"recall@{k}" for k in known] + [NMI]}
    settings = {loss: {"loss": _loss(loss) | (more or {})} for loss in losses}
    factors = {"term": terms, "loss": settings}
    return ask.plan(name, about, factors, config, seeds, source=LI, compare="term")


def _loss(name: str) -> Values:
    return {"name": name} | ({} if name == LIFTED else {"preset": "density"})


def _term(weight: float, preset: str = "density") -> Values:
    regularizer = {"name": "density", "preset": preset, "weight": weight, "lr_factor": TARGET_RATE}
    return {"regularizers": [regularizer]}


def _published(data: str) -> dict[str, dict[str, float]]:
    """Method -> metric -> percent; with the term under the loss's name and `da_`."""
    result: dict[str, dict[str, float]] = {}
    for row in rows_of("density_table1", data):
        if isinstance(row["value"], float):
            metric = str(row["metric"])
            title = metric if metric == NMI else f"recall@{metric[1:]}"
            result.setdefault(str(row["method"]), {})[title] = row["value"]
    return result


def _training_classes(embeddings: Tensor, labels: Tensor) -> dict[str, Any]:
    score = evaluate(embeddings, labels, metrics=(R1,), resamples=0, non_finite="worst")
    spread = spreads(embeddings, labels)[0].mean()
    return {R1: score.values[R1].value, "spread": float(spread)}


def _panel(run: Run) -> str:
    with_it = "with" if run.planned.labels["term"] == DENSITY else "without"
    return f"{run.planned.labels['loss']}, {with_it}"


def _of_train(train: Mapping[str, Any], value: Any, run: Run) -> float:
    """A number of the training classes of a run; NaN where it was not measured."""
    row = train.get(run.planned.key)
    return math.nan if row is None else float(value(row, run))


def _gap(row: Mapping[str, Any], run: Run) -> float:
    """Recall on training classes less that on test classes, in points."""
    return 100 * (row[R1] - run.score(R1))


def _spread(row: Mapping[str, Any], run: Run) -> float:
    return float(row["spread"])


def _recall(row: Mapping[str, Any], run: Run) -> float:
    return 100 * float(row[R1])


def _table_1(results: Mapping[str, Results], theirs: Any, ask: Ask) -> Table:
    metrics = {"NMI": NMI} | {f"R@{k}": f"recall@{k}" for k in ranks(ask)}
    rows = []
    for name, ours in ROWS.items():
        runs = results[ours[0]].of(*ours[1:]) if ours is not None else []
        rows.append((name.replace("da_", "density, "), runs, theirs.get(name, {})))
    return rank_table("method", metrics, rows)


def _means(results: Mapping[str, Results]) -> Section:
    """The same term beside sums, as printed, and beside means, as common code takes them."""
    metrics = {"R@1": R1, "NMI": NMI}
    rows: list[tuple[str, list[Run], dict[str, float]]] = [
        (f"{CURVE} as a {kind}, {term}", results[plan].of(CURVE, term), {})
        for kind, plan in (("sum", "density"), ("mean", MEANS))
        for term in (PLAIN, DENSITY)
    ]
    return Section("Beside a sum and beside a mean", [], [rank_table("loss", metrics, rows)])


def _inter_class(results: Mapping[str, Results], theirs: Any) -> Section:
    figures = [_rank_curves(results, theirs, loss) for loss in LOSSES]
    return Section("With and without", [], [], figures)


def _rank_curves(results: Mapping[str, Results], theirs: Any, loss: str) -> Drawn:
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
    caption = f"{loss}: recall at ranks 1 to 128 on unseen classes"
    caption += "; dashed: published." if dashed else "."
    return drawn(f"ranks_{loss}", caption, lambda: lines(series, "rank k", "recall@k, %", dashed))


def _of_seeds(result: Results, loss: str, term: str, other: Results) -> list[Run]:
    """The runs whose seeds another study has too: only those can be set beside its runs."""
    return [run for run in result.of(loss, term) if run.replicate[0] in other.plan.seeds]


def _weights(results: Mapping[str, Results]) -> Section:
    curve, main = results["density_weight"], results["density"]
    series = {}
    for loss in curve.experiments():
        ends = {0.0: PLAIN, WEIGHT: DENSITY}
        runs = {weight: _of_seeds(main, loss, term, curve) for weight, term in ends.items()}
        runs |= {float(weight): curve.of(loss, weight) for weight in curve.methods()}
        for metric in (R1, NMI):
            series[f"{loss}, {metric}"] = [point(w, runs[w], metric) for w in sorted(runs)]
    figure = drawn(
        "weight",
        "Scores on unseen classes by the weight of the density term; 0 is without it. The source "
        "draws NMI on Cars196: highest at 10, flat above 7.",
        lambda: lines(series, "weight of the term", "score, %"),
    )
    return Section("Its weight", [], [], [figure])


def _against_others(results: Mapping[str, Results]) -> Section:
    others, main = results["density_terms"], results["density"]
    series: dict[str, dict[str, Point]] = {}
    for term, study in ((ENTROPY, others), (ORTHOGONAL, others), (DENSITY, main)):
        gains = {loss: effect(main.of(loss, PLAIN), study.of(loss, term), NMI) for loss in LOSSES}
        series[term] = {
            loss: Point(loss, 100 * each.value, 100 * each.half)
            for loss, each in gains.items()
            if each is not None and not math.isnan(each.value)
        }
    figure = drawn(
        "regularizers",
        "What each regularizer adds to NMI on unseen classes; bars without intervals are one run.",
        lambda: bars(series, "loss", "gain in NMI, points"),
    )
    drawings = [figure] if any(series.values()) else []
    return Section("Against other regularizers", [], [], drawings)


def _train_and_test(main: Results, trained: Mapping[str, Any]) -> Section:
    series: dict[str, dict[str, Point]] = {"training classes": {}, "unseen classes": {}}
    for loss in LOSSES:
        for term in (PLAIN, DENSITY):
            done = [run for run in main.of(loss, term) if run.state == "done"]
            runs = [run for run in done if run.planned.key in trained]
            if not runs:
                continue
            name = f"{loss}, {'with' if term == DENSITY else 'without'}"
            seen = 100 * float(np.mean([trained[run.planned.key][R1] for run in runs]))
            series["training classes"][name] = Point(name, seen)
            series["unseen classes"][name] = point(name, runs, R1)
    figure = drawn(
        "train_test",
        "Recall@1 on training and on unseen classes, with and without the density term.",
        lambda: bars(series, "loss", "recall@1, %"),
    )
    message = "The source prints 99.2 % on training, 56.5 % on test classes of Cars196 for n-pair."
    drawings = [figure] if series["training classes"] else []
    return Section("Training and unseen classes", [message], [], drawings)


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
