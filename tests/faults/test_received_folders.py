"""A received index, run or study reaches nothing outside its folder: no link in it is followed, no
name in it leads out, and what is tidied away has a name of ours."""

import io
import shutil
import tarfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from unseen.cli.main import app
from unseen.config import schema as configs
from unseen.data import packed
from unseen.data.activations.file import ActivationFile
from unseen.search import manifest as manifests
from unseen.search import shards
from unseen.search.index import Index
from unseen.search.maintain import model_of
from unseen.search.manifest import DamagedError, ModelEntry
from unseen.search.segment import Metadata, NewImage
from unseen.search.verify import verify
from unseen.search.writer import Writer
from unseen.studies import archive, engine
from unseen.studies.results import read
from unseen.training.run_folder import RunFolder

TINY = Path(__file__).parents[1] / "studies" / "tiny.txz"
LINK = "is a symbolic link"


@pytest.fixture
def victim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What must stay as it is."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "victim" / "deep").mkdir(parents=True)
    for name in ("precious.txt", "deep/precious.txt", "index.html", "vanished-1.json"):
        (tmp_path / "victim" / name).write_text("precious")
    return tmp_path / "victim"


def content(folder: Path) -> dict[str, bytes]:
    files = (file for file in folder.rglob("*") if file.is_file() and not file.is_symlink())
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in files}


def link(place: Path, target: Path) -> None:
    """In the place of whatever is there."""
    shutil.rmtree(place) if place.is_dir() else place.unlink(missing_ok=True)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(target)


def make_index(path: Path, images: int = 3) -> Path:
    entry = ModelEntry(run="nowhere", fingerprint="f" * 32, size=4, normalize=True)
    with Writer.create(path, entry) as writer:
        for number in range(images):
            metadata = Metadata(f"/images/{number}.png", "a", 1, 1)
            writer.add([NewImage(metadata, np.eye(4, dtype=np.float32)[number], b"small")])
    return path


OF_INDEX = {
    "approximate": "victim",
    "segments": "victim",
    "rebuild": "victim",
    "lock": "victim/precious.txt",
    "manifest.json": "victim/precious.txt",
    "vanished-00000001.json": "victim/precious.txt",
    "segments/00000001/vectors.npy": "victim/precious.txt",
    "segments/00000009": "victim",
}


@pytest.mark.parametrize("name", OF_INDEX)
def test_no_link_of_an_index_is_followed(victim: Path, name: str) -> None:
    index, before = make_index(Path("evil.index")), content(victim)
    link(index / name, victim.parent / OF_INDEX[name])
    for use in (
        lambda: app(["index", "remove", "evil.index", "1"], standalone_mode=False),
        lambda: Writer.open(index).__enter__(),
        lambda: Index.open(index),
        lambda: model_of(index),
        lambda: make_index(index),
    ):
        with pytest.raises(ValueError, match=LINK):
            use()
    assert LINK in str(verify(index))
    assert content(victim) == before


def test_the_folder_itself_may_be_a_link(victim: Path) -> None:
    make_index(Path("real.index"))
    Path("here.index").symlink_to("real.index")
    assert len(Index.open(Path("here.index"))) == 3
    with Writer.open(Path("here.index")) as writer:
        assert writer.remove([1]) == 1


def test_only_our_own_names_are_tidied_away(victim: Path) -> None:
    index = make_index(Path("my.index"))
    ours = [
        "vanished-00000007.json",
        ".manifest.0123abcd.part.json",
        "segments/00000077/vectors.npy",
        "segments/00000077-2/vectors.npy",
        "segments/.00000078.part/rows.npy",
        "approximate/00000077/faiss.index",
        "segments/00000001/dead-00000042.npy",
    ]
    theirs = [
        "vanished-notes.txt",
        ".my.partner",
        "notes.txt",
        "segments/mine/precious.txt",
        "segments/notes.txt",
        "approximate/mine/precious.txt",
        "segments/00000001/dead-notes.npy",
        "segments/00000001/notes.txt",
    ]
    for name in (*ours, *theirs):
        (index / name).parent.mkdir(parents=True, exist_ok=True)
        (index / name).write_text("x")
    with Writer.open(index):
        pass
    assert [name for name in ours if (index / name).exists()] == []
    assert [name for name in theirs if not (index / name).exists()] == []


@pytest.mark.parametrize("name", ["../../victim", "/tmp", "..", ".", "a/b", ""])
@pytest.mark.parametrize("key", ["name", "dead", "files"])
def test_no_name_of_a_manifest_leads_out(victim: Path, key: str, name: str) -> None:
    index = make_index(Path("evil.index"))
    manifest = manifests.read(index)
    changed = {name: "0" * 64} if key == "files" else name
    entry = manifest.segments[0].model_copy(update={key: changed})
    manifests.write(index, manifest.model_copy(update={"segments": [entry]}))
    with pytest.raises(DamagedError):
        Writer.open(index).__enter__()


OF_RUN = {
    "report": "victim",
    "embeddings": "victim",
    "readings": "victim",
    "config.toml": "victim/precious.txt",
    ".lock": "victim/precious.txt",
    "embeddings/notes.txt": "victim/precious.txt",
}
COMMANDS = [
    ["report", "his"],
    ["evaluate", "run", "his"],
    ["inspect", "diagnose", "his"],
    ["inspect", "layers", "his"],
    ["calibrate", "his"],
    ["inspect", "refine", "his"],
    ["export", "his", "--bundle", "new"],
    ["embed", "his", "image.png", "--out", "vectors.npz"],
    ["index", "build", "his", "images", "--out", "new.index"],
    ["evaluate", "compare", "his", "ours"],
    ["train", "glyphs", "data.max_classes=8", "data.size=16", "--out", "his"],
]


