"""What docs/serving.md tells to type works as it is written."""

import io
import re
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from tests.search.service.conftest import HOSTS, serving
from unseen.search.index import Index
from unseen.search.service.app import create_app
from unseen.search.service.index_registry import IndexRegistry
from unseen.search.service.middleware import Limits

GUIDE = (Path(__file__).parents[3] / "docs" / "serving.md").read_text()
SECTION = GUIDE.partition("## By HTTP\n")[2].partition("\n## ")[0]
OPEN, HELD = re.findall(r"```sh\n(.*?)```", SECTION, re.DOTALL)
(PROGRAM,) = re.findall(r"```python\n(.*?)```", SECTION, re.DOTALL)
PLACE = "http://127.0.0.1:8000"
TOKEN = "a-secret-word"


@pytest.fixture
def folder(tmp_path: Path, images: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copy(images / "class 0" / "0.png", tmp_path / "query.jpg")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_its_commands_run(registry: IndexRegistry, folder: Path, index_folder: Path) -> None:
    served = Path(shutil.copytree(index_folder, folder / "my.index"))
    open_to_all = create_app(registry, None, Limits(hosts=HOSTS, per_minute=0))
    held = create_app(IndexRegistry(served), None, Limits(hosts=HOSTS, per_minute=0, token=TOKEN))
    for app, commands in ((open_to_all, OPEN), (held, HELD)):
        with serving(app) as url:
            script = commands.replace(PLACE, url).replace("robin", "class 0")
            script = re.sub(r"(label=)class 0", r"\1class+0", script)
            answers = subprocess.run(
                ["sh", "-e"],
                input=script.replace("curl ", "curl -sS --fail-with-body "),
                env={"UNSEEN_TOKEN": TOKEN, "PATH": "/usr/bin:/bin"},
                capture_output=True,
                text=True,
                check=True,
            ).stdout
            assert '"detail"' not in answers
            assert answers.count("{") > len(commands.splitlines()) / 2
    assert zipfile.ZipFile(io.BytesIO((folder / "images.zip").read_bytes())).testzip() is None
    assert len((folder / "images.csv").read_text().splitlines()) == 7
    assert 4 not in Index.open(served).ids


def test_its_program_runs(
    registry: IndexRegistry, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(create_app(registry, None, Limits(hosts=HOSTS, per_minute=0))) as url:
        exec(compile(PROGRAM.replace(PLACE, url), "serving.md", "exec"), {})
    decision, *hits = capsys.readouterr().out.splitlines()
    assert decision == "None"
    assert len(hits) == 5
    assert " class 0 1.0 None" in hits[0]
