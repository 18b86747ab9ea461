import hashlib
import io
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from unseen.core import contracts
from unseen.core.files import InUseError
from unseen.data import packed
from unseen.data.folder import Folder
from unseen.data.images import transforms
from unseen.data.images.decode import UnreadableImageError
from unseen.data.packed import Packed, Packing, write

MEAN, STD = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    rng = np.random.default_rng(0)
    for name in ("ant", "bee", "cat", "dog"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for k in range(4):
            coarse = Image.fromarray(rng.integers(0, 256, (6, 8, 3)).astype(np.uint8))
            size = (120, 90) if k else (20, 30)
            coarse.resize(size, Image.Resampling.BICUBIC).save(
                tmp_path / "photos" / name / f"{k}.png"
            )
    return Folder(tmp_path / "photos")


def pixels(dataset, index: int) -> np.ndarray:
    return np.asarray(dataset.image(index), dtype=float)


def test_a_raw_copy_is_the_resized_source(folder: Folder, tmp_path: Path) -> None:
    done = write(Packing(folder, short_side=48), tmp_path / "photos.pack")
    assert (done.items, done.left_out) == (16, [])
    assert done.num_bytes == (tmp_path / "photos.pack").stat().st_size
    data = Packed(tmp_path / "photos.pack")
    assert isinstance(data, contracts.Dataset)
    assert data.name == "photos"
    assert data.labels.tolist() == folder.labels.tolist()
    assert data.label_names == folder.label_names
    assert data.official_test_classes is None
    for index in range(16):
        expected = folder.image(index)
        if index % 4:
            expected = expected.resize((64, 48), Image.Resampling.BILINEAR)
        assert np.abs(pixels(data, index) - np.asarray(expected, dtype=float)).max() <= 1
    assert data.describe()["short side"] == 48
    assert data.item_ids()[14] == "dog/2.png"
    assert not list(tmp_path.glob("*.part"))


def test_a_jpeg_copy_is_near_and_smaller(folder: Folder, tmp_path: Path) -> None:
    raw = write(Packing(folder, 64), tmp_path / "raw.pack")
    jpeg = write(Packing(folder, 64, quality=90), tmp_path / "jpeg.pack")
    assert jpeg.num_bytes < raw.num_bytes / 1.5
    one, two = Packed(tmp_path / "raw.pack"), Packed(tmp_path / "jpeg.pack")
    for index in (1, 6, 11):
        assert np.abs(pixels(one, index) - pixels(two, index)).mean() < 8
    assert one.fingerprint() != two.fingerprint()
    assert one.item_ids() == two.item_ids() == folder.item_ids()
    assert one.digests() != two.digests()  # the same files, and other pixels


def test_evaluation_from_a_raw_copy_equals_evaluation_from_files(
    folder: Folder, tmp_path: Path
) -> None:
    write(Packing(folder, short_side=64), tmp_path / "photos.pack")
    data = Packed(tmp_path / "photos.pack")
    _, evaluation = transforms.named("base", 56, MEAN, STD)  # 56 * 256/224 = 64
    for index in (1, 6):
        with data.opened(index) as packed, folder.opened(index) as filed:
            assert (evaluation(packed) - evaluation(filed)).abs().max() < 1e-6


@pytest.mark.parametrize("fraction", [0.0001, 0.01, 0.3, 0.8])
@pytest.mark.parametrize("quality", [None, 90])
def test_a_stopped_copy_goes_on(
    folder: Folder,
    tmp_path: Path,
    fraction: float,
    quality: int | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    packing = Packing(folder, 48, quality)
    whole = tmp_path / "whole.pack"
    write(packing, whole)
    content = whole.read_bytes()
    out = tmp_path / "parts.pack"
    out.with_name("parts.pack.part").write_bytes(content[: int(fraction * len(content))])
    encoded: list[int] = []
    honest = Packing.encoded
    monkeypatch.setattr(Packing, "encoded", lambda self, i: encoded.append(i) or honest(self, i))
    done: list[tuple[int, int]] = []
    write(packing, out, progress=lambda *place: done.append(place))
    assert out.read_bytes() == content
    assert done[-1] == (16, 16)
    assert len(encoded) == len(done) <= 16
    assert (len(encoded) < 16) == (fraction > 0.1)
    encoded.clear()
    write(packing, out)  # complete: nothing to do
    assert encoded == []


def test_damage_before_the_stop_is_not_built_upon(folder: Folder, tmp_path: Path) -> None:
    packing = Packing(folder, 48)
    write(packing, tmp_path / "whole.pack")
    content = bytearray((tmp_path / "whole.pack").read_bytes())
    damaged = content[:30_000]
    damaged[5_000] ^= 1
    (tmp_path / "parts.pack.part").write_bytes(damaged)
    write(packing, tmp_path / "parts.pack")
    assert (tmp_path / "parts.pack").read_bytes() == content


def test_another_copy_of_that_name_is_not_overwritten(folder: Folder, tmp_path: Path) -> None:
    out = tmp_path / "photos.pack"
    write(Packing(folder, 48), out)
    for packing in (Packing(folder, 32), Packing(folder, 48, 90)):
        with pytest.raises(ValueError, match="exists and is another file"):
            write(packing, out)
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match="exists and is another file"):
        write(Packing(folder, 48), tmp_path / "notes.txt")


def test_unreadable_images_are_left_out_and_named(folder: Folder, tmp_path: Path) -> None:
    path = folder.path(5)
    path.write_bytes(path.read_bytes()[:60])
    done = write(Packing(folder, 48), tmp_path / "photos.pack")
    assert done.left_out == ["bee/1.png"]
    data = Packed(tmp_path / "photos.pack")
    assert len(data) == done.items == 15
    assert data.labels.tolist() == np.delete(folder.labels, 5).tolist()
    assert data.item_ids()[5] == "bee/2.png"


@pytest.mark.parametrize("quality", [None, 90])
def test_a_damaged_image_is_named(folder: Folder, tmp_path: Path, quality: int | None) -> None:
    out = tmp_path / "photos.pack"
    write(Packing(folder, 48, quality), out)
    records = Packed(out).records
    content = bytearray(out.read_bytes())
    content[int(records[6, 5]) + 11] ^= 4
    out.write_bytes(content)
    data = Packed(out)
    data.image(5)
    with pytest.raises(UnreadableImageError, match=r"photos\.pack: bee/2\.png: damaged"):
        data.image(6)


def test_damaged_files_are_refused(folder: Folder, tmp_path: Path) -> None:
    out = tmp_path / "photos.pack"
    write(Packing(folder, 48), out)
    content = out.read_bytes()
    out.write_bytes(content[:-100])
    with pytest.raises(ValueError, match=r"photos\.pack is cut off"):
        Packed(out)
    damaged = bytearray(content)
    damaged[-300] ^= 1
    out.write_bytes(damaged)
    with pytest.raises(ValueError, match="checksum of its index"):
        Packed(out)
    out.write_bytes(b"something else")
    with pytest.raises(ValueError, match="not a packed copy"):
        Packed(out)
    with pytest.raises(FileNotFoundError, match="no such file"):
        Packed(tmp_path / "gone.pack")


def test_split_queries_and_further_labels_are_kept(folder: Folder, tmp_path: Path) -> None:
    folder.official_test_classes = np.array([1, 3])
    half = np.arange(16) % 2 == 0
    folder.annotations = contracts.Annotations(
        query=half,
        gallery=~half,
        labels={"legs": np.arange(16) % 2},
        label_names={"legs": ["two", "four"]},
        levels=("legs",),
        label_sets=np.arange(32).reshape(16, 2) % 5,
        set_names=list("abcde"),
    )
    folder.path(3).write_bytes(b"")
    write(Packing(folder, 48), tmp_path / "photos.pack")
    data = Packed(tmp_path / "photos.pack")
    assert data.official_test_classes is not None
    assert data.official_test_classes.tolist() == [1, 3]
    kept = np.delete(np.arange(16), 3)
    assert data.annotations.query is not None
    assert data.annotations.query.tolist() == half[kept].tolist()
    legs = [data.annotations.label_names["legs"][code] for code in data.annotations.labels["legs"]]
    assert legs == [["two", "four"][item % 2] for item in kept]
    assert data.annotations.ignore_groups is None
    assert list(data.annotations.levels) == ["legs"]
    assert data.annotations.label_sets is not None
    assert data.annotations.label_sets.tolist() == (np.arange(32).reshape(16, 2) % 5)[kept].tolist()
    assert list(data.annotations.set_names) == list("abcde")


def test_bad_values_and_full_disks(
    folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ValueError, match="short_side"):
        Packing(folder, 4)
    with pytest.raises(ValueError, match="quality"):
        Packing(folder, 64, 101)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10, 9, 1))  # type: ignore[attr-defined]
    with pytest.raises(OSError, match=r"needs about .* GB .*quality=90"):
        write(Packing(folder, 64), tmp_path / "photos.pack")


