"""A study kept in one small file: its pages are made again where it was never run."""

import importlib.util
import io
import json
import lzma
import shutil
import tarfile
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from unseen.cli.study import report
from unseen.studies import archive, study_tables
from unseen.studies.engine import local_storage
from unseen.studies.results import Results, read
from unseen.studies.run_files import PerQuery
from unseen.studies.worker import Worker
from unseen.training.run_folder import RunFolder

DOCS = Path(__file__).parents[2] / "docs"
TINY = Path(__file__).parent / "tiny.txz"  # two losses on 40 characters, three seeds, 5 epochs


@pytest.fixture
def finished(stub: ModuleType, instant: ModuleType, tmp_path: Path) -> Results:
    """A study of data on a disk, with a search."""
    parameters = [{"key": "lr", "values": [0.1, 0.2, 0.3]}]
    plan = stub.small_plan(
        seeds=[0],
        config={"data": {"name": "folder", "root": "/home/me/birds"}},
        factors={"loss": ["margin", "triplet"]},
        search={"mode": "coordinate", "parameters": parameters},
    )
    out = tmp_path / "studies" / "birds"
    RunFolder(out).write_text("study.toml", plan.to_toml())
    Worker(plan, local_storage(out), out).work()
    return read(out)


def test_a_kept_study_is_reported_on_from_a_clone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = shutil.copy(TINY, tmp_path / "tiny.txz")
    report(Path(file))
    assert (
        "inconclusive: too few classes (20 of 30 to test); not above the untrained network"
        in " ".join(capsys.readouterr().out.split())
    )
    folder = tmp_path / "tiny" / "report"
    table = (folder / "table.md").read_text()
    assert "| **contrastive** | **15.3 ±16.5 (s 6.6)** | **3** |" in table
    assert "| margin | contrastive | -1.5 (-34.7 … +31.6) | 49.2 |" in table
    assert (folder / "figures" / "effects.png").exists()
    assert "effects.png" in (folder / "index.html").read_text()


def test_nothing_is_lost_but_what_is_large_and_where_it_lay(
    finished: Results, tmp_path: Path
) -> None:
    values = PerQuery.of(np.array([4, 4, 7]), {"trained/recall@1": np.array([1.0, 0.0, 1.0])})
    RunFolder(finished.runs[0].folder).write_json("per_query.json", values)
    file = tmp_path / "evidence" / "birds.txz"
    archive.write(file, archive.small_files_of(finished.out))
    again = read(archive.unpack(file))
    assert study_tables.markdown(again) == study_tables.markdown(finished)
    assert [run.planned.labels for run in again.searches] == [
        run.planned.labels for run in finished.searches
    ]
    assert [run.curve("recall@1") for run in again.runs] == [
        run.curve("recall@1") for run in finished.runs
    ]
    assert [run.per_query for run in again.runs] == [values, None]
    assert again.plan.config["data"] == {"name": "folder", "root": "data/birds"}
    texts = [f.read_text() for f in file.with_suffix("").rglob("*") if f.is_file()]
    assert not any("/home/me" in text for text in texts)
    before = file.read_bytes()
    archive.write(file, archive.small_files_of(finished.out))
    assert file.read_bytes() == before


def packed_archive(file: Path, **files: str) -> Path:
    with tarfile.open(file, "w:xz") as made:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            made.addfile(entry, io.BytesIO(text.encode()))
    return file


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"../../x.py": "print()"}, "which no study leaves"),
        ({"study.toml": 'name = "x"', "../measured.json": "{}"}, "which no study leaves"),
        ({"study.toml": 'name = "x"', "runs/../config.toml": ""}, "which no study leaves"),
        ({"study.toml": 'name = "x"', "runs/a/weights.pt": ""}, "that no run leaves"),
        ({"runs/a/planned.json": "{}"}, "without their study.toml"),
        ({"study.toml": '[config]\nloss = "./mine.py:Mine"'}, "names code from outside"),
        ({"study.toml": 'name = "x"', "runs/a/state.json": "{}"}, "is not what a run leaves"),
    ],
)
def test_a_strangers_file_is_checked_before_anything_is_written(
    files: dict[str, str], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        archive.unpack(packed_archive(tmp_path / "x.txz", **files))
    assert [file.name for file in tmp_path.iterdir()] == ["x.txz"]


def test_what_is_no_archived_study_is_refused(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "link.txz", "w:xz") as made:
        link = tarfile.TarInfo("study.toml")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        made.addfile(link)
    with pytest.raises(ValueError, match="which is no file"):
        archive.unpack(tmp_path / "link.txz")
    entry = tarfile.TarInfo("study.toml")
    header = bytearray(entry.tobuf())
    header[124:136] = (256**12 - 2**18).to_bytes(12, "big")  # a size below zero
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    (tmp_path / "below.txz").write_bytes(lzma.compress(bytes(header) + bytes(1024)))
    with pytest.raises(ValueError, match="is larger than an archived study"):
        archive.unpack(tmp_path / "below.txz")
    (tmp_path / "x.txz").write_text("no archive")
    with pytest.raises(ValueError, match="is no archived study"):
        archive.unpack(tmp_path / "x.txz")
    with pytest.raises(ValueError, match=r"one \.txz file, e.g. x.txz"):
        archive.write(tmp_path / "x.tar", {})


def findings_page() -> ModuleType:
    spec = importlib.util.spec_from_file_location("findings_page", DOCS / "findings_page.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_docs_draw_what_is_kept(tmp_path: Path) -> None:
    (drawn,) = findings_page().figures(TINY.parent, tmp_path / "figures")
    assert drawn == tmp_path / "figures" / "tiny.png"
    assert drawn.read_bytes().startswith(b"\x89PNG")


def test_the_findings_are_what_the_evidence_says() -> None:
    page = (DOCS / "findings.md").read_text("utf-8")
    assert page.count("<!-- table of ") >= 3
    assert findings_page().filled(page, DOCS.parent / "evidence") == page


def test_what_was_read_names_no_place() -> None:
    purposes = [
        "recall by layer",
        "unseen evaluate run --on /home/me/x.npz",
        "on '/home/m e/y' again",
    ]
    given = {"test_reads": [{"purpose": purpose} for purpose in purposes]}
    made = json.loads(archive._moved_file("manifest.json", json.dumps(given), "key"))
    assert [read["purpose"] for read in made["test_reads"]] == [
        "recall by layer",
        "unseen evaluate run --on data/x.npz",
        "on data/y again",
    ]
