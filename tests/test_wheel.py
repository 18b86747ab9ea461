"""What `pip install` brings is whole: every file of the package is in the wheel, and a wheel that
is installed where the clone is not trains, reports and serves its pages."""

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
import venv
from contextlib import closing, suppress
from pathlib import Path

import pytest
import torch
from setuptools import Distribution
from setuptools.config.pyprojecttoml import apply_configuration

import unseen
from unseen.data.glyphs import Glyphs

ROOT = Path(__file__).parents[1]
FEW = ["data.max_classes=20", "data.size=16", "epochs=1", "workers=0"]


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
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the commands of an environment with the wheel; other packages are ours."""
    place = tmp_path_factory.mktemp("wheel")
    source = place / "source"
    shutil.copytree(
        ROOT / "unseen", source / "unseen", ignore=shutil.ignore_patterns("__pycache__")
    )
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    made = "from setuptools import build_meta; build_meta.build_wheel('..')"
    subprocess.run([sys.executable, "-c", made], cwd=source, check=True, stdout=subprocess.DEVNULL)
    (wheel,) = place.glob("*.whl")
    shutil.rmtree(source)
    venv.create(place / "venv", symlinks=True)
    python = place / "venv" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps"]
    subprocess.run([*pip, "--no-index", "-q", str(wheel)], check=True)
    (own,) = (place / "venv" / "lib").glob("python*/site-packages")
    (own / "others.pth").write_text(f"{Path(torch.__file__).parents[1]}\n")
    return python.parent


@pytest.mark.slow
def test_an_installed_wheel_trains_reports_and_serves(installed: Path, tmp_path: Path) -> None:
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}

    def run(*words: str) -> str:
        done = subprocess.run(words, cwd=tmp_path, env=env, check=True, stdout=subprocess.PIPE)
        return done.stdout.decode()

    own = str(installed / "unseen")
    where = run(str(installed / "python"), "-c", "import unseen; print(unseen.__file__)")
    assert Path(where.strip()).is_relative_to(installed.parent)
    assert run(own, "--version").split() == ["unseen", unseen.__version__]
    run(own, "train", "glyphs", *FEW, "--out", "runs/a")
    run(own, "report", "runs/a")
    assert "<h1>" in (tmp_path / "runs/a/report/index.html").read_text()
    assert "net_a" in run(own, "catalogue")
    glyphs = Glyphs(max_classes=20, size=16)
    (tmp_path / "images").mkdir()
    for index in range(0, len(glyphs), 9):
        glyphs.image(index).save(tmp_path / "images" / f"{index}.png")
    run(own, "index", "build", "runs/a", "images", "--out", "my.index")
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    words = [own, "serve", "my.index", "--port", str(port)]
    with subprocess.Popen(words, cwd=tmp_path, env=env, stdout=subprocess.DEVNULL) as server:
        try:
            check_pages(f"http://127.0.0.1:{port}", server)
        finally:
            server.terminate()


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
