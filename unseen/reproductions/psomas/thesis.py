"""Ten losses in a tournament, three ways to choose a model, two losses of the author's own.

Source   B. Psomas, Metric Learning: A Deep Dive, Master's thesis, National and Kapodistrian
         University of Athens, 2020, chapters 5 and 6
"""

import math
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from scipy.stats import spearmanr

from unseen.config import schema as configs
from unseen.reports.score_tables import metric_title
from unseen.reports.tables import Table
from unseen.reproductions.against_source import baselines_message, drawn, fisher, number, signed
from unseen.reproductions.charts import point
from unseen.reproductions.numbers import table
from unseen.reproductions.psomas import pair_curves, thesis_protocols, thesis_tables
from unseen.reproductions.psomas.thesis_protocols import (
    BESIDE,
    CHOSEN,
    FULL_GRIDS,
    GRIDS,
    RATIOS,
    search,
)
from unseen.reproductions.psomas.thesis_tables import experiment, published, ranks
from unseen.reproductions.published_study import Ask, Message, PublishedStudy
from unseen.reproductions.roth.objectives import CLASS_LR
from unseen.reproductions.source_values import (
    BN_INCEPTION,
    PSOMAS,
    Each,
    available,
    resolved,
    steps,
    without_weights,
)
from unseen.reproductions.training_space import of_runs
from unseen.studies import study_figures
from unseen.studies.effect_figure import effects_drawn
from unseen.studies.findings import Section
from unseen.studies.results import Results
from unseen.studies.study_file import Plan, Values
from unseen.studies.study_tables import evaluated_tables
from unseen.studies.tournament import Tournament, tournament
from unseen.studies.validity_checks import MethodRuns, compared, counted, effect_text

LOSSES: dict[str, Values] = {
    "Contrastive": {"name": "contrastive"},
    "Triplet": {"name": "triplet"},
    "LiftedStructure": {"name": "lifted_structure"},
    "NPair": {"name": "n_pair"},
    "ProxyNCA": {"name": "proxy_nca"},
    "Margin": {"name": "margin"},
    "ArcFace": {"name": "arcface"},
    "MultiSimilarity": {"name": "multi_similarity"},
    "SoftTriple": {"name": "soft_triple"},
    "ProxyAnchor": {"name": "proxy_anchor"},
}
SLOW = ("ProxyNCA", "ArcFace", "SoftTriple")  # whose class parameters hardly move in short runs
_SMALLER: Values = {  # of BN-Inception and GoogLeNet; PSOMAS has ResNet-50's
    "batch_size": 180,
    "schedule": Each(
        cub200=steps(10, warm_up=1), cars196=steps(20, warm_up=1),
        online_products=steps(20, gamma=0.25, warm_up=1),
    ),
}  # fmt: skip
NETWORKS: dict[str, Values] = {
    "resnet50": {"backbone": "resnet50"},
    BN_INCEPTION: {"backbone": BN_INCEPTION} | _SMALLER,
    "googlenet": {"backbone": "googlenet"} | _SMALLER,
}
OWN = {"variant 1": 1, "variant 2": 2}


