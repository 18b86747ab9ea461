"""Small files that declare much: refused by what they declare, before anything is allocated, in one
line that names the file, its size and the limit; large files that are what they say are read."""

import io
import re
import struct
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
import torch
from pyarrow import parquet

from unseen.core import read_limits
from unseen.data.arrays import Arrays
from unseen.data.containers.image_rows import ImageRows
from unseen.data.images import table_file
from unseen.evaluation.user_embeddings import read_items
from unseen.models.weights import read_state
from unseen.search.exchange import read_parquet

LIMIT = 8 << 20  # bytes in these tests, instead of hundreds of millions
ROWS = 4_000


@pytest.fixture(autouse=True)
def _small_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_limits, "FLOOR", LIMIT)


@pytest.fixture
def refused() -> Callable[..., str]:
    """Calls what must refuse a file, and has not allocated half of the limit when it does."""

    def call(read: Callable[[Any], Any], file: Path) -> str:
        before = pyarrow.total_allocated_bytes()
        tracemalloc.start()
        with pytest.raises(ValueError, match="declares") as caught:
            read(file)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < LIMIT / 2
        assert pyarrow.total_allocated_bytes() - before < LIMIT / 2
        message = str(caught.value)
        assert re.search(r"the limit is [\d.]+ MB", message), message
        assert file.name in message
        assert "\n" not in message
        assert read_limits.VARIABLE in message
        return message

    return call


