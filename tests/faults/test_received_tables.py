"""A table somebody sent: its rows connect to nobody unless the user said so, whatever they name,
and whatever is wrong with it ends in one line with the row."""

import json
import sys
from pathlib import Path

import pytest
from PIL import Image

import unseen
from unseen.cli import main
from unseen.core import uris
from unseen.data.coco import Coco
from unseen.data.containers import locations
from unseen.data.table import Table
from unseen.search.image_sources import find

REMOTE = ["https://{0}/a.jpg", "https://{0}/a.tar::a.jpg", "s3://bucket/a.jpg", "gs://b/a.jpg"]
REFUSED = [
    "webhdfs://{0}/a.jpg",
    "ftp://{0}/a.jpg",
    "http://{0}/a.jpg",
    "HTTPS://{0}/a.jpg",
    "FILE:///etc/hostname",
    "memory://a.jpg",
    "simplecache::https://{0}/a.jpg",
    "filecache::ftp://{0}/a.jpg",
    "zip://a.jpg::https://{0}/a.zip",
    "zip://a.jpg::ftp://{0}/a.zip",
    "tar://a.jpg::file:///etc/hostname",
    "s3:bucket/a.jpg",
    "https:{0}/a.jpg",
    "github://{0}:a@b/a.jpg",
    "://{0}/a.jpg",
]


def table(folder: Path, row: str) -> Path:
    """Eight rows of images that are there, and one of a stranger's: the seventh line."""
    lines = ["path,label"]
    for k in range(8):
        Image.new("RGB", (24, 16), (30 * k, 0, 0)).save(folder / f"{k}.png")
        lines.append(f"{k}.png,class {k // 2}")
    lines.insert(6, f'"{row}",class 1')
    (folder / "received.csv").write_text("\n".join(lines))
    return folder / "received.csv"


def one_line(error: BaseException) -> str:
    assert "\n" not in str(error)
    return str(error)


def said(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    """The one line that a command ends in."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["unseen", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main.run()
    assert ended.value.code == 2
    [line] = capsys.readouterr().err.splitlines()
    return line


@pytest.mark.parametrize("row", REFUSED)
def test_a_protocol_that_is_not_read_is_refused_with_its_row(
    row: str, host: str, tmp_path: Path
) -> None:
    file = table(tmp_path, row.format(host))
    for read in (Table, lambda file: find([file])):
        with uris.remote_rows(), pytest.raises(ValueError, match=r"received\.csv, row 7: "):
            read(file)


@pytest.mark.parametrize("row", REMOTE)
def test_a_table_here_names_files_elsewhere_only_if_the_user_said_so(
    row: str, host: str, tmp_path: Path
) -> None:
    file = table(tmp_path, row.format(host))
    for read in (Table, lambda file: find([file])):
        with pytest.raises(ValueError, match=r"row 7: .*allow_remote=True") as caught:
            read(file)
        one_line(caught.value)


def test_said_so_a_row_that_cannot_be_read_is_left_out_with_its_row(tmp_path: Path) -> None:
    file = table(tmp_path, "gs://bucket/a.jpg")
    with pytest.MonkeyPatch.context() as patch, uris.remote_rows():
        patch.setitem(sys.modules, "gcsfs", None)
        data = Table(file)
    assert len(data) == 8
    [line] = data.describe()["unreadable"]
    assert line.startswith("gs://bucket/a.jpg (row 7: ")
    assert "gcsfs" in line


def test_the_command_ends_in_one_line(
    host: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = table(tmp_path, f"https://{host}/a.jpg")
    for words in (
        ["data", "check"],
        ["train"],
        ["data", "features", "--out", str(tmp_path / "f.npz")],
    ):
        line = said(capsys, *words, file)
        assert "row 7" in line
        assert "--allow-remote" in line


def test_the_option_and_the_argument_say_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    file = table(tmp_path, "s3://bucket/a.jpg")
    monkeypatch.setattr(sys, "argv", ["unseen", "data", "check", str(file), "--allow-remote"])
    with pytest.raises(SystemExit):
        main.run()
    assert "9 files, 8 usable, 4 classes" in capsys.readouterr().out
    quick = {"progress": False, "out": tmp_path / "run"}
    with pytest.raises(ValueError, match=r"row 7: .*allow_remote=True"):
        unseen.fit(file, **quick)
    with pytest.raises(ValueError, match=r"row 7: .*s3fs"):  # it came as far as the row
        unseen.fit(file, allow_remote=True, strict=True, **quick)


def test_a_table_elsewhere_names_files_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = ["s3://other/a.jpg", "b.jpg"]
    assert locations.rows_of("s3://bucket/t.csv", rows) == ["s3://other/a.jpg", "s3://bucket/b.jpg"]


def test_files_of_this_disk_need_no_word(tmp_path: Path) -> None:
    file = table(tmp_path, f"file://{tmp_path}/0.png")
    assert len(Table(file)) == 9
    assert len(find([file])) == 9


def test_boxes_of_a_stranger_and_images_outside_of_parquet(host: str, tmp_path: Path) -> None:
    Image.new("RGB", (8, 8)).save(tmp_path / "0.png")
    images = [{"id": 0, "file_name": "0.png"}, {"id": 1, "file_name": f"ftp://{host}/a.jpg"}]
    boxes = [{"image_id": k % 2, "category_id": k, "bbox": [0, 0, 4, 4]} for k in range(4)]
    kinds = [{"id": k, "name": f"kind {k}"} for k in range(4)]
    file = tmp_path / "boxes.json"
    file.write_text(json.dumps({"images": images, "annotations": boxes, "categories": kinds}))
    for read in (Coco, lambda file: find([file])):
        with pytest.raises(ValueError, match=r"boxes\.json, row 2: "):
            read(file)
    import pyarrow
    from pyarrow import parquet

    kind = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])
    cells = [{"bytes": None, "path": f"https://{host}/{k}.jpg"} for k in range(4)]
    content = {"image": pyarrow.array(cells, kind), "label": [f"kind {k}" for k in range(4)]}
    parquet.write_table(pyarrow.table(content), tmp_path / "p.parquet")
    with pytest.raises(ValueError, match=r"row 1: .*allow_remote=True"):
        find([tmp_path / "p.parquet"])


@pytest.mark.parametrize(
    "word", ["ftp://{0}/photos", "webhdfs://{0}/t.csv", "https://a::ftp://{0}"]
)
def test_a_word_of_the_user_has_the_same_protocols(word: str, host: str) -> None:
    with pytest.raises(ValueError, match="cannot be opened: ") as caught:
        find([word.format(host)])
    one_line(caught.value)


def test_a_long_field_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "long.csv").write_text(f"path,label\n0.png,{'x' * 200_000}\n")
    with pytest.raises(ValueError, match=r"long\.csv, row 2: field larger than") as caught:
        Table(tmp_path / "long.csv")
    one_line(caught.value)


DEEP = {
    "boxes.json": '{"images": ' + "[" * 100_000,
    "config.toml": "epochs = " + "[" * 100_000,
    "keys.toml": ".".join(["a"] * 3_000) + " = 1",
}


@pytest.mark.parametrize("name", DEEP)
def test_a_deep_file_is_one_line(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / name
    file.write_text(DEEP[name])
    line = said(capsys, "train", file)
    assert "nested too deeply" in line
    assert name in line
