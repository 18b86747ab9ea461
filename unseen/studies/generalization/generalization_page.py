"""The page of a study of generalisation: the answer in words, then what it rests on."""

from collections.abc import Sequence
from pathlib import Path

from unseen.core.statistics import Spread
from unseen.reports.score_tables import metric_title
from unseen.reports.tables import Cell, Table
from unseen.studies import findings
from unseen.studies.extra_results import SEEDS, SHOTS, values_table
from unseen.studies.findings import Section, Title
from unseen.studies.generalization.conclusion import Conclusion, conclusion_of
from unseen.studies.generalization.extra_measures import Measured, Row
from unseen.studies.generalization.plan_runs import EMBEDDING, VALIDATION, Layers, Size
from unseen.studies.results import Results
from unseen.studies.shift_results import shift_figures, shift_tables
from unseen.studies.study_tables import passed_cell
from unseen.studies.validity_checks import INCONCLUSIVE
from unseen.studies.what_was_trained import resolved_configs, trained
from unseen.training.run_folder import RunFolder

OPEN_SET = {
    name: metric_title(name)
    for name in ("unknown_auroc", "fpr_at_tpr@0.95", "dir_at_far@0.01", "BAKS", "BAUS")
}
SOURCE = (
    "the splits of growing shift are those of Milbich, Roth et al. 2021, Characterizing "
    "Generalization under Out-Of-Distribution Shifts in Deep Metric Learning; the rest is our own"
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
        "generalization", SOURCE, "how methods hold up as the distribution shifts", command
    )
    sections = sections_of(results, measured, size)
    differences = [*_trained(results, layers), *_set_up(results, size)]
    return findings.write(folder, title, sections, differences, {"generalization": results})


def sections_of(results: Results, measured: Measured, size: Size) -> list[Section]:
    """What is shown; the first sentence of the first is the headline."""
    answer = conclusion_of(results)
    result = [
        answer.sentence,
        *([answer.detail] if answer.detail else []),
        *_validity_checks(answer),
    ]
    tables = shift_tables(results)
    tables += [_evaluated(answer)] if any(each.reasons for each in answer.standings) else []
    sections = [Section("Shift", result, tables, shift_figures(results))]
    if measured.few_shots:
        message = (
            f"What {size.shots} labelled images of each test class add to recall@1, in percent."
        )
        sections.append(_section("Few shots", message, measured.few_shots, SHOTS, size.ends))
    if measured.open_set:
        message = (
            "Half of the test classes are not in the gallery: are their queries significantly "
            "different? BAKS "
            "and BAUS at the threshold that balances them on validation classes; in percent."
        )
        sections.append(_section("Open set", message, measured.open_set, OPEN_SET, size.ends))
    if measured.forgetting:
        columns = {key: key for row in measured.forgetting for key in row.values}
        message = "What training at home did to recall@1, at home and on other data, in points."
        steps = sorted({row.step for row in measured.forgetting})
        sections.append(
            _section("Other domains", message, measured.forgetting, columns, steps, "+")
        )
    return sections


def _validity_checks(answer: Conclusion) -> list[str]:
    failing = [each for each in answer.standings if each.reasons]
    if not failing:
        return ["All methods pass the validity checks of a conclusion at every step."]
    return [
        f"{len(failing)} of {len(answer.standings)} methods fail a validity check: see the "
        "second table."
    ]


def _evaluated(answer: Conclusion) -> Table:
    rows: list[list[Cell | str]] = [
        [
            each.method,
            f"{100 * each.area:.1f}",
            passed_cell(f"{INCONCLUSIVE}: {each.why}" if each.reasons else ""),
        ]
        for each in answer.standings
    ]
    return Table(["method", "area", "validity checks, at all steps"], rows)


def _section(
    title: str,
    message: str,
    rows: Sequence[Row],
    columns: dict[str, str],
    steps: Sequence[int],
    sign: str = "",
) -> Section:
    """A table of methods by values, at some steps."""
    shown = {key: name for key, name in columns.items() if any(key in row.values for row in rows)}
    heads = {f"{step} {key}": f"step {step}: {shown[key]}" for step in steps for key in shown}
    values: dict[str, dict[str, Spread]] = {}
    for row in rows:
        at_step = {f"{row.step} {key}": value for key, value in row.values.items()}
        values.setdefault(row.method, {}).update(at_step)
    return Section(title, [message], [values_table(values, heads, SEEDS, sign)])


def _trained(results: Results, layers: Layers | None) -> list[str]:
    if layers is None:
        start = f"Heads of {EMBEDDING} values on frozen features are trained"
        return [f"{start}; the source trains ResNet-50."]
    sentences = trained(resolved_configs([results]))
    return [*sentences, f"The source trains ResNet-50. The splits are made of {layers.of}."]


def _set_up(results: Results, size: Size) -> list[str]:
    smaller = "multi_similarity+s2sd has one teacher of 512 values instead of four up to 2,048."
    return [
        f"{100 * VALIDATION:.0f} % of each step's training classes select the epoch and tune the "
        f"learning rate ({size.trials} values for each method and step), and are not trained on.",
        *([smaller] if any("s2sd" in method for method in results.methods()) else []),
        f"Steps {', '.join(map(str, size.steps))} of the growing shift, {size.seeds} "
        f"seed{'s' * (size.seeds > 1)}; steps with too few classes to tune on are left out where "
        "three others have enough.",
    ]
