"""Ten losses in a tournament, three ways to choose a model, two losses of the author's own.

Source   B. Psomas, Metric Learning: A Deep Dive, Master's thesis, National and Kapodistrian
         University of Athens, 2020, chapters 5 and 6
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from unseen.config import schema as configs
from unseen.reports.score_tables import metric_title
from unseen.reports.tables import Table
from unseen.reproductions.against_source import (
    baselines_message,
    drawn,
    rank_table,
    start_message,
    without_start_runs,
)
from unseen.reproductions.charts import point
from unseen.reproductions.claims import Claim
from unseen.reproductions.numbers import table
from unseen.reproductions.psomas import (
    thesis_claims,
    thesis_protocols,
    thesis_tables,
)
from unseen.reproductions.psomas.thesis_protocols import (
    BESIDE,
    CHOSEN,
    FULL_GRIDS,
    GRIDS,
    RATIOS,
    search,
)
from unseen.reproductions.psomas.thesis_tables import USUAL, experiment, published, ranks
from unseen.reproductions.published_study import PublishedStudy
from unseen.reproductions.request import Ask
from unseen.reproductions.roth.objectives import CLASS_LR
from unseen.reproductions.source_values import (
    BN_INCEPTION,
    PSOMAS,
    RANDOM,
    SMALLER,
    TUPLES,
    Source,
    available,
    resolved,
    without_weights,
)
from unseen.studies import study_figures
from unseen.studies.findings import Section
from unseen.studies.results import Results
from unseen.studies.study_file import Plan, Values
from unseen.studies.tournament import Tournament, tournament

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
NETWORKS: dict[str, Values] = {
    network: {"backbone": network} | (SMALLER if network != USUAL else {})
    for network in (USUAL, BN_INCEPTION, "googlenet")
}
PROTOCOLS = ("thesis_ratios", "thesis_folds", "thesis_search")  # tables 12 to 16
ON_VALIDATION = replace(PSOMAS, values=PSOMAS.values | {"select": "validation"})
OWN = {"variant 1": 1, "variant 2": 2}


class Thesis(PublishedStudy):
    source = "Psomas 2020, chapters 5 and 6 (ResNet-50, BN-Inception, GoogLeNet, 64 to 1024-d)"
    shows = "ten losses in a tournament, validation ratios, folds, search, the author's own losses"
    origin = PSOMAS
    answers = thesis_claims.ANSWERS

    def origin_of(self, plan: str) -> Source:
        return ON_VALIDATION if plan in PROTOCOLS else PSOMAS

    def plans(self, ask: Ask) -> list[Plan]:
        quick = ask.is_quick
        sizes = [64, 128] if quick else [64, 128, 512, 1024]
        factors: Values = {"loss": _settings(LOSSES, ask), "embedding_size": sizes}
        factors |= {"backbone": _networks(ask)} if _networks(ask) else {}
        wide = _of_own(ask)  # tables 12 to 19
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
                  {"ratio": fractions, "loss": some}, on_validation | wide, few),
            _plan(ask, "thesis_folds", "Cross validation by class.", {"loss": some},
                  on_validation | wide | folded, 1),
            _plan(ask, "thesis_search", "One parameter at a time.", {"loss": tuned},
                  on_validation | wide, few, search=search(epochs, grids)),
            _plan(ask, "thesis_own", "The author's own losses.", {"loss": _own_losses(ask)},
                  wide, 2 if quick else 5),
        ]  # fmt: skip

    def claims(
        self, ask: Ask, results: Mapping[str, Results], measured: dict[str, Any]
    ) -> list[Claim]:
        return thesis_claims.claims(ask, results)

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
        ]

    def differences(self, ask: Ask) -> list[str]:
        missing = without_weights(NETWORKS) if _networks(ask) else []
        return [f"{text} Tables 12 to 19 then are of ResNet-50." for text in missing]


def _settings(losses: Iterable[str], ask: Ask) -> dict[str, Values]:
    """Name -> settings, of some of the ten; losses with class vectors take random batches."""
    settings = {}
    for name in losses:
        rate = {"lr": CLASS_LR} if ask.is_quick and name in SLOW else {}
        settings[name] = {"loss": {"preset": "thesis"} | LOSSES[name] | rate}
        if LOSSES[name]["name"] not in TUPLES:
            settings[name]["sampler"] = RANDOM
    return settings


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
        name: {"loss": {"name": "proxy_repulsion", "preset": "thesis", "variant": kind}}
        | {"sampler": RANDOM}
        for name, kind in OWN.items()
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
    source = ON_VALIDATION if name in PROTOCOLS else PSOMAS
    return ask.plan(name, about, factors, config | (more or {}), seeds, source=source, **rest)


def _tournament(result: Results, ask: Ask) -> Section:
    """Table 11: methods that have a run of every experiment which left its start."""
    known = published(ask)
    theirs = tournament(_by_experiment(known)) if known else None
    ours = study_figures.played(_players(result))
    if ours is None or not any(run.state == "done" for run in result.runs):
        return Section("Tournament", ["No run has finished: there is no tournament."])
    sentences = [
        _differs_significantly("Ours", ours),
        *([] if theirs is None else [_differs_significantly("Published", theirs)]),
        *start_message(result),
        *baselines_message(result),
    ]
    return Section(
        "Tournament", sentences, [_places(result, ours, theirs)], _drawn_places(ours, theirs)
    )


def _players(result: Results) -> Results:
    trained = without_start_runs(result)
    full = {
        method
        for method in trained.methods()
        if all(trained.of(experiment, method) for experiment in result.experiments())
    }
    name = result.plan.compared
    return replace(trained, runs=tuple(r for r in trained.runs if r.planned.labels[name] in full))


def _by_experiment(
    known: Mapping[tuple[str, int, str], list[float]],
) -> dict[str, dict[str, float]]:
    """Experiment -> loss -> recall@1 in percent."""
    result: dict[str, dict[str, float]] = {}
    for (network, size, loss), row in known.items():
        result.setdefault(experiment(network, size), {})[loss] = row[0]
    return result


def _differs_significantly(whose: str, result: Tournament) -> str:
    count = len(result.experiments)
    gap = result.places[-1].mean - result.places[0].mean
    verb = "are" if gap > result.critical_difference else "are not"
    return (
        f"{whose}: over {count} experiments mean ranks must differ by "
        f"{result.critical_difference:.1f} (Nemenyi): the first and the last {verb} significantly "
        f"different, {gap:.1f} apart."
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
    """Tables 17 to 19: the author's own loss beside all ten, at every rank."""
    theirs = {loss: row for (n, size, loss), row in published(ask).items()
              if (n, size) == (BN_INCEPTION, 512)}  # fmt: skip
    for row in table("thesis_own_loss"):
        if row["dataset"] == ask.published_data:
            values = [row[f"v{i}"] for i in range(1, 5)]
            theirs["variant 2"] = [v if isinstance(v, float) else math.nan for v in values]
    metrics = {f"R@{k}": f"recall@{k}" for k in ranks(ask)}
    rows = [
        (loss, result.of("", loss), dict(zip(metrics.values(), theirs.get(loss, ()), strict=False)))
        for loss in result.methods()
    ]
    return Section("The author's own losses", start_message(result),
                   [rank_table("loss", metrics, rows)])  # fmt: skip
