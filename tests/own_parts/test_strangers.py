"""A config, run, index or study of a stranger runs no code of his, whatever command opens it."""

import re
import shutil
from pathlib import Path

import pytest
from PIL import Image

from unseen.cli.main import app
from unseen.core import custom_components
from unseen.search.manifest import ModelEntry
from unseen.search.writer import Writer

PLAN = 'name = "his"\nseeds = [0]\n[config]\nepochs = 1\n[factors]\nloss = ["margin", "{part}"]\n'
COMMANDS = [
    ["train", "his.toml"],
    ["evaluate", "run", "his_run"],
    ["inspect", "diagnose", "his_run"],
    ["report", "his_run"],
    ["inspect", "layers", "his_run"],
    ["calibrate", "his_run"],
    ["inspect", "refine", "his_run"],
    ["export", "his_run", "--bundle", "new"],
    ["embed", "his_run", "image.png", "--out", "vectors.npz"],
    ["serve", "his.index", "--port", "0"],
    ["index", "build", "his_run", "images", "--out", "new.index"],
    ["search", "his.index", "image.png"],
    ["study", "run", "his_study.toml", "--out", "new"],
]
TYPED = [
    ["train", "glyphs", "loss={part}"],
    ["inspect", "diagnose", "{run}", "--also", "{part}"],
    ["inspect", "refine", "{run}", "--classical", "{part}"],
    ["catalogue", "losses", "{part}"],
]


@pytest.fixture
def part(
    finished_run: Path,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> str:
    """In a folder elsewhere; here are a run, an index, a config and a study that name it."""
    stranger = tmp_path_factory.mktemp("elsewhere") / "stranger.py"
    stranger.write_text("raise SystemExit('it ran')")
    name = f"{stranger}:Margin"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(custom_components.TRUST_VARIABLE, "")
    config = (finished_run / "config.toml").read_text()
    config = re.sub(r'(?<=\[loss\]\nname = )"\w+"', f'"{name}"', config)
    assert name in config
    shutil.copytree(finished_run, "his_run")
    Path("his_run/config.toml").write_text(config)
    Path("his_run/checksums.json").unlink()
    Path("his.toml").write_text(f'[loss]\nname = "{name}"\n')
    Path("his_study.toml").write_text(PLAN.format(part=name))
    Image.new("RGB", (16, 16)).save("image.png")
    Path("images").mkdir()
    place = str(Path("his_run").resolve())
    entry = ModelEntry(run=place, fingerprint="f" * 32, size=8, normalize=True)
    with Writer.create(Path("his.index"), entry):
        pass
    return name


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_no_command_runs_a_strangers_code(words: list[str], part: str) -> None:
    with pytest.raises(ValueError, match=r"would run code of .*add --trust"):
        app(words, standalone_mode=False)


@pytest.mark.parametrize("words", TYPED, ids=" ".join)
def test_whoever_types_it_runs_it(words: list[str], finished_run: Path, part: str) -> None:
    request = [word.format(part=part, run=finished_run) for word in words]
    with pytest.raises(SystemExit, match="it ran"):
        app(request, standalone_mode=False)


def test_whoever_trusts_it_runs_it(part: str) -> None:
    with custom_components.trusted(), pytest.raises(SystemExit, match="it ran"):
        app(["inspect", "layers", "his_run"], standalone_mode=False)
