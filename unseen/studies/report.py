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
from html import escape
from pathlib import Path

from unseen.data.pictures.table_file import write_csv
from unseen.evaluation.gain import verdict
from unseen.reports.sections import search_with
from unseen.reports.tables import ON_TEST, metric_title, row_title
from unseen.studies import tables
from unseen.studies.document import Part, document, fact, figure, saved
from unseen.studies.figures import Drawn, draw_all, played
from unseen.studies.results import Results, Run, standings
from unseen.training.run_folder import RunFolder

SAME = 5e-4  # scores that look equal in percent with one digit
NAMED = 5  # methods a headline names


def write(results: Results, extra: list[tuple[str, str]] | None = None) -> Path:
    """Writes the page and what stands beside it; `extra` are further sections, (title, HTML)."""
    folder = RunFolder(results.out / "report")
    drawn = draw_all(results) if _finished(results) else []
    pictures = {each.name: saved(each, folder) for each in drawn}
    folder.write_text("table.md", tables.markdown(results))
    folder.write_text("table.tex", tables.latex(results))
    folder.write_text("runs.csv", _csv(results))
    parts = [
        ("scores", "Scores", tables.html(results) + _figures(drawn, pictures, ("scores",))),
        *([("tuning", "Tuning", _tuning(results, drawn, pictures))] if results.searches else []),
        ("tournament", "Tournament", _tournament(results, drawn, pictures)),
        ("more", "Set-ups and metrics", _figures(drawn, pictures, ("relative", "correlation"))),
        *[(f"extra-{i}", title, body) for i, (title, body) in enumerate(extra or [])],
        ("how", "What was compared, and how", _how(results)),
        ("runs", "Every run", _runs(results)),
    ]
    shown = [Part(*part) for part in parts if part[2]]
    page = document(results.plan.name, headline(results), _notices(results), shown)
    folder.write_text("index.html", page)
    return folder.file("index.html")


def headline(results: Results) -> str:
    """The result in one sentence: first of all whether training has added anything."""
    standing = standings(results)
    rows = [row for row in standing if not row.is_baseline and row.scores]
    if not rows:
        return f"{escape(results.plan.name)}: no run has finished yet"
    metric = results.plan.metric
    best = max(rows, key=lambda row: row.scores[metric].mean)
    reached, title = best.scores[metric].mean, escape(metric_title(metric))
    where = f" ({escape(best.experiment)})" if best.experiment else ""
    tied = [
        row.method
        for row in rows
        if row.experiment == best.experiment and reached - row.scores[metric].mean < SAME
    ]
    value, count = f"<em>{100 * reached:.1f}&nbsp;%</em>", len(results.methods())
    told = f"{escape(best.method)}{where} is best of {count} by {title} on unseen classes: {value}"
    if len(tied) > 1:
        names = ", ".join(tied) if len(tied) < count or count <= NAMED else f"all {count}"
        told = f"{escape(names)}{where} tie by {title} on unseen classes: {value}"
    starts = [row for row in standing if row.method == "untrained" and metric in row.scores]
    start = next((row for row in starts if row.experiment == best.experiment), None)
    runs = [run for run in results.of(best.experiment, best.method) if run.state == "done"]
    if start is None or _adds_something(runs, reached - start.scores[metric].mean):
        return told
    name = escape(row_title("untrained", runs[0].result))
    before = f"{name} {100 * start.scores[metric].mean:.1f}&nbsp;%"
    return f'<span class="warning">Training added nothing beyond chance to {before}.</span> {told}'


def _adds_something(runs: list[Run], gain: float) -> bool:
    """Some run is better than its start beyond chance; where runs do not say, their mean is."""
    verdicts = [found.level for run in runs if (found := verdict(run.result or {})) is not None]
    return "good" in verdicts if verdicts else gain >= SAME


def _finished(results: Results) -> list[Run]:
    return [run for run in results.runs if run.state == "done"]


def _figures(drawn: list[Drawn], pictures: dict[str, str], names: tuple[str, ...]) -> str:
    return "".join(
        figure(each, pictures[each.name]) for each in drawn if each.name.startswith(names)
    )


def _tournament(results: Results, drawn: list[Drawn], pictures: dict[str, str]) -> str:
    result = played(results) if _finished(results) else None
    if result is None:
        return ""
    rows = "".join(
        f"<tr><td>{escape(p.method)}</td><td>{p.total:g}</td><td>{p.mean:.2f}</td>"
        f"<td>{p.std:.2f}</td></tr>"
        for p in result.places
    )
    return (
        '<div class="scroll"><table class="study"><thead><tr><th>method</th><th>sum of ranks</th>'
        f"<th>mean</th><th>s</th></tr></thead><tbody>{rows}</tbody></table></div>"
        f"<p>{len(result.experiments)} experiments; equal scores share their ranks, a method that "
        "failed comes last.</p>" + _figures(drawn, pictures, ("ranks", "critical_difference"))
    )


