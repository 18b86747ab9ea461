"""The report of a study: one HTML file that needs no network; figures and tables beside it.

report/index.html        the page; figures are inside it
report/figures/*.png,pdf for slides and papers
report/table.md, .tex    the table for a README or a paper
report/runs.csv          every run with all its scores

Made from the run folders alone: the same runs give the same page.
"""

import io
import math
import shlex
from collections.abc import Sequence
from pathlib import Path

from unseen.core.html_templates import Headline, PageSection
from unseen.data.images.table_file import write_csv
from unseen.reports.score_tables import metric_title, row_title
from unseen.reports.sections import SearchWith
from unseen.reports.tables import Table
from unseen.studies import study_tables
from unseen.studies.effect_figure import effects_drawn
from unseen.studies.extra_results import extra_tables
from unseen.studies.findings import Saved, document, saved
from unseen.studies.results import Results, Run, standings
from unseen.studies.shift_results import shift_figures, shift_tables
from unseen.studies.study_figures import draw_all, played
from unseen.training.manifest import SplitMetadata
from unseen.training.run_folder import RunFolder

SAME = 5e-4  # scores that look equal in percent with one digit
NAMED = 5  # methods a headline names


def write(results: Results) -> Path:
    """Writes the page and what stands beside it."""
    folder = RunFolder(results.out / "report")
    drawn = [*draw_all(results), *shift_figures(results)] if _finished(results) else []
    drawn += effects_drawn(results.comparisons(), results.plan.metric, on_test=results.on_test)
    figures = [saved(each, folder) for each in drawn]
    folder.write_text("table.md", study_tables.markdown(results))
    folder.write_text("table.tex", study_tables.latex(results))
    folder.write_text("runs.csv", _csv(results))
    page = document(
        results.plan.name, headline(results), _notices(results), _parts(results, figures)
    )
    folder.write_text("index.html", page)
    return folder.file("index.html")


def _parts(results: Results, figures: Sequence[Saved]) -> list[PageSection]:
    def some(*names: str) -> list[Saved]:
        return [each for each in figures if each.name.startswith(names)]

    scores, figures_of_scores = study_tables.study_table(results), some("scores", "curves")
    parts = [PageSection.of("studies/scores", "Scores", scores=scores, figures=figures_of_scores)]
    tables = {  # of a section, and the figures that stand with them
        "Distribution shift": (shift_tables(results), some("shift")),
        "By class size": (study_tables.averages_tables(results), []),
        "Few shots and open sets": (extra_tables(results), []),
        "Conclusions and validity checks": (
            study_tables.evaluated_tables(results.comparisons()),
            some("effects"),
        ),
        "Tuning": (_tuned(results), some("search")),
        "Tournament": (_ranks(results), some("ranks", "critical_difference")),
    }
    for title, (shown, drawn) in tables.items():
        if shown:
            anchor = title.lower().replace(" ", "-")
            section = PageSection.of("studies/tables", title, anchor, tables=shown, figures=drawn)
            parts.append(section)
    return [*parts, _how(results), _runs(results)]


def headline(results: Results) -> Headline:
    """The result in one sentence: first of all whether training has added anything."""
    standing = standings(results)
    rows = [row for row in standing if not row.is_baseline and row.scores]
    if not rows:
        return Headline(f"{results.plan.name}: no run has finished yet")
    metric = results.plan.metric
    best = max(rows, key=lambda row: row.scores[metric].mean)
    reached, title = best.scores[metric].mean, metric_title(metric)
    where = f" ({best.experiment})" if best.experiment else ""
    tied = [
        row.method
        for row in rows
        if row.experiment == best.experiment and reached - row.scores[metric].mean < SAME
    ]
    count = len(results.methods())
    others = [each for each in results.comparisons() if each.experiment == best.experiment]
    is_best = all((each.word, each.against) == ("worse", best.method) for each in others)
    first = f"is best of {count} by {title}" if is_best else f"has the highest {title} of {count}"
    message = f"{best.method}{where} {first} on unseen classes: "
    if len(tied) > 1:
        names = ", ".join(tied) if len(tied) < count or count <= NAMED else f"all {count}"
        message = f"{names}{where} tie by {title} on unseen classes: "
    starts = [row for row in standing if row.method == "untrained" and metric in row.scores]
    start = next((row for row in starts if row.experiment == best.experiment), None)
    runs = [run for run in results.of(best.experiment, best.method) if run.state == "done"]
    warning = ""
    if start is not None and not _adds_something(runs, reached - start.scores[metric].mean):
        before = f"{row_title('untrained', runs[0].result)} {_percent(start.scores[metric].mean)}"
        warning = f"Training added nothing beyond chance to {before}."
    return Headline(message, _percent(reached), warning=warning)


