"""A diagnosis on the page and on the terminal: sentences, remedies, label issues; nothing
unescaped."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from unseen.cli.console import console
from unseen.evaluation.findings import Finding
from unseen.reports import diagnosis, run_page

MESSAGE: dict[str, Any] = {
    "descriptor": "embedding",
    "findings": [
        asdict(Finding("gap", "warning", "A <wide> gap.", "More classes.")),
        asdict(Finding("labels", "good", "Labels", detail="all are fine")),
    ],
    "numbers": {"train": {"recall@1": 0.9123, "rho": None}, "test": {"recall@1": 0.5, "rho": 0.2}},
    "label_issues": {"train": [[3, "<b>"]], "test": []},
    "hubs": [],
    "robustness": {"recall": [[1.0, 0.5, 0.0], [0.5, 0.4, 0.01]], "scatter_ratio": 0.25},
}


def test_the_page(run: Path, dataset: Any) -> None:
    (run / "diagnosis.json").write_text(json.dumps(MESSAGE))
    html = run_page.write(run, dataset).read_text()
    assert "A &lt;wide&gt; gap." in html
    assert "More classes." in html
    assert "rather <bdi>&lt;b&gt;</bdi>?" in html
    assert "91.2 %" in html
    assert "50% of the places 40.0 ± 1.0" in html


def test_numbers_of_further_diagnostics_stand_below(run: Path, dataset: Any) -> None:
    more = {"Mine": {"train": {"<a>": 1.25, "row": [1, 2]}, "test": {"<a>": None, "row": [3]}}}
    (run / "diagnosis.json").write_text(json.dumps(MESSAGE | {"more": more}))
    html = run_page.write(run, dataset).read_text()
    assert '<th scope="row">Mine: &lt;a&gt;</th><td>1.25</td><td>–</td>' in html
    assert "Mine: row" not in html


def test_the_terminal(capsys: pytest.CaptureFixture[str], dataset: Any) -> None:
    command = "unseen train 'my birds' " + "descriptor=best " * 9
    finding = asdict(Finding("long", "note", "seen " * 30, command))
    console.print(
        diagnosis.printed(MESSAGE | {"findings": [*MESSAGE["findings"], finding]}, dataset)
    )
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines[:2] == ["! A <wide> gap.", "  → More classes."]
    assert lines[2] == "✓ Labels: all are fine"
    assert lines[3:5] == [f"• {'seen ' * 30}".rstrip(), f"  → {command}".rstrip()]
    numbers = next(line.split() for line in lines if "R@1" in line)
    assert numbers == ["R@1", "91.2", "%", "50.0", "%"]
    assert lines[-3].endswith("Scatter ratio 0.25.")
    assert lines[-2] == "Neighbours suggest another class, training classes:"
    assert lines[-1].endswith(", rather <b>")
