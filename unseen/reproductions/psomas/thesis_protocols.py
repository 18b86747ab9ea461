"""The thesis' protocols: shares of validation classes, folds, a search by coordinates."""

import math
from collections.abc import Mapping
from typing import Any

import matplotlib
import numpy as np

from unseen.reports.tables import Table
from unseen.reproductions.against_source import drawn, number
from unseen.reproductions.charts import Point, lines, point
from unseen.reproductions.numbers import table
from unseen.reproductions.request import Ask
from unseen.studies import study_figures
from unseen.studies.findings import Section
from unseen.studies.results import Results, effect
from unseen.studies.study_file import Values
from unseen.studies.validity_checks import interval_text

CHOSEN = "MultiSimilarity"  # whose protocols the thesis compares
BESIDE = {"MultiSimilarity": "multi_similarity", "SoftTriple": "soft_triple",
          "ProxyAnchor": "proxy_anchor"}  # fmt: skip
RATIOS = {"70/30": 0.3, "80/20": 0.2, "90/10": 0.1, "95/5": 0.05}
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
CARRY = (
    "One parameter at a time, the others at the values of the thesis' text; of values that tie the "
    "first one listed is taken. The print does not say whether found values are carried on."
)
RESULT = {  # what theirs found, as printed; gamma 58 is not on its own grid of tens
    "MultiSimilarity": "margin 0.8, alpha 18, beta 76, epsilon 0.4; 65.2 before",
    "SoftTriple": "margin 0.4, scale 78, rate 5e-5, gamma 58, tau 0.4; 66.8 before",
    "ProxyAnchor": "margin 0.1, scale 32, as by default; 68.1 before",
}


def search(epochs: int, grids: Mapping[str, Mapping[str, list[float]]]) -> Values:
    """One parameter at a time, in runs of half the length."""
    parameters = [
        {"key": key, "values": values, "where": {"loss": loss}}
        for loss, grid in grids.items()
        for key, values in grid.items()
    ]
    shorter = {"epochs": max(1, epochs // 2)}
    return {"mode": "coordinate", "config": shorter, "parameters": parameters}


def _protocol(name: str, ask: Ask) -> list[dict[str, Any]]:
    """The rows of one of the tables that the thesis has on CUB-200 alone."""
    is_theirs = ask.published_data == "cub200"
    return [row for row in table("thesis_protocols") if row["table"] == name and is_theirs]


def ratios(result: Results, ask: Ask) -> Section:
    theirs = {str(row["setting"]): row for row in _protocol("fixed validation ratio", ask)}
    rows, tests = [], {}
    for loss in result.experiments():
        for ratio in RATIOS:
            runs = result.of(loss, ratio)
            chosen = [100 * run.selection.value for run in runs if run.selection]
            test = point(ratio, runs, "recall@1")
            tests[f"{loss} {ratio}"] = test
            known = theirs.get(ratio, {}) if loss == CHOSEN else {}
            rows.append([
                loss, ratio, number(float(np.mean(chosen)) if chosen else None), number(test.value),
                number(known.get("validation_r1")), number(known.get("test_r1")),
            ])  # fmt: skip
    sentences = [
        "Validation recall is far above test recall, because few classes compete.",
    ]
    series = {
        "test classes": [tests[f"{CHOSEN} {ratio}"] for ratio in RATIOS],
    }
    if theirs:
        printed = [Point(r, float(row["test_r1"])) for r, row in theirs.items()]
        series["test classes, published"] = printed
    figure = drawn(
        "ratios", f"Recall@1 of {CHOSEN} on test classes by the share of training classes kept for "
        "training" + ("; dashed as published." if theirs else "."),
        lambda: lines(series, "training / validation classes, %", "recall@1, %",
                      [name for name in series if "published" in name]),
    )  # fmt: skip
    heads = ["loss", "ratio", "validation %", "test %", "published validation", "published test"]
    return Section("Validation ratios", sentences, [Table(heads, rows)], [figure])


def folds(result: Results, ask: Ask) -> Section:
    theirs = {str(row["loss"]): row for row in _protocol("10-fold", ask)}
    rows = []
    for loss in result.methods():
        scores = [100 * r.score("recall@1") for r in result.of("", loss) if r.state == "done"]
        spread = float(np.std(scores, ddof=1)) if len(scores) > 1 else math.nan
        row = theirs.get(BESIDE[loss], {})
        known = [number(row.get(key), 2) for key in ("test_r1", "test_std")]
        mean = float(np.mean(scores)) if scores else math.nan
        rows.append([loss, str(len(scores)), number(mean, 2), number(spread, 2), *known])
    heads = ["loss", "folds", "test R@1 %", "s", "published R@1", "published s"]
    shown = [Table(heads, rows), _by_fold(result, ask)]
    return Section("Cross validation by class", [], shown)


def _by_fold(result: Results, ask: Ask) -> Table:
    """Validation and test of every fold; their order is by chance, theirs and ours."""
    known = {int(row["setting"]): row for row in _protocol(f"10-fold {BESIDE[CHOSEN]} fold", ask)}
    rows = []
    for run in result.of("", CHOSEN):
        fold = run.replicate[1] + 1
        row = known.get(fold, {})
        chosen = 100 * (run.selection.value if run.selection else math.nan)
        scores = [number(chosen, 2), number(100 * run.score("recall@1"), 2)]
        theirs = [number(row.get(key), 2) for key in ("validation_r1", "test_r1")]
        rows.append([str(fold), *scores, *theirs])
    heads = ["fold", "validation R@1 %", "test R@1 %", "published validation", "published test"]
    return Table(heads, rows, f"{CHOSEN}, each fold once for validation.")


def tuning(results: Mapping[str, Results], ask: Ask) -> Section:
    result, plain = results["thesis_search"], results["thesis_ratios"]
    theirs = {str(row["loss"]): row["test_r1"] for row in _protocol("tuned on 90/10", ask)}
    rows = []
    for loss in result.methods():
        runs = result.of("", loss)
        default = plain.of(loss, "90/10")
        gain = effect(default, runs, "recall@1")
        chosen = runs[0].planned.parameters if runs else {}
        words = ", ".join(f"{key.partition('.')[2]} {value:g}" for key, value in chosen.items())
        before, after = (point(0, group, "recall@1").value for group in (default, runs))
        cells = [loss, words, number(before), number(after), interval_text(gain)]
        rows.append([*cells, number(theirs.get(BESIDE[loss])), RESULT[loss] if theirs else "–"])
    heads = [
        "loss",
        "chosen",
        "default R@1 %",
        "tuned R@1 %",
        "95 % interval",
        "published tuned",
        "its values",
    ]
    with matplotlib.rc_context(study_figures.STYLE):
        curves = study_figures.search(result)
    return Section("Coordinate search", [CARRY], [Table(heads, rows)], curves)
