"""Presets end to end on tiny data: real runs, seconds each."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from unseen.reproductions import published_study as published_studies
from unseen.reproductions import request, source_items
from unseen.reproductions.against_source import without_start_runs
from unseen.reproductions.claims import claims_section
from unseen.reproductions.published_study import Evidence
from unseen.reproductions.roth import objectives
from unseen.studies import findings
from unseen.studies import study_file as plans
from unseen.studies.findings import Saved, Section, saved
from unseen.studies.results import read
from unseen.studies.study_figures import Drawn
from unseen.studies.worker import Worker
from unseen.training.run_folder import RunFolder


@pytest.fixture(scope="session")
def features(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """12 classes of 10 features in 16 dimensions, half of them for testing."""
    generator = np.random.default_rng(0)
    labels = np.repeat(np.arange(12), 10)
    centers = generator.normal(size=(12, 16))
    values = centers[labels] + 2.0 * generator.normal(size=(120, 16))
    file = tmp_path_factory.mktemp("features") / "tiny.npz"
    np.savez(file, features=values.astype(np.float32), labels=labels, of="cub200")
    return file


@pytest.fixture(scope="session")
def many_classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """164 classes of 3 features in 16 dimensions, 12 of them noise that training can leave out:
    enough for batches of 144, two of a class."""
    generator = np.random.default_rng(0)
    labels = np.repeat(np.arange(164), 3)
    centers = generator.normal(size=(164, 16)) * ([4.0] * 4 + [0.0] * 12)
    values = centers[labels] + generator.normal(size=(len(labels), 16)) * ([0.5] * 4 + [3.0] * 12)
    file = tmp_path_factory.mktemp("features") / "many.npz"
    np.savez(file, features=values.astype(np.float32), labels=labels, of="cub200")
    return file


def check_figure(drawn: Drawn) -> None:
    """A figure says what it shows: a caption, marks in every panel, a label for every axis with
    ticks, and a title for each of several panels; panels of a row or column may share them."""
    assert drawn.caption, drawn.name
    panels = [ax for ax in drawn.figure.axes if ax.get_visible()]
    assert panels, f"{drawn.name} has no panel"
    for ax in panels:
        marks = [*ax.lines, *ax.collections, *ax.images, *ax.patches]
        assert [m for m in marks if m.get_visible()], f"{drawn.name} has an empty panel"
        place = ax.get_subplotspec()
        row = [p for p in panels if p.get_subplotspec().rowspan == place.rowspan]
        column = [p for p in panels if p.get_subplotspec().colspan == place.colspan]
        if ax.axison and len(ax.get_xticks()):
            assert any(each.get_xlabel() for each in column), f"{drawn.name}: no label of x"
        if ax.axison and len(ax.get_yticks()):
            assert any(each.get_ylabel() for each in row), f"{drawn.name}: no label of y"
        titles = [each.get_title(loc=side) for each in column for side in ("left", "center")]
        assert len(panels) == 1 or any(titles), f"{drawn.name}: a panel without a title"
    many = [ax for ax in panels if len(ax.get_legend_handles_labels()[1]) > 1]
    assert not many or drawn.figure.legends or any(ax.get_legend() for ax in panels), drawn.name


def checked_and_saved(drawn: Drawn, folder: RunFolder) -> Saved:
    check_figure(drawn)
    return saved(drawn, folder)


def work_here(watcher: Worker, storage: str, grace: int, *rest: object) -> None:
    """Runs a study in the process of the test, from the text that a process of its own is given."""
    Worker(plans.parse(watcher.plan.to_toml()), storage, watcher.out, grace).work()


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Runs a published study with one seed and one epoch, at a rate that lets methods differ: its
    folder. Those of a test process share their runs, as those of a user's folder do."""
    out = tmp_path_factory.mktemp("published")

    def make(name: str, data: Path | str, *settings: str, of: str = "") -> Path:
        words = ("epochs=1", "batch_size=8", "lr=0.01", *settings)
        ask = request.Ask(str(data), "quick", words, seeds=1, of=of)
        with pytest.MonkeyPatch.context() as patch:  # pages of studies have tests of their own
            patch.setattr(published_studies.study_report, "write", lambda results: results.out)
            patch.setattr(findings, "saved", checked_and_saved)
            patch.setattr("unseen.studies.engine._supervise", work_here)  # so have its processes
            page = published_studies.run(published_studies.find(name), ask, out)
        message = (page.parent / "findings.md").read_text()
        for item in source_items.of(name):
            assert f"### {item.section}\n" in message, f"{item.item} is not shown"
        return page.parent

    return make


@pytest.fixture(scope="session")
def unpublished() -> Callable[[Path], str]:
    """What a finished study would say of data that no source has: its words and tables."""

    def show(folder: Path) -> str:
        message = json.loads((folder / "published.json").read_text())
        values = message["ask"] | {"settings": tuple(message["ask"]["settings"]), "of": "others"}
        study, ask = published_studies.find(message["name"]), request.Ask(**values)
        studies = {plan.name: folder.parent / "studies" / plan.name for plan in study.plans(ask)}
        results = {name: without_start_runs(read(place)) for name, place in studies.items()}
        measured = json.loads((folder / "measured.json").read_text())["values"]
        evidence = Evidence(ask, results, measured)
        sections, claims = study.sections(evidence), study.claims(evidence)
        sections = [claims_section(claims, ask.published_title), *sections] if claims else sections
        tables = [line for each in sections for table in each.tables for line in table.markdown()]
        return "\n".join([*(text for each in sections for text in each.result), *tables])

    return show


@pytest.fixture
def few_objectives(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of Roth et al. that have a partner with the switch, and two more: 7 of 18."""
    partners = [plain for plain, _ in objectives.switched("cub200").values()]
    few = {name: objectives.objectives()[name] for name in (*partners, "GenLifted", "Softmax")}
    monkeypatch.setattr(objectives, "objectives", lambda is_short=True, data="": dict(few))


@pytest.fixture
def unrun(tmp_path: Path) -> Callable[..., list[Section]]:
    """What a published study shows before any run has finished."""

    def show(name: str, data: Path | str) -> list[Section]:
        published, ask, results = published_studies.find(name), request.Ask(str(data)), {}
        for plan in published.plans(ask):
            RunFolder(tmp_path / plan.name).write_text("study.toml", plan.to_toml())
            results[plan.name] = read(tmp_path / plan.name)
        evidence = Evidence(ask, results, {})
        claims = published.claims(evidence) if published.answers else []
        first = [claims_section(claims, ask.published_title)] if claims else []
        return [*first, *published.sections(evidence)]

    return show
