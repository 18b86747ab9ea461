"""Advice on what to install works from a clone and from an index, and names what there is."""

import re
import sys
import tomllib
from pathlib import Path

import pytest

from unseen.core import extras

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_in_a_clone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(extras, "_pip", lambda: "pip")
    monkeypatch.chdir(ROOT)
    assert extras.install_command("search") == "pip install -e '.[search]'"
    monkeypatch.chdir(tmp_path)
    assert extras.install_command("search") == f"pip install -e '{ROOT}[search]'"


def test_from_an_index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(extras, "_pip", lambda: "pip")
    monkeypatch.setattr(extras, "__file__", str(tmp_path / "site-packages/unseen/core/extras.py"))
    assert extras.install_command("search") == f"pip install '{PROJECT['name']}[search]'"


@pytest.mark.parametrize("is_ours", [True, False])
def test_the_pip_of_this_python(monkeypatch: pytest.MonkeyPatch, is_ours: bool) -> None:
    place = Path(sys.executable).parent if is_ours else Path("/another/bin")
    monkeypatch.setattr(extras.shutil, "which", lambda name: str(place / name))
    assert (extras.install_command("onnx").startswith("pip ")) is is_ours
    assert "pip install" in extras.install_command("onnx")


def test_every_extra_that_is_advised_exists() -> None:
    request = set()
    for file in (ROOT / "unseen").rglob("*.py"):
        request |= set(re.findall(r"install_command\(['\"](\w+)['\"]\)", file.read_text()))
    assert request
    assert request <= set(PROJECT["optional-dependencies"])


def test_nobody_is_sent_to_a_name_that_may_be_anothers() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "unseen").rglob("*.py")]
    assert not [
        page.name for page in pages if re.search(r"install '?unseen\b(?!-)", page.read_text())
    ]
