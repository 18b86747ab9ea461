"""The README's Python runs, and says what it promises; its commands exist."""

import re
from pathlib import Path
from typing import Any

import pytest

from unseen.core import registry

README = (Path(__file__).parent.parent / "README.md").read_text()


def test_the_python_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (program,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    space: dict[str, Any] = {}
    exec(compile(program, "README.md", "exec"), space)
    rows = space["run"].result.scores
    recall = {row: rows[row].metrics["recall@1"].value for row in ("trained", "features")}
    assert recall["trained"] > recall["features"] + 0.4


def test_the_python_example_is_short_and_the_one_that_is_compared_with_other_libraries() -> None:
    (program,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len([line for line in program.splitlines() if line.strip()]) <= 15
    compared = Path(__file__).parent.parent / "docs" / "from_pytorch_metric_learning.md"
    assert program in compared.read_text()


def test_its_two_commands_are_targets_of_the_makefile() -> None:
    makefile = (Path(__file__).parent.parent / "Makefile").read_text()
    for command in ("demo", "test"):
        assert f"make {command}" in README
        assert f"\n{command}:" in makefile


def test_the_losses_are_counted() -> None:
    message = f"with {len(registry.names('losses'))} published losses"
    assert message in README
    assert message in (Path(__file__).parent.parent / "docs" / "index.md").read_text()


def test_every_folder_it_names_exists() -> None:
    root = Path(__file__).parent.parent
    for name in re.findall(r"`(unseen/[\w./]+|[A-Z]+\.md|benchmarks|tests|docs/[\w.]+)`", README):
        assert (root / name).exists(), name


def test_no_guide_has_the_name_of_a_page_that_sphinx_makes() -> None:
    guides = {path.stem for path in (Path(__file__).parent.parent / "docs").glob("*.md")}
    assert guides.isdisjoint({"search", "genindex", "modindex"})
