"""What Psomas' thesis claims of ten losses, of protocols and of the author's own losses."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from unseen.reproductions.against_source import mean_of, without_start_runs
from unseen.reproductions.claims import Claim, Finding, against, finding_of, mean_finding
from unseen.reproductions.numbers import table
from unseen.reproductions.psomas.thesis_protocols import BESIDE, CHOSEN
from unseen.reproductions.psomas.thesis_tables import Published, experiment, published, runs_of
from unseen.reproductions.request import Ask
from unseen.reproductions.source_values import BN_INCEPTION
from unseen.studies.correlation import pearson
from unseen.studies.results import Results
from unseen.studies.validity_checks import MethodRuns, compared

ANSWERS = ("T01", "T02", "T04", "T05", "T08", "T09", "T11", "T13", "T14", "T19", "T20", "T22",
           "T24", "T25", "T27", "T28", "T29", "T31", "T32")  # fmt: skip
R1, USUAL = "recall@1", "resnet50"
PAIRS = {  # which loss against which, in every experiment
    "T04": [("Contrastive", other) for other in ("Margin", "ArcFace", "ProxyNCA")],
    "T05": [("Triplet", "NPair")],
    "T08": [("Margin", "LiftedStructure")],
    "T09": [("Margin", "NPair")],
}
PROXIES = ("ProxyNCA", "SoftTriple", "ProxyAnchor")
OF_PAIRS = ("Contrastive", "Triplet", "LiftedStructure", "NPair", "Margin", "MultiSimilarity")


def claims(ask: Ask, results: Mapping[str, Results]) -> list[Claim]:
    losses, theirs = without_start_runs(results["thesis_losses"]), published(ask)
    made = [
        Claim("T01", [_first(losses, each, "ProxyAnchor") for each in losses.experiments()]),
        Claim("T02", [_last(losses, each, "NPair") for each in losses.experiments()]),
    ]
    for name, pairs in PAIRS.items():
        findings = [
            against(losses, b, a, _printed(theirs, each, a, b), f"{a} against {b}, {each}", each)
            for a, b in pairs
            for each in losses.experiments()
            if {a, b} <= set(losses.methods())
        ]
        made.append(Claim(name, findings))
    networks = [(USUAL, BN_INCEPTION), (BN_INCEPTION, "googlenet")]
    made += [
        Claim("T11", [_mean_gain(losses, theirs, one, other) for one, other in
                      (((a, 512), (b, 512)) for a, b in networks)]),
        Claim("T13", _by_size(losses, theirs, [(512, 1024)])),
        Claim("T14", _by_size(losses, theirs, [(64, 128), (128, 512)])),
        *_epochs(losses),
        *_protocols(results, ask),
    ]  # fmt: skip
    own, tables = without_start_runs(results["thesis_own"]), _own_table(ask)
    for name, others in (("T31", [CHOSEN]), ("T32", ["SoftTriple", "ProxyAnchor"])):
        sign = 1 if name == "T31" else -1
        made.append(Claim(name, [
            against(own, other, "variant 2", tables.get("variant 2", math.nan)
                    - tables.get(other, math.nan), f"against {other}", expected=sign)
            for other in others if other in own.methods()
        ]))  # fmt: skip
    return made


def _printed(theirs: Published, each: str, one: str, other: str) -> float:
    """The published difference of two losses in an experiment of ours."""
    words = each.replace("embedding_size ", "").replace(",", "").split()
    network = next((w for w in words if not w.isdigit()), USUAL)
    size = next((int(w) for w in words if w.isdigit()), 0)
    values = [theirs.get((network, size, loss), [math.nan])[0] for loss in (one, other)]
    return float(values[0]) - float(values[1])


def _first(results: Results, each: str, method: str) -> Finding:
    """Against the best of the others."""
    others = [m for m in results.methods() if m != method and results.of(each, m)]
    best = max(others, key=lambda m: mean_of(results.of(each, m), R1), default="")
    return against(results, best, method, of=f"{each}, against {best}", experiment=each)


def _last(results: Results, each: str, method: str) -> Finding:
    """Against the worst of the others."""
    others = [m for m in results.methods() if m != method and results.of(each, m)]
    worst = min(others, key=lambda m: mean_of(results.of(each, m), R1), default="")
    return against(
        results, worst, method, of=f"{each}, against {worst}", experiment=each, expected=-1
    )


def _mean_gain(
    results: Results, theirs: Published, one: tuple[str, int], other: tuple[str, int]
) -> Finding:
    """Mean over losses of recall under one network and size less that under another."""
    names = sorted({run.planned.labels.get("backbone", "") for run in results.runs})
    changes, printed = [], []
    for loss in results.methods():
        sides = [
            100 * mean_of(runs_of(results, network if network in names else "", size, loss), R1)
            for network, size in (one, other)
        ]
        if one[0] == other[0] or {one[0], other[0]} <= set(names):
            changes.append(sides[0] - sides[1])
        known = [theirs.get((*place, loss), [math.nan])[0] for place in (one, other)]
        printed.append(float(known[0]) - float(known[1]))
    title = f"{experiment(*one)} over {experiment(*other)}, mean over losses"
    numbers = [value for value in printed if not math.isnan(value)]
    return mean_finding(title, changes, float(np.mean(numbers)) if numbers else math.nan)


def _by_size(
    results: Results, theirs: Published, steps: Sequence[tuple[int, int]]
) -> list[Finding]:
    networks = list(dict.fromkeys(r.planned.labels.get("backbone", USUAL) for r in results.runs))
    sizes = {int(run.planned.labels["embedding_size"]) for run in results.runs}
    return [
        _mean_gain(results, theirs, (network, large), (network, small))
        for network in networks
        for small, large in steps
        if {small, large} <= sizes
    ]


def _epochs(results: Results) -> list[Claim]:
    """The selected epochs of losses, by seed and experiment."""

    def selected(loss: str) -> list[float]:
        runs = [run for each in results.experiments() for run in results.of(each, loss)]
        return [float(run.epoch) for run in runs if run.epoch is not None]

    early = [20 - epoch for epoch in selected("ProxyAnchor")]
    means = [[float(np.mean(selected(m))) for m in some if selected(m)] for some in
             (OF_PAIRS, PROXIES)]  # fmt: skip
    pairs = float(np.mean(means[0])) if means[0] else math.nan
    fewer = [pairs - each for each in means[1]]
    return [
        Claim("T19", [mean_finding("20 less the selected epoch", early)], "epochs"),
        Claim("T20", [mean_finding("losses on pairs less those with proxies", fewer)], "epochs"),
    ]


def _protocols(results: Mapping[str, Results], ask: Ask) -> list[Claim]:
    ratios, folds = results["thesis_ratios"], results["thesis_folds"]
    rows = table("thesis_protocols") if ask.published_data == "cub200" else []
    fractions = {
        str(r["setting"]): r["test_r1"] for r in rows if r["table"] == "fixed validation ratio"
    }

    def fraction(name: str) -> float:
        value = fractions.get(name)
        return value if isinstance(value, float) else math.nan

    best = [
        against(
            ratios, other, "90/10", fraction("90/10") - fraction(other), f"against {other}", CHOSEN
        )
        for other in ("70/30", "80/20", "95/5")
    ]
    runs = [run for run in folds.of("", CHOSEN) if run.state == "done" and run.selection]
    points = [(run.selection.value, run.score(R1)) for run in runs if run.selection]
    line = pearson([x for x, _ in points], [y for _, y in points])
    order = [("ProxyAnchor", "SoftTriple"), ("SoftTriple", CHOSEN)]
    means = {str(r["loss"]): r["test_r1"] for r in rows if r["table"] == "10-fold"}
    selected = [
        mean_finding(f"{a} over {b}", _by_fold(folds, a, b), _gap(means, BESIDE[a], BESIDE[b]))
        for a, b in order
        if {a, b} <= set(folds.methods())
    ]
    tuned = {
        name: [_tuned(results, loss)] if loss in results["thesis_search"].methods() else []
        for name, loss in (("T27", CHOSEN), ("T28", "SoftTriple"), ("T29", "ProxyAnchor"))
    }
    return [
        Claim("T22", selected),
        Claim("T24", [Finding(CHOSEN, line.r, line.low, line.high, -0.36 if rows else math.nan)],
              "r of validation and test recall over folds"),
        Claim("T25", best),
        *(Claim(name, outcome) for name, outcome in tuned.items()),
    ]  # fmt: skip


def _gap(values: Mapping[str, object], one: str, other: str) -> float:
    known = [value for name in (one, other) if isinstance(value := values.get(name), float)]
    return known[0] - known[1] if len(known) == 2 else math.nan


def _by_fold(folds: Results, one: str, other: str) -> list[float]:
    scores = [{r.replicate: 100 * r.score(R1) for r in folds.of("", m)} for m in (one, other)]
    return [scores[0][key] - scores[1][key] for key in scores[0].keys() & scores[1].keys()]


def _tuned(results: Mapping[str, Results], loss: str) -> Finding:
    """With the values that the search has found, against those of the text on the same classes."""
    plain = MethodRuns(results["thesis_ratios"], loss, "90/10")
    outcome = MethodRuns(results["thesis_search"], "", loss)
    return finding_of(compared(plain, outcome), f"{loss}, found values against those of the text")


def _own_table(ask: Ask) -> dict[str, float]:
    """Recall@1 of tables 17 to 19."""
    known = {
        loss: row[0]
        for (network, size, loss), row in published(ask).items()
        if (network, size) == (BN_INCEPTION, 512)
    }
    for row in table("thesis_own_loss"):
        if row["dataset"] == ask.published_data and isinstance(row["v1"], float):
            known["variant 2"] = row["v1"]
    return known
