"""Tables from run folders: means and intervals by hand, tests that find what is there, failures
and selection on test classes shown."""

import csv
import io
import json
import math
import re
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from unseen.cli.console import Terminal
from unseen.evaluation.long_tail import Third
from unseen.reports.sections import SEARCH_PAGE
from unseen.reproductions import charts
from unseen.studies import study_tables
from unseen.studies.engine import local_storage
from unseen.studies.findings import saved
from unseen.studies.results import Results, effect, gain, read, standings
from unseen.studies.study_figures import Drawn, curves, draw_all
from unseen.studies.study_report import headline, write
from unseen.studies.worker import Worker
from unseen.training.manifest import DataMetadata
from unseen.training.run_folder import RunFolder


def study(stub: ModuleType, out: Path, **more: Any) -> Results:
    plan = stub.small_plan(**more)
    RunFolder(out).write_text("study.toml", plan.to_toml())
    Worker(plan, local_storage(out), out).work()
    return read(out)


@pytest.fixture(scope="module")
def finished(stub: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Results:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Worker, "_train", stub.instant)
        return study(stub, tmp_path_factory.mktemp("finished") / "a study", seeds=[0, 1, 2])


def test_means_spreads_and_baselines(finished: Results) -> None:
    rows = standings(finished)
    first = rows[0]
    assert (first.experiment, first.method) == ("embedding_size 8", "margin")
    assert first.is_best
    assert [row.method for row in rows[:4]] == ["margin", "contrastive", "triplet", "untrained"]
    values = [
        run.score("recall@1")
        for run in finished.runs
        if run.planned.labels == {"loss": "margin", "embedding_size": "8"}
    ]
    spread = first.scores["recall@1"]
    assert (spread.mean, spread.std) == pytest.approx((np.mean(values), np.std(values, ddof=1)))
    half = 4.302653 * spread.std / math.sqrt(3)  # t with two degrees of freedom
    assert spread.high - spread.mean == pytest.approx(half)
    assert rows[3].is_baseline
    assert rows[3].scores["recall@1"].mean == pytest.approx(0.11)
    assert rows[3].done == 3


