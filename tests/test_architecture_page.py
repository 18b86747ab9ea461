"""The page on the architecture names files that exist, and the walk of a batch is the true one."""

import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from PIL import Image

import unseen
import unseen.cli.train  # or the walk would be the imports'
from unseen.cli.main import app
from unseen.training.optimizers import ScheduledOptimizer

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "unseen"
PAGE = (ROOT / "docs" / "architecture.md").read_text()
MOST = 20  # files from the command to the optimizer's step

pytestmark = pytest.mark.usefixtures("narrow_network")


def files_in(text: str) -> list[str]:
    return re.findall(r"`([\w/]+(?:\.(?:py|js)|/))`", text)


def section(title: str) -> str:
    return PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]


def test_every_file_it_names_exists() -> None:
    named = [name for name in files_in(PAGE) if "/" in name or name.endswith(".py")]
    of_a_run = {"checkpoint/", "embeddings/", "report/", "unseen/"}
    assert len(named) > 40
    for name in set(named) - of_a_run:
        assert (PACKAGE / name).exists(), name


def test_the_walk_of_a_batch_is_as_long_as_it_says() -> None:
    walk = files_in(section("One batch"))
    (message,) = re.findall(r"step: (\d+) files", section("One batch"))
    assert len(walk) == len(set(walk)) == int(message)
    assert len(walk) <= MOST


def test_the_reference_has_everything_public() -> None:
    reference = (ROOT / "docs" / "api.md").read_text()
    public = {name for name in dir(unseen) if not name.startswith("_")}
    methods = {name for name in public if (PACKAGE / name).is_dir()}
    for name in public - methods:
        assert re.search(rf"unseen\.{name}\b", reference), name


class StepReachedError(Exception):
    """The walk is at its end."""


@contextmanager
def noting(visited: set[str]) -> Iterator[None]:
    """Files of the package whose functions run."""

    def note(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_name != "<module>":
            visited.add(frame.f_code.co_filename)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]


def test_a_batch_goes_through_the_files_of_its_walk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = np.random.default_rng(0)
    for label in range(8):
        (tmp_path / "images" / f"class {label}").mkdir(parents=True)
        for index in range(4):
            image = Image.fromarray(draw.integers(0, 255, (16, 16, 3), dtype=np.uint8))
            image.save(tmp_path / "images" / f"class {label}" / f"{index}.png")
    monkeypatch.chdir(tmp_path)

    def step(self: ScheduledOptimizer, number: int) -> float:
        visited.add(sys.modules[ScheduledOptimizer.__module__].__file__ or "")
        raise StepReachedError

    monkeypatch.setattr(ScheduledOptimizer, "step", step)
    visited: set[str] = set()
    with noting(visited), pytest.raises(StepReachedError):
        app(["train", "images", "--out", "run"], standalone_mode=False)
    missed = {name for name in files_in(section("One batch")) if str(PACKAGE / name) not in visited}
    assert not missed
