"""A benchmark that lacks an image: everything that is made of it says so."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from PIL import Image

from unseen.cli import main
from unseen.config import find_data
from unseen.data.arrays import columns_of
from unseen.data.base import INCOMPLETE
from unseen.data.benchmarks.benchmark import Counts
from unseen.data.benchmarks.official import Cub200
from unseen.data.packed import Packed, Packing, write
from unseen.export.bundle import card
from unseen.runs.prepare import reopen
from unseen.runs.run_items import describe
from unseen.runs.trained_run import Trained
from unseen.studies.results import Results, Run
from unseen.training.result import read_result
from unseen.training.run_folder import RunFolder

SAID = "23 of the 24 images of CUB-200-2011"
BIRDS = {1: "Black_footed_Albatross", 2: "b", 3: "c", 4: "d", 101: "e", 102: "f", 103: "g"}


@pytest.fixture
def birds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(Cub200, "expected", Counts(4, 12, 4, 12))
    rng = np.random.default_rng(0)
    for number, name in (BIRDS | {200: "Common_Yellowthroat"}).items():
        folder = tmp_path / "birds" / "train" / f"{number:03d}.{name}"
        folder.mkdir(parents=True)
        for copy in range(3):
            pixels = rng.integers(0, 256, (12, 12, 3)).astype(np.uint8)
            Image.fromarray(pixels).save(folder / f"{copy}.png")
    (tmp_path / "birds" / "train" / "002.b" / "1.png").unlink()
    return tmp_path / "birds"


def unseen(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["unseen", *words])
        with pytest.raises(SystemExit) as ended:
            main.run()
    printed = capsys.readouterr()
    return int(ended.value.code or 0), " ".join((printed.out + printed.err).split())


def test_check_looks_at_what_is_there(birds: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, text = unseen(capsys, "data", "check", str(birds))
    assert code == 1
    assert SAID in text
    code, text = unseen(capsys, "data", "check", str(birds), "data.incomplete=true", "--json")
    assert code == 0
    assert SAID in json.loads(text)[INCOMPLETE]


def test_every_page_of_a_run(birds: Path, tmp_path: Path, capsys: Any) -> None:
    short = ("backbone=small_conv", "epochs=1", "batch_size=4", "workers=0", "threads=1")
    words = ("train", str(birds), *short, "--out", str(tmp_path / "run"))
    code, text = unseen(capsys, *words)
    assert code != 0
    assert "data.incomplete=true" in text
    code, text = unseen(capsys, *words, "data.incomplete=true")
    assert code == 0, text
    assert text.count(SAID) == 2, "before training and under the scores"
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert SAID in result["data"][INCOMPLETE]
    assert SAID in manifest["data"]["data"][INCOMPLETE]
    assert SAID in (tmp_path / "run" / "report" / "index.html").read_text()
    assert SAID in card(Trained.open(tmp_path / "run"), None, "")
    stored = read_result(RunFolder(tmp_path / "run"))
    run = cast(Run, SimpleNamespace(result=stored, selection=stored.selection))
    assert Results(cast(Any, None), tmp_path, (run, run), ()).warnings == [
        result["data"][INCOMPLETE]
    ]
    Image.new("RGB", (12, 12)).save(birds / "train" / "002.b" / "1.png")
    context, _ = reopen(tmp_path / "run")
    assert SAID in (describe(context).data.incomplete or ""), "the run is about the items it had"


def test_copies_of_it(birds: Path, tmp_path: Path) -> None:
    dataset = Cub200(birds, incomplete=True)
    write(Packing(dataset), tmp_path / "birds.pack", 1)
    assert SAID in Packed(tmp_path / "birds.pack").describe()[INCOMPLETE]
    features = np.zeros((len(dataset), 2), np.float32)
    np.savez(tmp_path / "birds.npz", features=features, **cast(Any, columns_of(dataset)))
    table = find_data.data_table(str(tmp_path / "birds.npz"))
    assert SAID in find_data.open_data(find_data.Component(**table)).describe()[INCOMPLETE]