def test_two_processes_do_not_mix_their_copies(folder: Folder, tmp_path: Path) -> None:
    out = tmp_path / "photos.pack"

    def second(done: int, total: int) -> None:
        with pytest.raises(InUseError, match=r"photos\.pack is being written to by process"):
            write(Packing(folder, short_side=48), out)

    write(Packing(folder, short_side=48), out, progress=second)
    assert len(Packed(out)) == 16
    assert sorted(path.name for path in tmp_path.iterdir()) == ["photos", "photos.pack"]


FORGERIES = {
    "no records": {"records": None},
    "no labels": {"labels": None},
    "labels of no class": {"labels": np.full(16, 9)},
    "labels in words": {"labels": np.array(["a"] * 16)},
    "too few labels": {"labels": np.zeros(3, np.int64)},
    "records beyond the file": {"records": np.full((16, 6), 2**40)},
    "records before the file": {"records": np.full((16, 6), -5)},
    "flat records": {"records": np.zeros(16, np.int64)},
    "no digests": {"digests": np.zeros((2, 2), np.uint8)},
    "parts of no name": {"split": np.array(["nowhere"] * 16)},
    "queries of another set": {"is_query": np.array([True])},
    "further labels of another set": {"label_colour": np.zeros(3, np.int64)},
    "no header": {"header": np.array("[]")},
    "levels that are no labels": {"levels": np.array(["color"])},
    "sets without words": {"label_sets": np.zeros((16, 2), np.int64)},
}


