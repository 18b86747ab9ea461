"""The page of a study of generalisation: the answer in words, then what it rests on."""

import math
from collections.abc import Sequence
from pathlib import Path

from unseen.reports.tables import metric_title
from unseen.statistics import Spread
from unseen.studies.document import Table
from unseen.studies.generalisation.measure import Measured, Row
from unseen.studies.generalisation.plan import EMBEDDING, VALIDATION, Layers, Size
from unseen.studies.generalisation.verdict import HeldUp, held_up
from unseen.studies.published import page
from unseen.studies.published.page import Section, Title
from unseen.studies.published.source_values import settled, trained
from unseen.studies.results import Results
from unseen.studies.shift import shift_curves, shift_figures, shift_table
from unseen.training.run_folder import RunFolder

OPEN_SET = {
    name: metric_title(name)
    for name in ("unknown_auroc", "fpr_at_tpr@0.95", "dir_at_far@0.01", "BAKS", "BAUS")
}
SHOTS = {"before": "before", "after": "after", "gain": "gain"}
SOURCE = (
    "the ladder is that of Milbich, Roth et al. 2021, Characterizing Generalization under "
    "Out-Of-Distribution Shifts in Deep Metric Learning; the rest is our own"
)


def write(
    folder: RunFolder,
    command: str,
    results: Results,
    measured: Measured,
    size: Size,
    layers: Layers | None = None,
) -> Path:
    """index.html and findings.md."""
    title = Title(
        "generalisation", SOURCE, "how methods hold up as classes become stranger", command
    )
    sections = sections_of(results, measured, size)
    differences = [*_trained(results, layers), *_set_up(results, size)]
    return page.write(folder, title, sections, differences, {"generalisation": results})


def sections_of(results: Results, measured: Measured, size: Size) -> list[Section]:
    """What is shown; the first sentence of the first is the headline."""
    answer, curves = held_up(results), shift_curves(results)
    found = [answer.sentence, *([answer.detail] if answer.detail else []), *_gates(answer)]
    tables = [shift_table(curves, results.plan.metric)] if curves else []
    tables += [_judged(answer)] if any(each.failed for each in answer.standings) else []
    sections = [Section("Shift", found, tables, shift_figures(results))]
    if measured.few_shots:
        told = (
            f"What {size.shots} labelled pictures of each test class add to recall@1, in percent."
        )
        sections.append(_section("Few shots", told, measured.few_shots, SHOTS, size.ends))
    if measured.open_set:
        told = (
            "Half of the test classes are not in the gallery: are their queries told apart? BAKS "
            "and BAUS at the threshold that balances them on validation classes; in percent."
        )
        sections.append(_section("Open set", told, measured.open_set, OPEN_SET, size.ends))
    if measured.retention:
        columns = {key: key for row in measured.retention for key in row.values}
        told = "What training at home did to recall@1, at home and on other data, in points."
        steps = sorted({row.step for row in measured.retention})
        sections.append(_section("Other domains", told, measured.retention, columns, steps, "+"))
    return sections


def _gates(answer: HeldUp) -> list[str]:
    failing = [each for each in answer.standings if each.failed]
    if not failing:
        return ["All methods pass the gates of a verdict at every step."]
    return [f"{len(failing)} of {len(answer.standings)} methods fail a gate: see the second table."]


def _judged(answer: HeldUp) -> Table:
    rows = [
        [each.method, f"{100 * each.area:.1f}", f"cannot be judged: {each.failed}"]
        if each.failed
        else [each.method, f"{100 * each.area:.1f}", "passed"]
        for each in answer.standings
    ]
    return Table(["method", "area", "gates, at all steps"], rows)


def _section(
    title: str,
    told: str,
    rows: Sequence[Row],
    columns: dict[str, str],
    steps: Sequence[int],
    sign: str = "",
) -> Section:
    """A table of methods by values, at some steps."""
    shown = {key: name for key, name in columns.items() if any(key in row.values for row in rows)}
    heads = ["method", *(f"step {step}: {name}" for step in steps for name in shown.values())]
    by_place = {(row.method, row.step): row.values for row in rows}
    table = [
        [method, *(_text(by_place.get((method, step), {}).get(key), sign or _sign(key))
                   for step in steps for key in shown)]
        for method in dict.fromkeys(row.method for row in rows)
    ]  # fmt: skip
    return Section(title, [told], [Table(heads, table, "±: 95 % interval over seeds.")])


def _sign(key: str) -> str:
    return "+" if key == "gain" else ""


def _text(value: Spread | None, sign: str) -> str:
    if value is None:
        return "–"
    half = 100 * (value.high - value.low) / 2
    spread = "" if math.isnan(half) else f" ± {half:.1f}"
    return f"{100 * value.mean:{sign}.1f}{spread}"


def _trained(results: Results, layers: Layers | None) -> list[str]:
    if layers is None:
        start = f"Heads of {EMBEDDING} values on frozen features are trained"
        return [f"{start}; the source trains ResNet-50."]
    sentences = trained(settled([results]))
    return [*sentences, f"The source trains ResNet-50. The ladder is made of {layers.of}."]


def _set_up(results: Results, size: Size) -> list[str]:
    smaller = "multi_similarity+s2sd has one teacher of 512 values instead of four up to 2,048."
    return [
        f"{100 * VALIDATION:.0f} % of each step's training classes select the epoch and tune the "
        f"learning rate ({size.trials} values for each method and step), and are not trained on.",
        *([smaller] if any("s2sd" in method for method in results.methods()) else []),
        f"Steps {', '.join(map(str, size.steps))} of the ladder, {size.seeds} "
        f"seed{'s' * (size.seeds > 1)}; steps with too few classes to tune on are left out where "
        "three others have enough.",
    ]
