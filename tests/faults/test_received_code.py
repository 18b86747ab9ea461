"""Code that a received file names does not run: not from a run, config or study, not from beside
them, not by a file of the current folder that a child process would import."""

import os
import py_compile
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import unseen
from unseen.cli.main import app
from unseen.config import keys
from unseen.config import schema as configs
from unseen.core import custom_components, registry
from unseen.runs import job_engines
from unseen.studies import study_file
from unseen.studies.engine import Study

REFUSED = r"would run code of .*(add --trust once|call unseen\.trust)"
RAN = "Path(__file__).with_name('ran').touch()"
CODE = f"""
from pathlib import Path
from unseen.metrics.recall import Recall as Metric
{RAN}

class Boom(Metric): ...
class Margin: ...
def call(*given): ...
"""
SMALL = CODE.replace("from unseen.metrics.recall import Recall as Metric", "Metric = object")


@pytest.fixture
def here(finished_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv(custom_components.TRUST_VARIABLE, "")
    monkeypatch.setattr(sys, "path", [*sys.path])
    shutil.copytree(finished_run, "runs/nice")
    Path("runs/nice/helpers.py").write_text(CODE)
    return tmp_path


def receive(key: str, value: object) -> None:
    """The run's config, with a line of the sender's."""
    values = keys.short(configs.load(Path("runs/nice/config.toml")))
    assert key in values
    changed = configs.dump(values | {key: value})
    Path("runs/nice/config.toml").write_text(changed)
    Path("runs/nice/checksums.json").unlink()


@pytest.mark.parametrize("ending", ["", "@3"])
def test_a_received_run_runs_no_code_from_below_the_current_folder(here: Path, ending: str) -> None:
    receive("metrics", ["recall@1", f"runs/nice/helpers.py:Boom{ending}"])
    for _ in range(2):
        with pytest.raises(ValueError, match=REFUSED):
            app(["report", "runs/nice"], standalone_mode=False)
    assert not Path("runs/nice/ran").exists()


KEYS = {
    "loss": {"loss": "{}"},
    "miner": {"miner": "{}"},
    "sampler": {"sampler": {"name": "{}"}},
    "regularizer": {"regularizers": [{"name": "{}", "weight": 0.1}]},
    "protocol": {"protocol": "{}"},
    "data": {"data": "{}"},
    "network": {"network": "{}"},
    "backbone": {"backbone": "{}"},
    "metric with a value": {"metrics": ["{}@3"]},
    "grades": {"relevance": {"grades": "{}"}},
}


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("reference", ["runs/nice/helpers.py:call", "runs.nice.helpers:call"])
def test_every_reference_of_a_file_needs_trust(here: Path, key: str, reference: str) -> None:
    def filled(value: Any) -> Any:
        if isinstance(value, str):
            return value.format(reference)
        if isinstance(value, dict):
            return {name: filled(each) for name, each in value.items()}
        return [filled(each) for each in value] if isinstance(value, list) else value

    small = {"data": {"name": "glyphs", "max_classes": 12, "size": 16}}
    Path("his.toml").write_text(configs.dump({**small, **filled(KEYS[key])}))
    with pytest.raises(ValueError, match=REFUSED):
        app(["train", "his.toml"], standalone_mode=False)
    assert not Path("runs/nice/ran").exists()
    assert str(here) not in sys.path


def test_a_study_file_needs_trust(here: Path) -> None:
    text = (
        'name = "his"\nseeds = [0]\n[factors]\nloss = ["margin", "runs/nice/helpers.py:Margin"]\n'
    )
    Path("his.toml").write_text(text)
    with pytest.raises(ValueError, match=REFUSED):
        unseen.study("his.toml", "new")
    assert not Path("runs/nice/ran").exists()


def test_what_was_typed_is_remembered_with_its_place_and_content(here: Path) -> None:
    helpers, name = Path("runs/nice/helpers.py"), "runs/nice/helpers.py:Boom"
    helpers.write_text(SMALL)
    with pytest.raises(ValueError, match=REFUSED):
        registry.find("metrics", name)
    app(["catalogue", "metrics", name], standalone_mode=False)
    assert Path("runs/nice/ran").exists()

    def in_another_process(reference: str = name) -> str:
        code = f"from unseen.core import custom_components; custom_components.find({reference!r})"
        environment = {k: v for k, v in os.environ.items() if k != custom_components.TRUST_VARIABLE}
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stderr

    assert in_another_process() == ""
    assert re.search(REFUSED, in_another_process("runs/nice/helpers.py:Margin"))  # another name
    Path("copy").mkdir()
    shutil.copy(helpers, "copy")
    assert re.search(REFUSED, in_another_process("copy/helpers.py:Boom"))  # another place
    helpers.write_text(SMALL + "# changed")
    assert re.search(REFUSED, in_another_process())


def test_a_mark_in_the_run_is_no_reason_to_trust(here: Path) -> None:
    app(["catalogue", "metrics", "runs/nice/helpers.py:Boom"], standalone_mode=False)
    shutil.copytree("state", "runs/nice/state")
    shutil.rmtree("state")
    os.environ[custom_components.TRUST_VARIABLE] = ""
    os.environ["XDG_STATE_HOME"] = "runs/nice/state"  # relative: none
    assert custom_components.state_folder().is_relative_to(Path.home())


TYPED = [
    ["train", "missing", "metrics=./own.py:Boom"],
    ["train", "missing", 'metrics=["recall@1", "./own.py:Boom@2"]'],
    ["train", "missing", 'sampler={name = "./own.py:Boom"}'],
    ["inspect", "diagnose", "missing", "--also", "./own.py:Boom"],
    ["inspect", "diagnose", "missing", "--also=./own.py:Boom"],
]


@pytest.mark.parametrize("words", TYPED, ids=" ".join)
def test_values_that_are_typed_are_trusted(here: Path, words: list[str]) -> None:
    shutil.copy("runs/nice/helpers.py", "own.py")
    with pytest.raises(ValueError, match=REFUSED):
        custom_components.find("./own.py:Boom")
    with pytest.raises((ValueError, FileNotFoundError), match="missing"):
        app(words, standalone_mode=False)
    assert custom_components.find("./own.py:Boom")


def test_packages_on_the_way_count(here: Path) -> None:
    """A module is what its packages' __init__ files, and itself, say."""
    Path("lib/deep").mkdir(parents=True)
    for name in ("lib/__init__.py", "lib/deep/__init__.py", "lib/deep/parts.py"):
        Path(name).write_text(RAN.join(("from pathlib import Path\n", "\ndef call(): ...\n")))
    files = custom_components._files("lib.deep.parts:call")
    assert [file.relative_to(here).as_posix() for file in files] == [
        "lib/__init__.py",
        "lib/deep/__init__.py",
        "lib/deep/parts.py",
    ]
    assert not list(Path("lib").rglob("ran"))
    before = custom_components._mark("lib.deep.parts:call", files)
    Path("lib/__init__.py").write_text("import os")
    assert custom_components._mark("lib.deep.parts:call", files) != before


def test_folders_without_init_files_are_looked_through(here: Path) -> None:
    Path("space/inner").mkdir(parents=True)
    Path("space/inner/parts.py").write_text("def call(): return 7")
    assert [file.name for file in custom_components._files("space.inner.parts:call")] == [
        "parts.py"
    ]
    with pytest.raises(ValueError, match=r"cannot import space\.outer"):
        custom_components._files("space.outer.parts:call")
    custom_components.trust("space.inner.parts:call")
    assert custom_components.find("space.inner.parts:call")() == 7


def test_a_compiled_copy_beside_a_file_is_not_run(here: Path) -> None:
    """Same size, same time, other code: Python would run what lies in __pycache__."""
    file = Path("mine.py")
    file.write_text("def call(): return 'evil'")
    py_compile.compile("mine.py")
    stat = file.stat()
    file.write_text("def call(): return 'good'")
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    custom_components.trust("./mine.py:call")
    assert custom_components.find("./mine.py:call")() == "good"


def test_processes_of_a_run_trust_what_it_trusts_without_a_state_folder(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("state").write_text("no folder: nothing can be written down")
    (here / "own.py").write_text(SMALL)
    custom_components.trust("./own.py:Boom")
    custom_components.find("./own.py:Boom")
    code = "from unseen.core import custom_components; custom_components.find('./own.py:Boom')"
    subprocess.run([sys.executable, "-c", code], check=True)
    trusted = os.environ[custom_components.TRUST_VARIABLE]
    monkeypatch.setenv(custom_components.TRUST_VARIABLE, "")
    job_engines._Actor(
        lambda: lambda shard: 1, trusted
    )  # on another machine, which has not heard of it
    assert os.environ[custom_components.TRUST_VARIABLE] == trusted


def test_an_edit_does_not_stop_a_run_that_goes_on(here: Path) -> None:
    (here / "own.py").write_text(CODE)
    custom_components.trust("./own.py:Boom")
    result = custom_components.find("./own.py:Boom")
    (here / "own.py").write_text(CODE + "# changed")
    assert custom_components.find("./own.py:Boom") is result


def test_python_callers_are_trusted(here: Path) -> None:
    (here / "own.py").write_text(CODE)
    result = unseen.evaluate([[1.0, 0.0], [0.9, 0.1]], [0, 0], metrics=["./own.py:Boom"])
    assert result.values["Boom"].value == 1.0


def test_a_plan_in_python_is_trusted(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "own.py").write_text(CODE)
    values = {"name": "own", "seeds": [0], "factors": {"loss": ["margin", "./own.py:Margin"]}}
    with pytest.raises(ValueError, match=REFUSED):
        Study(study_file.make(values))
    monkeypatch.setattr(Study, "run", lambda self, out: None)
    unseen.study(values, "new")
    assert Path("ran").exists()