@pytest.mark.parametrize("forged", FORGERIES.values(), ids=FORGERIES)
def test_a_whole_file_that_was_forged_is_one_line(
    forged: dict[str, np.ndarray | None], folder: Folder, tmp_path: Path
) -> None:
    path = tmp_path / "photos.pack"
    write(Packing(folder, short_side=48), path)
    with np.load(io.BytesIO(packed._index_of(path)[0])) as held:
        arrays = dict(held) | forged
    written(path, **{name: array for name, array in arrays.items() if array is not None})
    with pytest.raises(ValueError, match="is no packed copy that can be used"):
        Packed(path)


def written(path: Path, **arrays: np.ndarray) -> None:
    """Another index with a right checksum in the place of the old one."""
    content = path.read_bytes()
    place = packed._index_of(path)[1]
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    index = buffer.getvalue()
    digest = hashlib.sha256(index).digest()
    tail = packed._TRAILER.pack(len(index), digest, packed.MAGIC)
    path.write_bytes(content[:place] + index + tail)


@pytest.mark.parametrize("quality", [None, 90])
def test_no_flipped_bit_passes_for_another_image(
    folder: Folder, tmp_path: Path, quality: int | None
) -> None:
    path, draw = tmp_path / "photos.pack", np.random.default_rng(0)
    write(Packing(folder, 24, quality), path)
    whole = path.read_bytes()
    expected = [pixels(Packed(path), i) for i in range(16)]
    for place in draw.integers(0, len(whole), 60).tolist():
        content = bytearray(whole)
        content[place] ^= 1 << int(draw.integers(8))
        path.write_bytes(content)
        try:
            data = Packed(path)
            result = [pixels(data, i) for i in range(16)]
        except ValueError:
            continue
        assert all(map(np.array_equal, result, expected))
