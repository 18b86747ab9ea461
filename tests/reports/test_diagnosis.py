"""A diagnosis on the page and on the terminal: sentences, remedies, suspects; nothing unescaped."""

import json
from pathlib import Path
from typing import Any

from rich.console import Console

from unseen.reports import diagnosis, page

TOLD: dict[str, Any] = {
    "descriptor": "embedding",
    "findings": [
        {"about": "gap", "level": "warning", "text": "A <wide> gap.", "remedy": "More classes."},
        {"about": "labels", "level": "good", "text": "Labels are fine.", "remedy": ""},
    ],
    "numbers": {"train": {"recall@1": 0.9123, "rho": None}, "test": {"recall@1": 0.5, "rho": 0.2}},
    "suspects": {"train": [[3, "<b>"]], "test": []},
    "hubs": [],
    "robustness": {"recall": [[1.0, 0.5, 0.0], [0.5, 0.4, 0.01]], "scatter_ratio": 0.25},
}


def test_the_page(run: Path, dataset: Any) -> None:
    (run / "diagnosis.json").write_text(json.dumps(TOLD))
    html = page.write(run, dataset).read_text()
    assert "A &lt;wide&gt; gap." in html
    assert "More classes." in html
    assert "rather <bdi>&lt;b&gt;</bdi>?" in html
    assert "91.2 %" in html
    assert "50% of the places 40.0 ± 1.0" in html


def test_the_terminal() -> None:
    console = Console(markup=False, width=80, record=True)
    console.print(diagnosis.printed(TOLD))
    text = console.export_text()
    assert "! A <wide> gap." in text
    assert "R@1" in text
    assert "→ More classes." in text
    assert "Scatter ratio 0.25" in " ".join(text.split())


def test_further_lines_stand_under_the_first() -> None:
    console = Console(markup=False, width=40, record=True)
    finding = {"level": "note", "text": "seen " * 10, "remedy": "other " * 10}
    console.print(diagnosis.printed(TOLD | {"findings": [finding]}))
    lines = [line.rstrip() for line in console.export_text().splitlines()]
    seen, other = " ".join(["seen"] * 7), " ".join(["other"] * 6)
    assert lines[:2] == [f"• {seen}", "  seen seen seen"]
    assert lines[2:4] == [f"  → {other}", "    other other other other"]