def test_methods_have_the_baseline_of_their_own_distance(
    stub: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def other(worker: Worker, planned: Any, values: Any, folder: RunFolder, callbacks: Any) -> None:
        stub.instant(worker, planned, values, folder, callbacks)
        if planned.labels["loss"] == "triplet":
            result = folder.read_json("result.json")
            result["scores"]["untrained"]["metrics"]["recall@1"]["value"] = 0.2
            folder.write_json("result.json", result)
            folder.write_json("selection.json", folder.read_json("selection.json") | {"epoch": -1})

    monkeypatch.setattr(Worker, "_train", other)
    results = study(stub, tmp_path / "b", seeds=[0, 1])
    rows = [row for row in standings(results) if row.experiment == "embedding_size 8"]
    untrained = {row.of: row for row in rows if row.method == "untrained"}
    assert {of: row.scores["recall@1"].mean for of, row in untrained.items()} == {
        ("margin", "contrastive"): pytest.approx(0.105),
        ("triplet",): pytest.approx(0.2),
    }
    assert [row.done for row in untrained.values()] == [2, 2]
    names = [study_tables.name_of(row, rows) for row in rows]
    assert {"untrained network (others)", "untrained network (triplet)"} <= set(names)
    assert (
        "began with: embedding_size 8: triplet 2 of 2" in study_tables.study_table(results).caption
    )


def test_methods_that_tie_with_their_start_are_not_called_best(
    finished: Results, stub: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def equal(worker: Worker, planned: Any, values: Any, folder: RunFolder, callbacks: Any) -> None:
        stub.instant(worker, planned, values, folder, callbacks)
        result = folder.read_json("result.json")
        for row in ("trained", "untrained"):
            result["scores"][row]["metrics"]["recall@1"]["value"] = 0.919
        folder.write_json("result.json", result | known)

    known = dict[str, Any]()
    message = headline(finished).before
    assert message.startswith("margin (embedding_size 8) has the highest R@1 of 3")
    monkeypatch.setattr(Worker, "_train", equal)
    message = headline(study(stub, tmp_path / "b"))
    assert "is best of" not in message.before
    assert message.warning.startswith("Training added nothing beyond chance")
    same = {"before": 0.919, "after": 0.919, "low": -0.01, "high": 0.01}
    ranks = {"before": 0.434, "after": 0.529, "low": 0.06, "high": 0.13}
    known["start"] = {"title": "untrained network", "kind": "random"}
    known["gain"] = {"recall@1": same, "map_at_r": ranks}
    assert headline(study(stub, tmp_path / "c")).warning == "", "mAP@R gained"
    assert all(method in message.before for method in ("margin", "contrastive", "triplet"))
    assert message.before.endswith("(embedding_size 8) tie by R@1 on unseen classes: ")
    assert message.value == "91.9\u00a0%"


def test_an_effect_is_that_of_all_queries_paired_by_seed(finished: Results) -> None:
    margin = finished.of("embedding_size 8", "margin")
    triplet = finished.of("embedding_size 8", "triplet")
    same = finished.of("embedding_size 16", "margin")  # the stand-in does not look at sizes
    result = effect(triplet, margin[1:], "recall@1")
    assert result is not None
    kept = [[run.per_class for run in runs[1:]] for runs in (triplet, margin)]
    sums = [[sum(each.sums) for each in row if each] for row in kept]
    assert result.value == pytest.approx((sum(sums[1]) - sum(sums[0])) / (2 * 300))
    assert (result.seeds, result.classes) == (2, 30)
    assert result.low > 0
    none = effect(margin, same, "recall@1")
    assert none is not None
    assert (none.low, none.value, none.high) == (0, 0, 0)
    assert effect(margin, [], "recall@1") is None
    over_seeds_alone = effect(triplet, margin, "nmi")
    assert over_seeds_alone is not None
    assert over_seeds_alone.classes == 1
    assert gain(margin, "pixels", "recall@1") is not None  # of which nothing is known
    assert math.isnan(getattr(gain(margin, "pixels", "recall@1"), "value", 0.0))


def test_clusterings_have_values_by_class(finished: Results) -> None:
    def with_nmi(runs: list[Any], shift: float) -> list[Any]:
        known = [run.per_class for run in runs]
        nmi = [
            replace(
                each,
                metric="nmi",
                sums=[s + shift * n for s, n in zip(each.sums, each.counts, strict=True)],
            )
            for each in known
        ]
        return [
            replace(run, per_class=replace(own, others=[each]))
            for run, own, each in zip(runs, known, nmi, strict=True)
        ]

    margin = finished.of("embedding_size 8", "margin")
    result = effect(with_nmi(margin, 0.0), with_nmi(margin, 0.1), "nmi")
    assert result is not None
    assert (result.seeds, result.classes) == (3, 30)
    assert result.value == pytest.approx(0.1)


def test_runs_on_other_classes_are_compared_over_seeds_alone(finished: Results) -> None:
    margin = finished.of("embedding_size 8", "margin")
    triplet = finished.of("embedding_size 8", "triplet")
    assert margin[0].per_class is not None
    other = replace(margin[0].per_class, classes=list(range(1, 31)))
    moved = [replace(margin[0], per_class=other), *margin[1:]]
    result = effect(triplet, moved, "recall@1")
    assert result is not None
    assert (result.seeds, result.classes) == (3, 1)


def test_the_table_in_every_form(finished: Results) -> None:
    made = study_tables.study_table(finished)
    assert made.all_heads() == ["experiment", "loss", "R@1 %", "NMI %", "runs"]
    lines = study_tables.markdown(finished).splitlines()
    assert lines[2].startswith("| **embedding_size 8** | **margin** | **6")
    scores = lines[: lines.index("")]
    assert len([line for line in scores if line.startswith("| ")]) == 1 + 8
    text = study_tables.latex(finished)
    assert text.partition(r"\end{tabular}")[0].count(r"\\") == 1 + 8
    assert r"embedding\_size 8" in text
    assert r"$\pm$" in text
    assert len(made.rows) == 8
    assert "Chosen on test" not in text


def test_notes_explain_what_is_shown(
    finished: Results, instant: ModuleType, tmp_path: Path
) -> None:
    written, shown = study_tables.markdown(finished), str(study_tables.terminal(finished).caption)
    assert "(s " in written
    assert "s: standard deviation" in written
    assert shown.startswith("±: half of the 95 % interval of the mean over runs.")
    once = study(instant, tmp_path / "once", seeds=[0])
    assert "±" not in study_tables.markdown(once)
    assert study_tables.terminal(once).caption == ""


def test_conclusions_and_validity_checks_are_framed_on_80_columns(finished: Results) -> None:
    screen = io.StringIO()
    Terminal(file=screen, force_terminal=True, width=80).print(
        study_tables.evaluated_terminal(finished)
    )
    heads = [line for line in screen.getvalue().splitlines() if "┃" in line]
    assert [any(word in line for line in heads) for word in ("conclusion", "check")] == [
        True,
        True,
    ]


def test_how_far_a_method_is_from_the_best(finished: Results) -> None:
    first, *_ = finished.comparisons()
    assert (first.experiment, first.method, first.against) == (
        "embedding_size 8", "contrastive", "margin"
    )  # fmt: skip
    assert first.effect is not None
    words = study_tables.conclusion_table([first]).rows[0][2]
    value, low, high = (float(number) / 100 for number in re.findall(r"[+-][\d.]+", words))
    assert value == pytest.approx(first.effect.value, abs=5e-4)
    assert low < value < high
    page = write(finished).read_text()
    assert "Conclusions and validity checks" in page
    for text in (page, study_tables.markdown(finished), study_tables.latex(finished)):
        assert "inconclusive: " in text
        assert "not tuned" in text


def test_selection_on_test_classes_is_marked_everywhere(
    instant: ModuleType, tmp_path: Path
) -> None:
    results = study(instant, tmp_path, seeds=[0], config={"select": "test"})
    assert results.on_test
    page = write(results).read_text()
    for text in (study_tables.markdown(results), study_tables.latex(results), page):
        assert "Chosen on test classes" in text
    assert "classes that are tested" in page
    for drawn in draw_all(results):
        texts = [text.get_text() for text in drawn.figure.findobj(Text)]
        assert any("Chosen on test classes" in text for text in texts)


def test_scores_against_a_factor_of_numbers(instant: ModuleType, tmp_path: Path) -> None:
    """A panel for each loss, a line for each filter, the means over seeds at each share."""
    filters = {"without": {}, "prism": {"label_filter": {"name": "prism", "fraction": 0.2}}}
    losses = ["margin", "triplet"]
    factors = {"filter": filters, "label_noise": [0.0, 0.1, 0.4], "loss": losses}
    results = study(instant, tmp_path, seeds=[0, 1], factors=factors)
    (drawn,) = curves(results)
    assert drawn.name == "curves_label_noise"
    assert [ax.get_title(loc="left") for ax in drawn.figure.axes] == losses
    for loss, ax in zip(losses, drawn.figure.axes, strict=True):
        names = [container.get_label() for container in ax.containers]
        assert names == ["without", "prism"]
        for name, container in zip(names, ax.containers, strict=True):
            line: Any = container[0]  # type: ignore[index]
            assert line.get_xdata().tolist() == [0.0, 0.1, 0.4]
            result = [results.of(f"label_noise {x}, {loss}", name) for x in line.get_xdata()]
            expected = [np.mean([100 * run.score("recall@1") for run in runs]) for runs in result]
            assert line.get_ydata() == pytest.approx(expected)


def test_data_that_lack_items_are_marked_everywhere(finished: Results) -> None:
    runs = tuple(
        replace(
            run, result=replace(run.result, data=DataMetadata(incomplete="Incomplete: 9 of 10."))
        )
        for run in finished.runs
        if run.result
    )
    results = replace(finished, runs=runs)
    for text in (study_tables.markdown(results), study_tables.latex(results)):
        assert text.count("Incomplete: 9 of 10.") >= 1
    assert study_tables.study_table(results).warning == "Incomplete: 9 of 10."


def test_the_page(finished: Results) -> None:
    page = write(finished)
    text = page.read_text()
    for section in ("Scores", "Tournament", "What was compared", "Every run"):
        assert section in text
    anchors = re.findall(r'id="(section-[^"]+)"', text)
    assert len(set(anchors)) == len(anchors) > 4, "each section has a link of its own"
    assert text.count('<img src="data:image/png;base64,') == 4
    assert re.search(r"<td>[\d.]+<small>±[\d.]+ \(s [\d.]+\)</small></td>", text)
    for run in finished.runs:
        assert f"../runs/{run.folder.name}/" in text
    assert "unseen study run study.toml --out &#39;a study&#39;" in text
    assert text.count("http://") == text.count(f'<a href="{SEARCH_PAGE}">') == 1
    assert "unseen index build runs/margin-" in text
    figures = {file.name for file in (page.parent / "figures").iterdir()}
    assert {"scores.png", "scores.pdf", "critical_difference.pdf", "ranks.png"} <= figures
    assert (page.parent / "table.tex").exists()
    assert len((page.parent / "runs.csv").read_text().splitlines()) == 1 + 18
    before = page.read_bytes()
    assert write(read(finished.out)).read_bytes() == before


def test_a_young_study_has_a_page(stub: ModuleType, tmp_path: Path) -> None:
    RunFolder(tmp_path).write_text("study.toml", stub.small_plan().to_toml())
    text = write(read(tmp_path)).read_text()
    assert "no run has finished yet" in text
    assert "12 of 12 runs are missing" in text
    with pytest.raises(ValueError, match="is no study"):
        read(tmp_path / "runs")


def test_tuned_values_reach_the_final_runs(instant: ModuleType, tmp_path: Path) -> None:
    parameters = [{"key": "lr", "values": [0.1, 0.3, 0.2]}]
    search = {"mode": "coordinate", "config": {"epochs": 1}, "parameters": parameters}
    results = study(
        instant, tmp_path, seeds=[0], search=search, factors={"loss": ["margin", "triplet"]}
    )
    assert [run.planned.parameters for run in results.runs] == [{"lr": 0.3}] * 2
    assert [row.tuning_runs for row in standings(results)[:2]] == [3, 3]
    assert not any((run.folder / "result.json").exists() for run in results.searches)
    text = write(results).read_text()
    assert "lr = 0.3" in text
    assert "tuning runs" in text


def test_a_study_that_only_tunes(instant: ModuleType, tmp_path: Path) -> None:
    search = {"mode": "coordinate", "parameters": [{"key": "lr", "values": [0.1, 0.3]}]}
    results = study(instant, tmp_path, seeds=[0, 1], search=search, factors={})
    assert [run.planned.parameters for run in results.runs] == [{"lr": 0.3}] * 2
    assert results.methods() == ["small"]
    assert study_tables.study_table(results).heads[0] == "study"
    assert "lr = 0.3" in write(results).read_text()


def test_proposals_are_pruned_and_the_best_is_used(instant: ModuleType, tmp_path: Path) -> None:
    parameters = [{"key": "lr", "low": 0.001, "high": 1.0, "log": True}]
    search = {"mode": "tpe", "trials": 8, "parameters": parameters}
    more = {"seeds": [0], "search": search, "factors": {"loss": ["margin", "triplet"]}}
    results = study(instant, tmp_path / "one", **more)
    for configuration in ("margin", "triplet"):
        tried = [run for run in results.searches if run.planned.labels["loss"] == configuration]
        assert len(tried) == 8
        rates = {run.state: [] for run in tried} | {"done": [], "pruned": []}
        for run in tried:
            rates[run.state].append((run.parameters or {})["lr"])
        assert rates["pruned"]
        (final,) = [run for run in results.runs if run.planned.labels["loss"] == configuration]
        assert final.planned.parameters["lr"] == max(rates["done"])
    again = study(instant, tmp_path / "two", **more)  # with one worker nothing is left to chance
    assert [run.parameters for run in again.searches] == [
        run.parameters for run in results.searches
    ]


def test_rows(finished: Results) -> None:
    rows = finished.rows()
    assert len(rows) == 18
    assert rows[0]["loss"] == "margin"
    assert rows[0]["state"] == "done"
    assert rows[0]["recall@1"] == pytest.approx(2 * rows[0]["nmi"], abs=2e-6)
    assert json.dumps(rows)
    frame = finished.frame
    assert len(frame) == 18
    assert frame.loc[0, "recall@1"] == rows[0]["recall@1"]


def test_labels_are_no_formulas_and_no_commands(instant: ModuleType, tmp_path: Path) -> None:
    """A price list: two dollars, a backslash, and what a spreadsheet would compute."""
    label = r"=1+1 for $5 or $6 \n~^ {50 %}"
    hostile = "<script>{{ 7*7 }}"
    factors = {"price": {label: {"lr": 0.1}, "b$$": {"lr": 0.2}, hostile: {"lr": 0.3}}}
    results = study(instant, tmp_path / hostile, factors=factors, seeds=[0], about=hostile)
    page = write(results)
    html = page.read_text()
    assert "for $5 or $6" in html
    assert html.count("&lt;script&gt;{{ 7*7 }}") > 5
    assert hostile not in html
    written = r"=1+1 for \$5 or \$6 \textbackslash{}n\textasciitilde{}\textasciicircum{} \{50 \%\}"
    assert f"{written} & " in (page.parent / "table.tex").read_text()
    with (page.parent / "runs.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["price"] for row in rows] == [f"'{label}", "b$$", hostile]


@pytest.mark.parametrize("scale", ["log", "symlog"])
def test_logarithmic_axes_are_labelled_without_formulas(tmp_path: Path, scale: str) -> None:
    def ticks(which: str) -> list[str]:
        return [tick.get_text() for tick in ax.get_yticklabels(which=which)]

    figure = Figure()
    ax = figure.subplots()
    charts.logarithmic(ax, scale).plot([1, 2], [0.001, 1000])
    saved(Drawn("wide", "", figure), RunFolder(tmp_path))
    assert {"1", "10", "100"} <= set(ticks("major"))
    ax.set_ylim(20, 60)  # without a power of ten
    saved(Drawn("narrow", "", figure), RunFolder(tmp_path))
    texts = [text for text in ticks("both") if text]
    assert not [text for text in texts if "$" in text]
    assert scale == "symlog" or "30" in texts


def test_averages_over_classes_and_by_their_size(finished: Results) -> None:
    assert study_tables.averages_tables(finished) == []  # nothing differs
    sizes = [Third(name, 2, n, n, {"recall@1": n / 10}) for name, n in (("head", 9), ("tail", 2))]
    runs = [
        replace(run, result=replace(run.result, thirds=sizes)) if run.result else run
        for run in finished.runs
    ]
    (result,) = study_tables.averages_tables(replace(finished, runs=tuple(runs)))
    assert list(result.heads[1:]) == ["queries %", "classes %", "head %", "middle %", "tail %"]
    assert all(list(row[3:]) == ["90.0", "–", "20.0"] for row in result.rows)
    assert "By class size" in write(replace(finished, runs=tuple(runs))).read_text()