class Thesis(PublishedStudy):
    source = "Psomas 2020, chapters 5 and 6 (ResNet-50, BN-Inception, GoogLeNet, 64 to 1024-d)"
    shows = "ten losses in a tournament, validation ratios, folds, search, the author's own losses"
    origin = PSOMAS

    def plans(self, ask: Ask) -> list[Plan]:
        quick = ask.is_quick
        sizes = [64, 128] if quick else [64, 128, 512, 1024]
        factors: Values = {"loss": _settings(LOSSES, ask), "embedding_size": sizes}
        factors |= {"backbone": _networks(ask)} if _networks(ask) else {}
        some = _settings([CHOSEN] if quick else BESIDE, ask)
        fractions = {name: {"validation_fraction": fraction} for name, fraction in RATIOS.items()}
        on_validation: Values = {"select": "validation"}
        folded: Values = {"protocol": "k_fold", "folds": 5 if quick else 10}
        grids = GRIDS if quick else FULL_GRIDS
        tuned = _settings(grids, ask)
        if CHOSEN in tuned:
            tuned[CHOSEN] |= {"miner": {"name": "multi_similarity"}}  # whose epsilon is tuned
        epochs = ask.epochs(PSOMAS)
        few = 1 if quick else 3
        return [
            _plan(ask, "thesis_losses", "Ten losses.", factors, seeds=few),
            _plan(ask, "thesis_ratios", "Shares of validation classes.",
                  {"ratio": fractions, "loss": some}, on_validation, few),
            _plan(ask, "thesis_folds", "Cross validation by class.", {"loss": some},
                  on_validation | folded, 1),
            _plan(ask, "thesis_search", "One parameter at a time.", {"loss": tuned},
                  on_validation, few, search=search(epochs, grids)),
            _plan(ask, "thesis_own", "The author's own losses.", {"loss": _own_losses(ask)},
                  _of_own(ask), 2 if quick else 5),
        ]  # fmt: skip

    def measure(
        self, ask: Ask, results: Mapping[str, Results], progress: Message
    ) -> dict[str, Any]:
        """Pair weights of every loss on one batch of training items."""
        result = results["thesis_losses"]
        first = result.experiments()[0]
        done = [run for run in result.of(first, CHOSEN) if run.state == "done"][:1]
        batches = list(of_runs(done, pair_curves.batch_of, progress).values())
        runs = [run for method in result.methods() for run in result.of(first, method)[:1]]
        return {"pair_weights": pair_curves.curves(runs, batches[0]) if batches else {}}

    def sections(
        self, ask: Ask, results: Mapping[str, Results], measured: dict[str, Any]
    ) -> list[Section]:
        return [
            _tournament(results["thesis_losses"], ask),
            thesis_tables.section(results["thesis_losses"], ask),
            thesis_protocols.ratios(results["thesis_ratios"], ask),
            thesis_protocols.folds(results["thesis_folds"], ask),
            thesis_protocols.tuning(results, ask),
            _own(results["thesis_own"], ask),
            _pair_weights(measured.get("pair_weights", {})),
        ]

    def differences(self, ask: Ask) -> list[str]:
        quick = [
            "Quick budget: one seed, sizes 64 and 128 of one network (theirs: 12 experiments), 5 "
            "folds of one loss, a search over three values a parameter.",
            f"Class parameters of {', '.join(SLOW)} learn at {CLASS_LR:g}; theirs more slowly.",
        ]
        return [
            f"Data: {ask.data}; the published column is of {ask.published_title}.",
            "All losses draw 5 items of a class (theirs: some draw at random).",
            *(quick if ask.is_quick else []),
            *(without_weights(NETWORKS) if _networks(ask) else []),
        ]


def _settings(losses: Iterable[str], ask: Ask) -> dict[str, Values]:
    """Name -> settings, of some of the ten."""
    return {
        name: {
            "loss": {"preset": "thesis"}
            | LOSSES[name]
            | ({"lr": CLASS_LR} if ask.is_quick and name in SLOW else {})
        }
        for name in losses
    }


def _networks(ask: Ask) -> dict[str, Values]:
    """Those of the thesis, each with its steps and batches; none where others are trained, or the
    user names one."""
    request = configs.override({"backbone": ""}, list(ask.settings))["backbone"]
    if request or not ask.is_as_published:
        return {}
    return {n: resolved(values, ask.set_up_data) for n, values in available(NETWORKS).items()}


def _own_losses(ask: Ask) -> dict[str, Values]:
    others = _settings(["ProxyAnchor"] if ask.is_quick else LOSSES, ask)
    return others | {
        name: {"loss": {"name": "proxy_repulsion", "preset": "thesis", "variant": configuration}}
        for name, configuration in OWN.items()
    }


def _of_own(ask: Ask) -> Values:
    """BN-Inception, 512-d, as tables 17 to 19, where its weights are."""
    theirs = _networks(ask).get(BN_INCEPTION, {})
    return theirs | ({} if ask.is_quick else {"embedding_size": 512})


def _plan(
    ask: Ask, name: str, about: str, factors: Values, more: Values | None = None, seeds: int = 1,
    **rest: Any,
) -> Plan:  # fmt: skip
    config: Values = {
        "batch_size": 100,
        "metrics": [f"recall@{k}" for k in ranks(ask)] + ["map_at_r"],
    }
    rest = {"compare": "ratio" if "ratio" in factors else "loss"} | rest
    return ask.plan(name, about, factors, config | (more or {}), seeds, source=PSOMAS, **rest)


def _tournament(result: Results, ask: Ask) -> Section:
    known = published(ask)
    theirs = tournament(_by_experiment(known)) if known else None
    ours = study_figures.played(result)
    if ours is None or not any(run.state == "done" for run in result.runs):
        return Section("Tournament", ["No run has finished: there is no tournament."])
    best, worst = ours.places[0], ours.places[-1]
    sentences = [
        f"{best.method} comes first with a mean rank of {best.mean:.2f}, {worst.method} last with "
        f"{worst.mean:.2f}.",
        _differs_significantly(ours),
        *([] if theirs is None else _agreement(ours, theirs)),
        *baselines_message(result),
    ]
    return Section(
        "Tournament", sentences, [_places(result, ours, theirs)], _drawn_places(ours, theirs)
    )


def _by_experiment(
    known: Mapping[tuple[str, int, str], list[float]],
) -> dict[str, dict[str, float]]:
    """Experiment -> loss -> recall@1 in percent."""
    result: dict[str, dict[str, float]] = {}
    for (network, size, loss), row in known.items():
        result.setdefault(experiment(network, size), {})[loss] = row[0]
    return result


