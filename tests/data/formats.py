"""The same images in every format that is read: each writer takes class folders and returns what
is named on the command line."""

import csv
import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from PIL import Image

Write = Callable[[Path, Path], str]


def listed(root: Path) -> list[tuple[str, str, bytes]]:
    """Name, class and bytes of each image, as a folder lists them."""
    paths = sorted(root.glob("*/*"))
    return [
        (path.relative_to(root).as_posix(), path.parent.name, path.read_bytes()) for path in paths
    ]


def folder(root: Path, out: Path) -> str:
    return str(root)


def table(root: Path, out: Path) -> str:
    file = root / "images.csv"
    with file.open("w", newline="") as stream:
        rows = [(name, label) for name, label, _ in listed(root)]
        csv.writer(stream).writerows([("path", "label"), *rows])
    return str(file)


def image_table(root: Path) -> Any:
    import pyarrow

    held = listed(root)
    images = [{"bytes": content, "path": name} for name, _, content in held]
    return pyarrow.table({"image": images, "label": [label for _, label, _ in held]})


def parquet(root: Path, out: Path) -> str:
    from pyarrow import parquet as files

    out.mkdir()
    whole = image_table(root)
    for number in range(2):  # in two files, several groups of rows each
        part = whole.slice(number * 13, 13 if number == 0 else len(whole))
        files.write_table(part, out / f"{number}.parquet", row_group_size=5)
    return str(out)


def arrow(root: Path, out: Path) -> str:
    """As `datasets` saves it: a stream of batches, and the list of files."""
    import pyarrow

    out.mkdir()
    whole = image_table(root)
    with (
        pyarrow.OSFile(str(out / "data-00000-of-00001.arrow"), "wb") as logger,
        pyarrow.ipc.new_stream(logger, whole.schema) as stream,
    ):
        stream.write_table(whole, max_chunksize=7)
    (out / "state.json").write_text(
        json.dumps({"_data_files": [{"filename": "data-00000-of-00001.arrow"}]})
    )
    (out / "dataset_info.json").write_text("{}")
    return str(out)


def datasets(root: Path, out: Path) -> str:
    """What `datasets` itself saves."""
    import datasets as library

    held = listed(root)
    names = sorted({label for _, label, _ in held})
    kinds = library.Features({"image": library.Image(), "label": library.ClassLabel(names=names)})
    rows = {
        "image": [{"bytes": content, "path": name} for name, _, content in held],
        "label": [names.index(label) for _, label, _ in held],
    }
    library.Dataset.from_dict(rows, kinds).save_to_disk(out)
    return str(out)


def webdataset(root: Path, out: Path) -> str:
    out.mkdir()
    held = listed(root)
    for number in range(2):
        with tarfile.open(out / f"{number:03d}.tar", "w") as tar:
            for name, label, content in held[:13] if number == 0 else held[13:]:
                add(tar, name, content)
                add(tar, name.rpartition(".")[0] + ".cls", label.encode())
    return str(out)


def add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    tar.addfile(member, io.BytesIO(content))


def coco(root: Path, out: Path) -> str:
    held = listed(root)
    names = sorted({label for _, label, _ in held})
    images, boxes = [], []
    for number, (name, label, content) in enumerate(held):
        width, height = Image.open(io.BytesIO(content)).size
        images.append({"id": number, "file_name": name, "width": width, "height": height})
        kind, edges = names.index(label), [0, 0, width, height]
        boxes.append({"id": number, "image_id": number, "category_id": kind, "bbox": edges})
    kinds = [{"id": number, "name": name} for number, name in enumerate(names)]
    file = root / "boxes.json"
    file.write_text(json.dumps({"images": images, "annotations": boxes, "categories": kinds}))
    return str(file)


def memory(root: Path, out: Path) -> str:
    """At an address."""
    import fsspec

    store = fsspec.filesystem("memory")
    place = f"/{out.name}"
    if store.exists(place):  # another test's, in the same process
        store.rm(place, recursive=True)
    store.pipe({f"{place}/{name}": content for name, _, content in listed(root)})
    return f"memory:/{place}"


FORMATS: dict[str, Write] = {
    "folder": folder,
    "table": table,
    "parquet": parquet,
    "hugging_face": arrow,
    "webdataset": webdataset,
    "coco": coco,
    "memory": memory,
}
