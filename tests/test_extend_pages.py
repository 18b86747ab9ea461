"""The pages that say how to add a part do what they say, in an empty folder.

A block whose first line names a file is written to it; other Python runs, page by page in one
namespace; indented lines that begin with `unseen` are commands.
"""

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from unseen.cli.main import app
from unseen.studies import study_file
from unseen.studies.engine import Study

FOLDER = Path(__file__).parents[1] / "docs" / "extend"
PAGES = sorted(FOLDER.glob("*.md"))
BLOCK = re.compile(r"^```(python|toml)\n(.*?)^```$|^    (unseen [^\n]*)$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# ([\w/]+\.(?:py|toml))\n")

pytestmark = pytest.mark.usefixtures("narrow_network")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_code_of_a_page_runs(page: Path, here: Path) -> None:
    space: dict[str, object] = {"__name__": "page"}
    result = BLOCK.findall(page.read_text())
    assert result
    for _, code, command in result:
        if command:
            app(shlex.split(command, comments=True)[1:], standalone_mode=False)
        elif name := FILE.match(code):
            (here / name[1]).write_text(code)
        else:
            exec(compile(code, page.name, "exec"), space)
    for file in here.glob("*.toml"):
        if "[factors]" in file.read_text():
            Study(study_file.load(file))  # every cell's settings are made


def test_there_is_a_page_for_everything_that_can_be_added() -> None:
    request = [
        "loss",
        "miner",
        "network",
        "data_set",
        "metric",
        "protocol",
        "diagnostic",
        "classical_metric",
        "report_section",
        "command",
    ]
    assert {page.stem for page in PAGES} == {*request, "index"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_files_a_page_names_exist(page: Path) -> None:
    for name in re.findall(r"`((?:unseen|tests)/[\w/.]+)`", page.read_text()):
        assert "my_" in name or (FOLDER.parents[1] / name).exists(), name
