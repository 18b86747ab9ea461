"""Ten losses in a tournament, three ways to choose a model, two losses of the author's own.

Source   B. Psomas, Metric Learning: A Deep Dive, Master's thesis, National and Kapodistrian
         University of Athens, 2020, chapters 5 and 6
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from unseen.config import schema as configs
from unseen.reproductions.against_source import mean_of
from unseen.reproductions.claims import Claim
from unseen.reproductions.effects import (
    Finding,
    against,
    less,
    mean_gain,
    mean_of_sides,
    of_correlation,
    of_seeds,
    selected_epoch,
    versus,
)
from unseen.reproductions.psomas import thesis_tables
from unseen.reproductions.psomas.thesis_tables import (
    BESIDE,
    CHOSEN,
    R1,
    RATIOS,
    USUAL,
    Place,
    own_published,
    place_of,
    protocol,
    published,
    ranks,
)
from unseen.reproductions.published_study import Evidence, PublishedStudy
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
from unseen.studies.correlation import pearson
from unseen.studies.findings import Section
from unseen.studies.results import Results
from unseen.studies.study_file import Plan, Values
from unseen.studies.validity_checks import MethodRuns

LOSSES = {  # the thesis' name -> ours
    "Contrastive": "contrastive", "Triplet": "triplet", "LiftedStructure": "lifted_structure",
    "NPair": "n_pair", "ProxyNCA": "proxy_nca", "Margin": "margin", "ArcFace": "arcface",
    "MultiSimilarity": "multi_similarity", "SoftTriple": "soft_triple",
    "ProxyAnchor": "proxy_anchor",
}  # fmt: skip
PROXIES = ("ProxyNCA", "SoftTriple", "ProxyAnchor")
OF_PAIRS = ("Contrastive", "Triplet", "LiftedStructure", "NPair", "Margin", "MultiSimilarity")
SLOW = ("ProxyNCA", "ArcFace", "SoftTriple")  # whose class parameters hardly move in short runs
NETWORKS: dict[str, Values] = {
    network: (SMALLER if network != USUAL else {}) | {"backbone": network}
    for network in (USUAL, BN_INCEPTION, "googlenet")
}
PROTOCOLS = ("thesis_ratios", "thesis_folds", "thesis_search")  # tables 12 to 16
ON_VALIDATION = replace(PSOMAS, values=PSOMAS.values | {"select": "validation"})
OWN = {"variant 1": 1, "variant 2": 2}
GRIDS: dict[str, dict[str, list[float]]] = {  # quick: three values around theirs
    "MultiSimilarity": {
        "loss.base": [0.2, 0.5, 0.8],
        "loss.alpha": [2.0, 10.0, 18.0],
        "loss.beta": [26.0, 50.0, 76.0],
        "miner.epsilon": [0.1, 0.4, 0.7],
    }
}
_TENTHS = [i / 10 for i in range(11)]
_EVEN = [2.0 * i for i in range(1, 51)]
FULL_GRIDS: dict[str, dict[str, list[float]]] = {  # tables 15 and 16
    "MultiSimilarity": {
        "loss.base": _TENTHS, "loss.alpha": _EVEN, "loss.beta": _EVEN, "miner.epsilon": _TENTHS,
    },
    "SoftTriple": {
        "loss.margin": _TENTHS, "loss.scale": _EVEN, "loss.lr": [i * 1e-5 for i in range(1, 11)],
        "loss.temperature": [1 / (10 * i) for i in range(1, 11)],  # 1 / gamma, 10 to 100
        "loss.tau": _TENTHS,
    },
    "ProxyAnchor": {"loss.delta": _TENTHS, "loss.alpha": _EVEN},
}  # fmt: skip
PAIRS = {  # which loss against which, in every experiment
    "T04": [("Contrastive", other) for other in ("Margin", "ArcFace", "ProxyNCA")],
    "T05": [("Triplet", "NPair")],
    "T08": [("Margin", "LiftedStructure")],
    "T09": [("Margin", "NPair")],
}
STEPS = {"T13": [(512, 1024)], "T14": [(64, 128), (128, 512)]}  # of the dimension
Published = Mapping[Place, Sequence[float]]


class Thesis(PublishedStudy):
    source = "Psomas 2020, chapters 5 and 6 (ResNet-50, BN-Inception, GoogLeNet, 64 to 1024-d)"
    shows = "ten losses in a tournament, validation ratios, folds, search, the author's own losses"
    origin = PSOMAS

    def origin_of(self, plan: str) -> Source | None:
        return ON_VALIDATION if plan in PROTOCOLS else PSOMAS

    def plans(self, ask: Ask) -> list[Plan]:
        quick, networks = ask.is_quick, _networks(ask)
        sizes = [64, 128] if quick else [64, 128, 512, 1024]
        factors: Values = {"loss": _settings(LOSSES, ask), "embedding_size": sizes}
        factors |= {"backbone": networks} if networks else {}
        # BN-Inception, 512-d, where its weights are: tables 12 to 19
        wide = networks.get(BN_INCEPTION, {}) | ({} if quick else {"embedding_size": 512})
        apart: Values = {"select": "validation"} | wide
        some = _settings([CHOSEN] if quick else BESIDE, ask)
        fractions = {name: {"validation_fraction": fraction} for name, fraction in RATIOS.items()}
        folded: Values = {"protocol": "k_fold", "folds": 5 if quick else 10}
        grids = GRIDS if quick else FULL_GRIDS
        tuned = _settings(grids, ask)
        if CHOSEN in tuned:
            tuned[CHOSEN] |= {"miner": {"name": "multi_similarity"}}  # whose epsilon is tuned
        few = 1 if quick else 3
        return [
            _plan(ask, "thesis_losses", "Ten losses.", factors, {}, few),
            _plan(ask, "thesis_ratios", "Shares of validation classes.",
                  {"ratio": fractions, "loss": some}, apart, few),
            _plan(ask, "thesis_folds", "Cross validation by class.", {"loss": some},
                  apart | folded, 1),
            _plan(ask, "thesis_search", "One parameter at a time.", {"loss": tuned}, apart, few,
                  search=_search(ask.epochs(PSOMAS), grids)),
            _plan(ask, "thesis_own", "The author's own losses.", {"loss": _own_losses(ask)}, wide,
                  2 if quick else 5),
        ]  # fmt: skip

    def claims(self, evidence: Evidence) -> list[Claim]:
        losses, theirs = evidence.results["thesis_losses"], published(evidence.data)
        places = {each: place_of(losses, each) for each in losses.experiments()}

        def extreme(method: str, sign: int) -> list[Finding]:
            """Against the best (1) or the worst (-1) of the others."""
            return [_extreme(losses, each, method, sign) for each in places]

        def gain(one: str, other: str) -> list[Finding]:
            return [
                against(losses, other, one, _printed(theirs, (*place, one), (*place, other)),
                        f"{one} against {other}, {each}", each)
                for each, place in places.items() if {one, other} <= set(losses.methods())
            ]  # fmt: skip

        def by_size(network: str, small: int, large: int) -> Finding:
            return _mean_gain(losses, theirs, [((network, small), (network, large))],
                              f"{network} from {small} to {large}")  # fmt: skip

        networks = list(dict.fromkeys(network for network, _ in places.values()))
        sizes = list(dict.fromkeys(size for _, size in places.values()))
        orders = [(BN_INCEPTION, USUAL), ("googlenet", BN_INCEPTION)]
        gaps = [("googlenet", BN_INCEPTION), ("googlenet", USUAL)]
        own, tables = evidence.results["thesis_own"], own_published(evidence.data)
        return [
            Claim("T01", extreme("ProxyAnchor", 1)),
            Claim("T02", extreme("NPair", -1)),
            *(Claim(name, [each for pair in pairs for each in gain(*pair)])
              for name, pairs in PAIRS.items()),
            Claim("T11", [_mean_gain(losses, theirs, [((a, 512), (b, 512))], f"{b} over {a}, 512")
                          for a, b in orders]),
            Claim("T12", [_mean_gain(losses, theirs, [((a, size), (b, size)) for size in sizes],
                                     f"{b} over {a}, all sizes") for a, b in gaps]),
            *(Claim(name, [by_size(network, *step) for network in networks for step in steps
                           if {*step} <= {*sizes}]) for name, steps in STEPS.items()),
            *_epochs(losses),
            *_protocols(evidence),
            *(Claim(name, [
                against(own, other, "variant 2", tables.get("variant 2", [math.nan])[0]
                        - tables.get(other, [math.nan])[0], f"against {other}", expected=sign)
                for other in others if other in own.methods()
            ]) for name, others, sign in (("T31", [CHOSEN], 1),
                                          ("T32", ["SoftTriple", "ProxyAnchor"], -1))),
        ]  # fmt: skip

    def sections(self, evidence: Evidence) -> list[Section]:
        return thesis_tables.sections(evidence)

    def differences(self, ask: Ask) -> list[str]:
        missing = without_weights(NETWORKS) if _networks(ask) else []
        return [f"{text} Tables 12 to 19 then are of ResNet-50." for text in missing]


def _settings(losses: Iterable[str], ask: Ask) -> dict[str, Values]:
    """Name -> settings, of some of the ten; losses with class vectors take random batches."""
    settings = {}
    for name in losses:
        rate = {"lr": CLASS_LR} if ask.is_quick and name in SLOW else {}
        settings[name] = {"loss": {"preset": "thesis", "name": LOSSES[name]} | rate}
        if LOSSES[name] not in TUPLES:
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
    own: Values = {"name": "proxy_repulsion", "preset": "thesis"}
    return others | {
        name: {"loss": own | {"variant": kind}, "sampler": RANDOM} for name, kind in OWN.items()
    }


def _plan(
    ask: Ask, name: str, about: str, factors: Values, more: Values, seeds: int,
    search: Values | None = None,
) -> Plan:  # fmt: skip
    config: Values = {
        "batch_size": 100,
        "metrics": [f"recall@{k}" for k in ranks(ask)] + ["map_at_r"],
    }
    rest: Values = {"compare": "ratio" if "ratio" in factors else "loss"}
    rest |= {"search": search} if search else {}
    source = ON_VALIDATION if name in PROTOCOLS else PSOMAS
    return ask.plan(name, about, factors, config | more, seeds, source=source, **rest)


def _search(epochs: int, grids: Mapping[str, Mapping[str, list[float]]]) -> Values:
    """One parameter at a time, in runs of half the length."""
    parameters = [
        {"key": key, "values": values, "where": {"loss": loss}}
        for loss, grid in grids.items()
        for key, values in grid.items()
    ]
    shorter = {"epochs": max(1, epochs // 2)}
    return {"mode": "coordinate", "config": shorter, "parameters": parameters}


def _printed(theirs: Published, one: Place, other: Place) -> float:
    """The published difference in recall@1 of two runs."""
    values = [theirs.get(place, [math.nan])[0] for place in (one, other)]
    return float(values[0]) - float(values[1])


def _extreme(results: Results, each: str, method: str, sign: int) -> Finding:
    scores = {m: sign * mean_of(results.of(each, m), R1) for m in results.methods() if m != method}
    known = {m: score for m, score in scores.items() if not math.isnan(score)}
    other = max(known, key=lambda m: known[m], default="")
    return against(results, other, method, math.nan, f"{each}, against {other}", each,
                   expected=sign)  # fmt: skip


def _mean_gain(
    results: Results, theirs: Published, pairs: Sequence[tuple[tuple[str, int], tuple[str, int]]],
    of: str,
) -> Finding:  # fmt: skip
    """Of one network and size over another, the mean over pairs and losses."""
    by_place = {place_of(results, each): each for each in results.experiments()}
    names = [(by_place.get(a, "not run"), by_place.get(b, "not run")) for a, b in pairs]
    sides = [
        (MethodRuns(results, one, loss), MethodRuns(results, other, loss))
        for one, other in names
        for loss in results.methods()
    ]
    printed = [_printed(theirs, (*b, loss), (*a, loss)) for a, b in pairs for loss in LOSSES]
    known = [value for value in printed if not math.isnan(value)]
    return mean_gain(f"{of}, mean over losses", sides, float(np.mean(known)) if known else math.nan)


def _epochs(results: Results) -> list[Claim]:
    """The selected epochs of losses, mean over experiments and losses, by seed."""

    def sides(losses: Sequence[str]) -> list[MethodRuns]:
        return [MethodRuns(results, each, loss) for each in results.experiments()
                for loss in losses if loss in results.methods()]  # fmt: skip

    anchor, pairs, proxies = sides(["ProxyAnchor"]), sides(OF_PAIRS), sides(PROXIES)
    early = {seed: 20 - epoch for seed, epoch in mean_of_sides(anchor, selected_epoch).items()}
    fewer = less(mean_of_sides(pairs, selected_epoch), mean_of_sides(proxies, selected_epoch))
    return [
        Claim("T19", [of_seeds("20 less the selected epoch", early, anchor)], "epochs"),
        Claim("T20", [of_seeds("losses on pairs less those with proxies", fewer,
                               [*pairs, *proxies])], "epochs"),
    ]  # fmt: skip


def _protocols(evidence: Evidence) -> list[Claim]:
    ratios, folds, search = (evidence.results[name] for name in PROTOCOLS)
    by_ratio = protocol("fixed validation ratio", evidence.data)
    by_fold = protocol("10-fold", evidence.data)

    def printed(rows: Mapping[str, Mapping[str, float]], one: str, other: str) -> float:
        values = [rows.get(name, {}).get("test_r1", math.nan) for name in (one, other)]
        return values[0] - values[1]

    best = [
        against(
            ratios, other, "90/10", printed(by_ratio, "90/10", other), f"against {other}", CHOSEN
        )
        for other in ("70/30", "80/20", "95/5")
    ]
    runs = [run for run in folds.of("", CHOSEN) if run.state == "done" and run.selection]
    points = [(run.selection.value, run.score(R1)) for run in runs if run.selection]
    line = pearson([x for x, _ in points], [y for _, y in points])
    own = [MethodRuns(folds, "", CHOSEN)]
    order = [("ProxyAnchor", "SoftTriple"), ("SoftTriple", CHOSEN)]
    ahead = [
        against(folds, b, a, printed(by_fold, BESIDE[a], BESIDE[b]), f"{a} over {b}")
        for a, b in order
        if {a, b} <= set(folds.methods())
    ]

    def tuned(loss: str) -> list[Finding]:
        """With the values that the search has found, against those of the text."""
        plain = MethodRuns(ratios, loss, "90/10")
        title = f"{loss}, found values against those of the text"
        return [versus(plain, MethodRuns(search, "", loss), of=title)] * (loss in search.methods())

    return [
        Claim("T22", ahead),
        Claim("T24", [of_correlation(CHOSEN, (line.r, line.low, line.high), own,
                                       -0.36 if by_fold else math.nan)],
              "r of validation and test recall over folds"),
        Claim("T25", best),
        *(Claim(name, tuned(loss)) for name, loss in
          (("T27", CHOSEN), ("T28", "SoftTriple"), ("T29", "ProxyAnchor"))),
    ]  # fmt: skip