@pytest.mark.parametrize("name", OF_RUN)
@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_no_link_of_a_run_is_followed(
    finished_run: Path, victim: Path, words: list[str], name: str
) -> None:
    shutil.copytree(finished_run, "his")
    shutil.copytree(finished_run, "ours")
    Path("images").mkdir()
    link(Path("his", name), victim.parent / OF_RUN[name])
    before, run = content(victim), content(Path("his"))
    with pytest.raises(ValueError, match=LINK):
        app(words, standalone_mode=False)
    assert (content(victim), content(Path("his"))) == (before, run)


def test_other_folders_may_hold_links(victim: Path) -> None:
    """A folder of images is no run, and is often made of them."""
    Path("images").mkdir()
    Path("images/a").symlink_to(victim)
    assert not RunFolder(Path("images")).is_started


@pytest.mark.parametrize("name", ["../../victim", "..", "a/b", ""])
def test_no_name_of_a_stage_leads_out(victim: Path, name: str) -> None:
    with pytest.raises(ValueError, match=r"stages\.0\.name"):
        configs.make({"stages": [{"name": name, "epochs": 1}]})


@pytest.mark.parametrize("name", ["report", "study.db", "runs/mine", "runs/a/config.toml"])
def test_no_link_of_a_study_is_followed(victim: Path, name: str) -> None:
    study = archive.unpack(Path(shutil.copy(TINY, "tiny.txz")))
    link(study / name, victim if "." not in name else victim / "precious.txt")
    before = content(victim)
    for use in (
        lambda: app(["study", "report", "tiny"], standalone_mode=False),
        lambda: app(["study", "report", "tiny.txz"], standalone_mode=False),
        lambda: engine.Study(SimpleNamespace(configurations=list)).run(study),  # type: ignore[arg-type]
        lambda: engine.work("tiny", "sqlite:///other.db", study),
        lambda: engine.collect("tiny", "sqlite:///other.db", study),
        lambda: read(study),
    ):
        with pytest.raises(ValueError, match=LINK):
            use()
    assert content(victim) == before


def test_an_archive_is_not_unpacked_over_a_folder(victim: Path) -> None:
    file = Path(shutil.copy(TINY, "tiny.txz"))
    for name in ("notes.txt", "study.toml"):
        Path("tiny").mkdir()
        Path("tiny", name).write_text("mine")
        with pytest.raises(ValueError, match="tiny exists"):
            archive.unpack(file)
        assert content(Path("tiny")) == {name: b"mine"}
        shutil.rmtree("tiny")
    Path("tiny").symlink_to(victim)
    before = content(victim)
    with pytest.raises(ValueError, match="tiny exists"):
        archive.unpack(file)
    assert content(victim) == before
    Path("tiny").unlink()
    study = archive.unpack(file)
    whole = content(study)
    (study / "notes.txt").write_text("what is added does not matter")
    assert archive.unpack(file) == study
    assert content(study) == {**whole, "notes.txt": b"what is added does not matter"}
    (study / "study.toml").write_text("changed")
    with pytest.raises(ValueError, match="tiny exists"):
        archive.unpack(file)


def test_an_archive_stays_within_bounds(victim: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def packed(name: str, *names: str, sparse: bool = False) -> Path:
        with tarfile.open(name, "w:xz") as made:
            for each in names:
                entry = tarfile.TarInfo(each)
                if sparse:  # says that it is long, and holds nothing
                    entry.pax_headers = {
                        "GNU.sparse.size": "4000000",
                        "GNU.sparse.map": "4000000,0",
                    }
                made.addfile(entry, io.BytesIO(b""))
        return Path(name)

    monkeypatch.setattr(archive, "MOST_FILES", 10)
    with pytest.raises(ValueError, match="larger than an archived study"):
        archive.unpack(packed("many.txz", *(f"a{i}/published.json" for i in range(11))))
    monkeypatch.setattr(archive, "MOST_UNPACKED", 10_000_000)
    with pytest.raises(ValueError, match="larger than an archived study"):
        archive.unpack(
            packed("sparse.txz", *(f"a{i}/published.json" for i in range(4)), sparse=True)
        )
    assert not [path for path in Path().iterdir() if path.name in ("many", "sparse")]


def test_no_link_of_other_folders_is_followed(victim: Path) -> None:
    """Vectors in shards, an exported index, kept activations, a packed file that was stopped."""
    for name in ("job.json", "header.json"):
        link(Path("his", name), victim / "precious.txt")
    with pytest.raises(ValueError, match=LINK):
        shards.job_in(Path("his"))
    kept_ones = ActivationFile(Path("cache/mine"), {"of": 1}, 2, np.dtype("f4"))
    kept_ones.prepare()
    (victim / "records").write_bytes(b"precious")
    before = content(victim)
    link(Path("cache/mine/records"), victim / "records")
    kept_ones.prepare()
    kept_ones.write(0, np.ones(2, "f4"))
    link(Path("x.pack.part"), victim / "precious.txt")
    assert packed._taken_up(Path("x.pack.part"), b"") == []
    assert content(victim) == before