def header(shape: tuple[int, ...], kind: str = "<f4") -> bytes:
    """That of a .npy file, whatever follows it."""
    file = io.BytesIO()
    words = {"descr": kind, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_2_0(file, words)
    return file.getvalue()


def npz(path: Path, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(f"{name}.npy", content)
    return path


def test_zeros_in_an_npz(refused: Callable[..., str], tmp_path: Path) -> None:
    np.savez_compressed(
        tmp_path / "zeros.npz", features=np.zeros((ROWS, 1024), np.float32), labels=np.arange(ROWS)
    )
    assert (tmp_path / "zeros.npz").stat().st_size < LIMIT / 64
    message = refused(Arrays, tmp_path / "zeros.npz")
    assert "declares 16.6 MB" in message
    refused(Arrays.source, tmp_path / "zeros.npz")
    refused(read_items, tmp_path / "zeros.npz")


@pytest.mark.parametrize("shape", [(10**12, 512), (2**62, 4), (10**15,)])
@pytest.mark.parametrize("kind", ["<f4", "<U0", "<U100000"])
def test_a_shape_that_is_not_there(
    shape: tuple[int, ...], kind: str, refused: Callable[..., str], tmp_path: Path
) -> None:
    small = header(shape, kind) + b"\0" * 64
    refused(Arrays, npz(tmp_path / "shape.npz", features=small, labels=small))
    (tmp_path / "shape.npy").write_bytes(small)
    refused(read_items, tmp_path / "shape.npy")


def test_many_rows_of_a_byte(refused: Callable[..., str], tmp_path: Path) -> None:
    """A byte on the disk is a text of dozens of bytes in a list."""
    ones = np.ones(LIMIT // 16, np.uint8)
    np.savez_compressed(tmp_path / "rows.npz", features=ones[:, None], labels=ones)
    refused(Arrays, tmp_path / "rows.npz")


def table(path: Path, columns: dict[str, Any], **how: Any) -> Path:
    parquet.write_table(pyarrow.table(columns), path, compression="zstd", **how)
    return path


def test_zeros_in_parquet(refused: Callable[..., str], tmp_path: Path) -> None:
    zeros = pyarrow.array(np.zeros(2_000_000))
    for name, dictionary in (("plain", False), ("coded", True)):
        file = table(tmp_path / f"{name}.parquet", {"a": zeros}, use_dictionary=dictionary)
        assert file.stat().st_size < 20_000
        refused(table_file.read, file)
        refused(read_items, file)


def test_one_long_text_in_every_row(refused: Callable[..., str], tmp_path: Path) -> None:
    """The file declares the text once; each row has it."""
    text = pyarrow.DictionaryArray.from_arrays(np.zeros(ROWS, np.int32), ["x" * 50_000])
    plain = text.cast(pyarrow.string())
    file = table(tmp_path / "text.parquet", {"path": plain, "n": np.arange(ROWS)})
    del plain
    assert file.stat().st_size < 20_000
    refused(table_file.read, file)
    few = {"path": pyarrow.array(["x" * 50_000] * 40), "n": np.arange(40)}
    with parquet.ParquetWriter(tmp_path / "groups.parquet", pyarrow.table(few).schema) as out:
        for _ in range(20):  # each group of rows is small enough
            out.write_table(pyarrow.table(few))
    refused(table_file.read, tmp_path / "groups.parquet")
    nested = pyarrow.StructArray.from_arrays([text.cast(pyarrow.binary())], ["bytes"])
    file = table(tmp_path / "images.parquet", {"image": nested, "label": np.arange(ROWS)})
    refused(ImageRows, file)
    refused(lambda file: list(read_parquet(file).chunks), file)


def test_a_footer_that_lies_about_its_pages(refused: Callable[..., str], tmp_path: Path) -> None:
    """The footer is a stranger's word, too: what pages say counts."""
    file = tmp_path / "lie.parquet"
    table(file, {"a": pyarrow.array([bytes(LIMIT * 2)])}, use_dictionary=False)
    result = parquet.ParquetFile(file).metadata.row_group(0).column(0)
    true, content = result.total_uncompressed_size, file.read_bytes()
    message = varint(true)
    assert content[-400:].count(message) >= 1
    small = varint(300, len(message))
    file.write_bytes(content[:-400] + content[-400:].replace(message, small))
    assert parquet.ParquetFile(file).metadata.row_group(0).column(0).total_uncompressed_size == 300
    refused(table_file.read, file)


def varint(number: int, length: int = 0) -> bytes:
    """As Thrift's compact protocol writes a signed number, in as many bytes as asked for."""
    number, result = number << 1, []
    while number or len(result) < length or not result:
        result.append(number & 127 | 128)
        number >>= 7
    result[-1] &= 127
    return bytes(result)


def test_arrow_that_is_compressed_inside(tmp_path: Path) -> None:
    kind = pyarrow.schema([("image", pyarrow.binary()), ("label", pyarrow.string())])
    content = pyarrow.table({"image": [bytes(LIMIT)] * 4, "label": list("abcd")}, kind)
    options = pyarrow.ipc.IpcWriteOptions(compression="zstd")
    for open_file in (pyarrow.ipc.new_stream, pyarrow.ipc.new_file):
        with open_file(tmp_path / "a.arrow", kind, options=options) as out:
            out.write_table(content)
        before = pyarrow.total_allocated_bytes()
        with pytest.raises(ValueError, match=r"a\.arrow is compressed inside") as caught:
            ImageRows(tmp_path / "a.arrow")
        assert "\n" not in str(caught.value)
        assert pyarrow.total_allocated_bytes() == before
        with open_file(tmp_path / "b.arrow", kind) as out:
            out.write_table(content)
        assert len(ImageRows(tmp_path / "b.arrow").names) == 4
        (tmp_path / "b.arrow").unlink()


def test_arrow_whose_texts_overlap(tmp_path: Path) -> None:
    """Offsets that lead outside of their buffer are no texts."""
    image = pyarrow.array([b"abcd"] * 4)
    offsets = pyarrow.py_buffer(struct.pack("<5i", 0, 1 << 30, 4, 8, 12))
    label = pyarrow.Array.from_buffers(
        pyarrow.string(), 4, [None, offsets, pyarrow.py_buffer(b"abcdefghijkl")]
    )
    content = pyarrow.RecordBatch.from_arrays([image, label], ["image", "label"])
    with pyarrow.ipc.new_stream(tmp_path / "a.arrow", content.schema) as out:
        out.write_batch(content)
    with pytest.raises(ValueError, match=r"a\.arrow is not a whole Arrow file"):
        ImageRows(tmp_path / "a.arrow")


def test_safetensors_that_declare_more_than_they_hold(tmp_path: Path) -> None:
    message = b'{"a":{"dtype":"F32","shape":[1000000000000],"data_offsets":[0,4000000000000]}}'
    (tmp_path / "w.safetensors").write_bytes(struct.pack("<Q", len(message)) + message + b"\0" * 64)
    with pytest.raises(ValueError, match=r"w\.safetensors is no weights file"):
        read_state(tmp_path / "w.safetensors")


def test_weights_in_a_compressed_zip(refused: Callable[..., str], tmp_path: Path) -> None:
    torch.save({"a": torch.zeros(LIMIT // 2)}, tmp_path / "plain.pth")
    assert read_state(tmp_path / "plain.pth")["a"].shape == (LIMIT // 2,)
    small = zipfile.ZipFile(tmp_path / "w.pth", "w", zipfile.ZIP_DEFLATED)
    with zipfile.ZipFile(tmp_path / "plain.pth") as plain, small:
        for info in plain.infolist():
            small.writestr(info.filename, plain.read(info))
    refused(read_state, tmp_path / "w.pth")


def test_features_that_are_what_they_say_are_read(tmp_path: Path) -> None:
    """Of a million rows of 512 numbers this is a share: twice the limit of compressed files."""
    features = np.random.default_rng(0).normal(size=(8192, 512)).astype(np.float32)
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "f.npz", features=features, labels=np.arange(8192) // 4)
        assert (tmp_path / "f.npz").stat().st_size > 1.5 * LIMIT
        assert Arrays(tmp_path / "f.npz").features.nbytes == features.nbytes
    columns = {f"d{k}": features[:, k] for k in range(300)}
    file = table(tmp_path / "f.parquet", columns | {"label": np.arange(8192) // 4})
    assert read_items(file).embeddings.shape == (8192, 300)


def test_many_labels_of_few_words_are_read(tmp_path: Path) -> None:
    """Every row might have the longest word of a dictionary; none has."""
    words = [f"class {k} {'x' * 100}" for k in range(4_000)]
    labels = [words[k % 4_000] for k in range(8_000)]
    file = table(tmp_path / "labels.parquet", {"path": labels, "label": labels})
    assert table_file.read(file)["label"] == labels


def test_the_limit_is_a_fraction_of_memory_and_can_be_raised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(read_limits, "FLOOR", 256 << 20)
    monkeypatch.setattr(read_limits, "memory", lambda: 8 << 30)
    assert read_limits.limit(1_000)[0] == 256 << 20
    assert read_limits.limit(10 << 20)[0] == 640 << 20
    assert read_limits.limit(2_100_000_000)[0] == 4 << 30, "a million rows of 512 numbers fit"
    monkeypatch.setenv(read_limits.VARIABLE, "16")
    assert read_limits.limit(1_000)[0] == 16 * 10**9
    monkeypatch.setenv(read_limits.VARIABLE, "much")
    with pytest.raises(ValueError, match=f"{read_limits.VARIABLE} must be a number of GB"):
        read_limits.limit(1_000)


def test_nothing_else_reads_arrays() -> None:
    package = Path(read_limits.__file__).parents[1]
    users = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if re.search(r"\bnp\.load\(|ParquetFile\(|parquet\.read_", path.read_text())
    }
    tables = ("data/images/parquet_sizes.py", "data/images/table_file.py")
    assert users == {"core/read_limits.py", *tables}