def _agreement(ours: Tournament, theirs: Tournament) -> list[str]:
    published = {place.method: place.mean for place in theirs.places}
    means = [place.mean for place in ours.places]
    r: Any = spearmanr(means, [published[place.method] for place in ours.places])
    low, high = fisher(float(r.statistic), len(means))
    best, worst = theirs.places[0], theirs.places[-1]
    return [
        f"Published: {best.method} first ({best.mean:.2f}), {worst.method} last ({worst.mean:.2f})."
        f" {_differs_significantly(theirs)}",
        f"The order agrees with the published one by Spearman's r = {r.statistic:.2f} (95 % "
        f"interval {low:.2f} to {high:.2f}, {len(means)} losses).",
    ]


def _differs_significantly(result: Tournament) -> str:
    count = len(result.experiments)
    gap = result.places[-1].mean - result.places[0].mean
    verb = "are" if gap > result.critical_difference else "are not"
    return (
        f"Over {count} experiments mean ranks must differ by {result.critical_difference:.1f} "
        f"(Nemenyi): the first and the last {verb} significantly different, {gap:.1f} apart."
    )


def _places(result: Results, ours: Tournament, theirs: Tournament | None) -> Table:
    known = theirs.places if theirs else ()
    ranked = {
        place.method: (str(i), f"{place.mean:.2f} ±{place.std:.2f}")
        for i, place in enumerate(known, start=1)
    }
    rows = []
    for number_, place in enumerate(ours.places, start=1):
        other, other_mean = ranked.get(place.method, ("–", "–"))
        scores = [point(0, result.of(e, place.method), "recall@1") for e in result.experiments()]
        rows.append([
            place.method, str(number_), other, f"{place.mean:.2f}", other_mean,
            *["failed" if math.isnan(s.value) else f"{s.value:.1f}" for s in scores],
        ])  # fmt: skip
    heads = ["loss", "place", "published place", "mean rank", "published mean rank"]
    heads += [f"{metric_title('recall@1')} %, {e}" for e in result.experiments()]
    caption = "±: standard deviation of the published ranks over 12 experiments, as in the thesis."
    return Table(heads, rows, caption)


def _drawn_places(ours: Tournament, theirs: Tournament | None) -> list[study_figures.Drawn]:
    made = []
    for name, title, result in (("ours", "Ours", ours), ("published", "Published", theirs)):
        if result is None:
            continue
        message = f"{title}: {study_figures.cd_caption(result)}"
        made.append(
            drawn(f"places_{name}", message, partial(study_figures.critical_difference, result))
        )
        caption = f"{title}: rank of every loss in every experiment; 1 is best."
        made.append(drawn(f"ranks_{name}", caption, partial(study_figures.ranks, result)))
    return made


def _own(result: Results, ask: Ask) -> Section:
    theirs = {str(row["dataset"]): row["v1"] for row in table("thesis_own_loss")}
    beside = {
        loss: row[0]
        for (network, size, loss), row in published(ask).items()
        if (network, size) == (BN_INCEPTION, 512)
    }
    anchor = beside.get("ProxyAnchor", math.nan)
    value = theirs.get(ask.published_data)
    own = value if isinstance(value, float) else math.nan
    rows, evaluated = [], []
    for loss in result.methods():
        at = point(0, result.of("", loss), "recall@1")
        half = "" if math.isnan(at.half) else f" ±{at.half:.1f}"
        known = (beside | {"variant 2": own}).get(loss, math.nan)
        rows.append([loss, number(at.value) + half, number(known)])
        if loss in OWN:
            sides = MethodRuns(result, "", "ProxyAnchor"), MethodRuns(result, "", loss)
            evaluated.append(compared(*sides, published=known - anchor))
    words = "; ".join(f"{each.method} {effect_text(each.effect)}" for each in evaluated)
    caption = (
        f"Against ProxyAnchor, in points of recall@1: {words}. "
        f"Published (BN-Inception, 512-d): {number(own)} against {number(anchor)}, "
        f"{signed(own - anchor)}: {counted(evaluated)}."
    )
    shown = [Table(["loss", "R@1 %", "published"], rows), *evaluated_tables(evaluated)]
    drawings = effects_drawn(evaluated, on_test=result.on_test)
    return Section("The author's own losses", [caption], shown, drawings)


def _pair_weights(result: pair_curves.Curves) -> Section:
    if not result:
        return Section("Pair weights", ["No finished run to take a batch from."])
    steepest = {
        loss: max(sides["negative"], key=lambda p: p[1], default=[math.nan, math.nan])
        for loss, sides in result.items()
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
        lambda: pair_curves.figure(result),
    )
    return Section("Pair weights", [caption], [], [figure])
