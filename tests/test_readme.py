"""The README's Python runs, and says what it promises; its commands exist."""

import re
from pathlib import Path

import pytest

README = (Path(__file__).parent.parent / "README.md").read_text()


def test_the_python_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    exec(compile(program, "README.md", "exec"), {})
    features, trained = capsys.readouterr().out.splitlines()
    recall = [float(re.findall(r"recall@1 ([\d.]+)", line)[0]) for line in (features, trained)]
    assert recall[1] > recall[0] + 0.2


def test_its_two_commands_are_targets_of_the_makefile() -> None:
    makefile = (Path(__file__).parent.parent / "Makefile").read_text()
    for command in ("demo", "test"):
        assert f"make {command}" in README
        assert f"\n{command}:" in makefile


def test_every_folder_it_names_exists() -> None:
    root = Path(__file__).parent.parent
    for name in re.findall(r"`(unseen/[\w./]+|[A-Z]+\.md|benchmarks|tests|docs/[\w.]+)`", README):
        assert (root / name).exists(), name


def test_no_guide_has_the_name_of_a_page_that_sphinx_makes() -> None:
    guides = {path.stem for path in (Path(__file__).parent.parent / "docs").glob("*.md")}
    assert guides.isdisjoint({"search", "genindex", "modindex"})