def _percent(value: float) -> str:
    return f"{100 * value:.1f}\u00a0%"  # the number and its sign stay on one line


def _adds_something(runs: list[Run], gain: float) -> bool:
    """Some run is better than its start beyond chance, in recall@1 or mAP@R; where runs do not say,
    their mean is."""
    conclusions = [
        f.level for run in runs if run.result and (f := run.result.conclusion) is not None
    ]
    return conclusions.count("warning") < len(conclusions) if conclusions else gain >= SAME


def _finished(results: Results) -> list[Run]:
    return [run for run in results.runs if run.state == "done"]


def _tuned(results: Results) -> list[Table]:
    """The values that a search found for each configuration."""
    chosen = {
        ", ".join(run.planned.labels.values()): run.planned.parameters
        for run in results.runs
        if run.planned.parameters
    }
    rows = [
        [name, ", ".join(f"{key} = {value}" for key, value in values.items())]
        for name, values in chosen.items()
    ]
    return [Table(["configuration", "best values"], rows)] if results.searches else []


def _ranks(results: Results) -> list[Table]:
    result = played(results) if _finished(results) else None
    if result is None:
        return []
    rows = [[p.method, f"{p.total:g}", f"{p.mean:.2f}", f"{p.std:.2f}"] for p in result.places]
    caption = (
        f"{len(result.experiments)} experiments; equal scores share their ranks, a method that "
        "failed comes last."
    )
    return [Table(["method", "sum of ranks", "mean", "s"], rows, caption)]


def _how(results: Results) -> PageSection:
    plan, done = results.plan, _finished(results)
    compared = [
        (name, ", ".join(dict.fromkeys(run.planned.labels[name] for run in results.runs)))
        for name in plan.factors
    ]
    splits = [run.result.split for run in done if run.result]
    first = splits[0] if splits else SplitMetadata()
    counts = {
        "train": first.train_classes,
        "validation": first.validation_classes,
        "test": first.test_classes,
    }
    classes = [f"{number:,} {name}" for name, number in counts.items() if number is not None]
    hashes = sorted({split.hash for split in splits})
    on = "test" if results.on_test else "validation"
    metadata = [
        *compared,
        ("seeds", ", ".join(map(str, plan.seeds))),
        ("classes", ", ".join(classes)),
        ("splits", ", ".join(hashes)),
        ("selected on", f"{on} classes"),
    ]
    return PageSection.of(
        "studies/how",
        "What was compared, and how",
        about=plan.about,
        metadata=[(title, text) for title, text in metadata if text],
        on_test=results.on_test,
        command=f"unseen study run study.toml --out {shlex.quote(results.out.name)}",
        toml=plan.to_toml(),
        search=_search(results),
    )


def _on_features(run: Run) -> bool:
    return run.result is not None and run.result.data.features is not None


def _search(results: Results) -> SearchWith | None:
    """The way to the search page with the best run; features have no images to search."""
    done = [run for run in _finished(results) if not _on_features(run)]
    if not done:
        return None
    best = max(done, key=lambda run: run.selection.value if run.selection else -math.inf)
    return SearchWith(f"runs/{best.folder.name}")


def _runs(results: Results) -> PageSection:
    runs, count = (*results.runs, *results.searches), len(results.runs)
    metric, head = results.plan.metric, metric_title(results.plan.metric)
    return PageSection.of(
        "studies/runs", "Every run", runs=runs, count=count, metric=metric, head=head
    )


def _csv(results: Results) -> str:
    rows = [row | {"folder": Path(row["folder"]).name} for row in results.rows()]
    heads = list(dict.fromkeys(head for row in rows for head in row))
    stream = io.StringIO()
    write_csv(stream, [heads, *([row.get(head, "") for head in heads] for row in rows)])
    return stream.getvalue()


def _notices(results: Results) -> list[str]:
    open_runs = sum(run.state == "open" for run in results.runs)
    message = results.warnings
    if open_runs:
        message.append(f"Not finished: {open_runs} of {len(results.runs)} runs are missing.")
    return message