def _tuning(results: Results, drawn: list[Drawn], pictures: dict[str, str]) -> str:
    chosen = {
        ", ".join(run.cell.labels.values()): run.cell.parameters
        for run in results.runs
        if run.cell.parameters
    }
    rows = "".join(
        f"<tr><td>{escape(name)}</td><td>"
        + escape(", ".join(f"{key} = {value}" for key, value in found.items()))
        + "</td></tr>"
        for name, found in chosen.items()
    )
    table = f"<table><thead><tr><th>variant</th><th>best values</th></tr></thead>{rows}</table>"
    return table + _figures(drawn, pictures, ("search",))


def _how(results: Results) -> str:
    plan = results.plan
    about = f"<p>{escape(plan.about)}</p>" if plan.about else ""
    compared = "".join(
        fact(name, ", ".join(found))
        for name in plan.factors
        if (found := list(dict.fromkeys(run.cell.labels[name] for run in results.runs)))
    )
    done = _finished(results)
    split = (done[0].result or {}).get("split", {}) if done else {}
    classes = ", ".join(
        f"{split[f'{part}_classes']:,} {part}"
        for part in ("train", "validation", "test")
        if f"{part}_classes" in split
    )
    hashes = sorted({str((run.result or {}).get("split", {}).get("hash")) for run in done})
    facts = compared + fact("seeds", ", ".join(map(str, plan.seeds)))
    facts += fact("classes", classes) if classes else ""
    facts += fact("splits", ", ".join(hashes)) if done else ""
    on = "test" if results.on_test else "validation"
    facts += fact("selected on", f"{on} classes")
    chosen = "are tested" if results.on_test else "were neither trained on nor tested"
    command = f"unseen study run study.toml --out {shlex.quote(results.out.name)}"
    return (
        f'{about}<dl class="facts">{facts}</dl><p>All runs share seeds, and for each seed data and '
        "classes, and every setting below that is not compared; the epoch of each was chosen on "
        f"classes that {chosen}.</p><h3>To make it again</h3><pre>{escape(command)}</pre>"
        f"<details><summary>study.toml</summary><pre>{escape(plan.to_toml())}</pre></details>"
        + _search(results)
    )


def _on_features(run: Run) -> bool:
    return "features" in (run.result or {}).get("data", {})


def _search(results: Results) -> str:
    """The way to the search page with the best run; features have no pictures to search."""
    done = [run for run in _finished(results) if not _on_features(run)]
    if not done:
        return ""
    best = max(done, key=lambda run: (run.selection or {}).get("value", -math.inf))
    return search_with(f"runs/{best.folder.name}")


def _runs(results: Results) -> str:
    metric = results.plan.metric
    rows = ""
    for run in (*results.runs, *results.searches):
        link = f'<a href="../runs/{escape(run.folder.name)}/">{escape(run.cell.title)}</a>'
        if (run.folder / "report" / "index.html").exists():
            link += f' <a href="../runs/{escape(run.folder.name)}/report/index.html">page</a>'
        value = run.score(metric)
        shown = f"{100 * value:.1f}" if not math.isnan(value) else ""
        chosen = (run.selection or {}).get("value")
        selected = "" if chosen is None else f"{100 * chosen:.1f}"
        seconds = f"{run.seconds:.0f}" if not math.isnan(run.seconds) else ""
        mark = ' class="failed"' if run.state == "failed" else ""
        rows += (
            f"<tr{mark}><td>{link}</td><td>{escape(run.cell.stage)}</td>"
            f"<td>{escape(run.state)} {escape(run.error)}</td><td>{shown}</td><td>{selected}</td>"
            f"<td>{seconds}</td></tr>"
        )
    heads = ("run", "stage", "state", f"{metric_title(metric)} %", "selected by %", "seconds")
    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
    return (
        f"<p>{len(results.runs)} runs; <a href='runs.csv'>runs.csv</a>, "
        "<a href='table.md'>table.md</a>, <a href='table.tex'>table.tex</a>.</p><details><summary>"
        'Show them</summary><div class="scroll" tabindex="0" role="region" aria-label="Runs">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div></details>"
    )


def _csv(results: Results) -> str:
    rows = [row | {"folder": Path(row["folder"]).name} for row in results.rows()]
    heads = list(dict.fromkeys(head for row in rows for head in row))
    stream = io.StringIO()
    write_csv(stream, [heads, *([row.get(head, "") for head in heads] for row in rows)])
    return stream.getvalue()


def _notices(results: Results) -> list[str]:
    open_runs = sum(run.state == "open" for run in results.runs)
    told = [ON_TEST] if results.on_test else []
    if open_runs:
        told.append(f"Not finished: {open_runs} of {len(results.runs)} runs are missing.")
    return told
