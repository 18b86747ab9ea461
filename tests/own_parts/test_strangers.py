"""A config, run, index or study of a stranger runs no code of his, whatever command opens it."""

import re
import shutil
from pathlib import Path

import pytest
from PIL import Image

from unseen import outside
from unseen.cli.main import app
from unseen.search.manifest import ModelEntry
from unseen.search.writer import Writer

STORED = Path(__file__).parents[1] / "data_of_0_1" / "pictures"
PLAN = 'name = "his"\nseeds = [0]\n[config]\nepochs = 1\n[factors]\nloss = ["margin", "{part}"]\n'
COMMANDS = [
    ["train", "glyphs", "--config", "his.toml"],
    ["train", "glyphs", "loss={part}"],
    ["evaluate", "his_run"],
    ["diagnose", "his_run"],
    ["diagnose", "{run}", "--also", "{part}"],
    ["report", "his_run"],
    ["layers", "his_run"],
    ["calibrate", "his_run"],
    ["refine", "his_run"],
    ["refine", "{run}", "--classical", "{part}"],
    ["export", "his_run", "--bundle", "new"],
    ["embed", "his_run", "picture.png", "--out", "vectors.npz"],
    ["serve", "his.index", "--port", "0"],
    ["index", "build", "his_run", "pictures", "--out", "new.index"],
    ["search", "his.index", "picture.png"],
    ["study", "run", "his_study.toml", "--out", "new"],
    ["catalogue", "losses", "{part}"],
]


@pytest.fixture
def part(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> str:
    """In a folder elsewhere; here are a run, an index, a config and a study that name it."""
    stranger = tmp_path_factory.mktemp("elsewhere") / "stranger.py"
    stranger.write_text("raise SystemExit('it ran')")
    name = f"{stranger}:Margin"
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(outside.TRUST_VARIABLE, raising=False)
    config = (STORED / "config.toml").read_text()
    config = re.sub(r'(?<=\[loss\]\nname = )"\w+"', f'"{name}"', config)
    assert name in config
    shutil.copytree(STORED, "his_run")
    Path("his_run/config.toml").write_text(config)
    Path("his.toml").write_text(f'[loss]\nname = "{name}"\n')
    Path("his_study.toml").write_text(PLAN.format(part=name))
    Image.new("RGB", (16, 16)).save("picture.png")
    Path("pictures").mkdir()
    place = str(Path("his_run").resolve())
    entry = ModelEntry(run=place, fingerprint="f" * 32, size=8, normalise=True)
    with Writer.create(Path("his.index"), entry):
        pass
    return name


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_no_command_runs_a_strangers_code(words: list[str], part: str) -> None:
    asked = [word.format(part=part, run=STORED) for word in words]
    with pytest.raises(ValueError, match=r"would run code of .*add --trust"):
        app(asked, standalone_mode=False)


def test_whoever_trusts_it_runs_it(part: str) -> None:
    with outside.trusted(), pytest.raises(SystemExit, match="it ran"):
        app(["layers", "his_run"], standalone_mode=False)
