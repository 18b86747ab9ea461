"""Data sets whose images lie in a few large files: their columns and the places of their images
as one table, which `table` reads like any other."""

import json
import re
from abc import abstractmethod
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from unseen.core import uris
from unseen.core.extras import install_command
from unseen.core.uris import Place
from unseen.data.base import HUB, PARTS
from unseen.data.containers import locations
from unseen.data.containers.image_rows import images_in
from unseen.data.folder import repeated
from unseen.data.images.table_file import PARQUET, Columns, parquet_of
from unseen.data.table import Listed

PATH, LABEL, SPLIT = "path", "label", "split"
TAR = ".tar"
_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")
_SAVED, _SEVERAL = "state.json", "dataset_dict.json"  # of a data set that `datasets` saved


class SplitFile(NamedTuple):
    """A file of images, and the part of the data it is called (train, test), if it is."""

    file: Place
    name: str = ""


class Contained(Listed):
    """root: the file, or the folder of files."""

    def read(self, file: Place) -> tuple[Columns, list[str]]:
        return listing(self.files(file))

    @classmethod
    @abstractmethod
    def files(cls, root: Place) -> list[SplitFile]:
        """The files that hold the images, in their order."""


class Parquet(Contained):
    """`parquet`: Parquet files with the images inside: a column of bytes, or of structs with
    `bytes` and `path` as Hugging Face writes them.

        label                     required; of several columns `data.label=species` names it
        split, is_query, ...      as in a table, all optional

    root is a file or a folder of files, also at a URI. Files called `train-...`, `test-...` and
    `validation-...` are the official split where no class is in two of them; otherwise they are put
    together and divided by class. Parquet cannot be read from the middle: it is copied once to the
    cache folder, in Arrow's format, about as large. A Parquet table of paths is a `table`.

    Args:
        root: A file, or a folder of files.
        path: The column of the images.
        label: The column of classes; None: every image is its own.
        split: The column that says train, validation or test.
        query: The column that says which test images ask.
        gallery: The column that says which test images are searched.
        group: The column of groups: a query does not find images of its own.
        strict: An unreadable image is an error, not a note.
        progress: Called with the images looked at and their number.

    Example:
        >>> from unseen.data import Parquet
        >>> Parquet("images.parquet").label_names  # doctest: +SKIP
    """

    @classmethod
    def files(cls, root: Place) -> list[SplitFile]:
        result = parquets(root)
        if not result:
            raise FileNotFoundError(f"no Parquet files at {root}")
        return [SplitFile(file, _split_name(file)) for file in result]

    @classmethod
    def recognises(cls, root: Place) -> bool:
        """By the first file: it has a column of images."""
        result = parquets(root)
        if not result:
            return False
        try:
            with parquet_of(result[0]) as file:
                return bool(images_in(file.schema_arrow))
        except (OSError, ValueError):
            return False  # a table, which says what is wrong with it


def parquets(root: Place) -> list[Place]:
    """The file itself, or those in a folder."""
    if uris.suffix(root) in PARQUET:
        return [root]
    return sorted(file for file in files_of(root) if uris.suffix(file) in PARQUET)


def _split_name(file: Place) -> str:
    first = uris.name_of(file).lower().replace(".", "-").replace("_", "-").split("-")[0]
    return first if first in PARTS else ""


class Webdataset(Contained):
    """`webdataset`: tar files of images, as WebDataset writes them: `shards/000.tar`.

        a/17.jpg with a/17.cls       the class in a text of its own, a number or a word
        a/17.jpg with a/17.json      columns by their names: `label`, and `split`, `is_query` ... as
                                     in a table; `data.label=species` names another
        a/17.jpg alone               the folder is the class

    root is a tar, a folder of them, or a pattern: `shards/{000..099}.tar`, `shards/train-*.tar`,
    also at a URI (`s3://...`). Where each image lies is found once and kept in the cache folder;
    any class is then drawn at random without unpacking. Compressed tars are refused: they can only
    be read from their beginning.

    Args:
        root: A tar, a folder of tars, or a pattern.
        path: The field of the images.
        label: The column of classes; None: every image is its own.
        split: The column that says train, validation or test.
        query: The column that says which test images ask.
        gallery: The column that says which test images are searched.
        group: The column of groups: a query does not find images of its own.
        strict: An unreadable image is an error, not a note.
        progress: Called with the images looked at and their number.

    Example:
        >>> from unseen.data import Webdataset
        >>> Webdataset("shard-{000..009}.tar").label_names  # doctest: +SKIP
    """

    @classmethod
    def files(cls, root: Place) -> list[SplitFile]:
        return [SplitFile(file) for file in shards(root)]

    @classmethod
    def recognises(cls, root: Place) -> bool:
        if uris.suffix(root) == TAR:
            return True
        return any(uris.suffix(file) == TAR for file in files_of(root))


def shards(root: Place) -> list[Place]:
    """The tars that are meant, sorted."""
    text = str(root)
    if result := _RANGE.search(text):
        first, last = result.groups()
        numbers = range(int(first), int(last) + 1)
        width = len(first)
        words = [_RANGE.sub(f"{number:0{width}d}", text, count=1) for number in numbers]
        return [file for word in words for file in shards(_as(root, word))]
    if "*" in text:
        files = _matching(root)
    else:
        files = [root] if uris.suffix(root) == TAR else files_of(root)
    tars = sorted(file for file in files if uris.suffix(file) == TAR)
    if not tars:
        raise FileNotFoundError(f"no tars are found at {root}")
    return tars


def _as(root: Place, word: str) -> Place:
    return word if isinstance(root, str) else Path(word)


def _matching(root: Place) -> list[Place]:
    if isinstance(root, str):
        return list(uris.matching(root))
    return list(Path(root.anchor or ".").glob(str(root.relative_to(root.anchor))))


class HuggingFace(Contained):
    """`hugging_face`: a data set of Hugging Face's `datasets`, saved to disk or by name.

        photos/              what `save_to_disk` wrote, one data set or train, test ... together
        hf:ethz/food101      by name: `datasets` finds and keeps it (needs the extra `formats`)

    One column holds images; the class is `label`, or the only column of classes, or what
    `data.label=` names. Parts that share classes are put together and divided by class. What is on
    the disk is mapped into memory, any image at once.

    Args:
        root: The folder, or hf:NAME.
        path: The column of the images.
        label: The column of classes; None: every image is its own.
        split: The column that says train, validation or test.
        query: The column that says which test images ask.
        gallery: The column that says which test images are searched.
        group: The column of groups: a query does not find images of its own.
        strict: An unreadable image is an error, not a note.
        progress: Called with the images looked at and their number.

    Example:
        >>> from unseen.data import HuggingFace
        >>> HuggingFace("hf:user/name").label_names  # doctest: +SKIP
    """

    @classmethod
    def files(cls, root: Place) -> list[SplitFile]:
        if str(root).startswith(HUB):
            return _by_name(str(root).removeprefix(HUB))
        folder = Path(root)
        if not (folder / _SEVERAL).exists():
            return [SplitFile(file) for file in _saved(folder)]
        parts = json.loads((folder / _SEVERAL).read_text())["splits"]
        return [SplitFile(file, split) for split in parts for file in _saved(folder / split)]

    @classmethod
    def recognises(cls, root: Place) -> bool:
        if str(root).startswith(HUB):
            return True
        return any((Path(root) / name).is_file() for name in (_SAVED, _SEVERAL))


def _saved(folder: Path) -> list[Path]:
    """The files that a saved data set lists."""
    try:
        state = json.loads((folder / _SAVED).read_text())
        return [folder / file["filename"] for file in state["_data_files"]]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"{folder} is no data set saved by `datasets`: {error!r}") from error


def _by_name(name: str) -> list[SplitFile]:
    try:
        result = import_module("datasets").load_dataset(name)
    except ModuleNotFoundError as error:
        raise ValueError(f"{HUB}{name} needs datasets: {install_command('formats')}") from error
    except Exception as error:  # the hub's, the network's, the data set's
        raise ValueError(f"{HUB}{name} cannot be loaded: {error}") from error
    parts = [(split, dataset.cache_files) for split, dataset in result.items()]
    return [SplitFile(Path(file["filename"]), split) for split, files in parts for file in files]


def listing(files: list[SplitFile]) -> tuple[Columns, list[str]]:
    """The columns of all files one below the other, with the places of the images as `path`; and
    what there is to say of their parts."""
    tables: list[tuple[int, Columns]] = []
    for file, split in files:
        container = locations.container(file)
        columns = dict(container.columns())
        external_paths = container.external_paths
        columns[PATH] = [
            external_paths.get(name) or locations.item(file, name) for name in container.names
        ]
        if split and SPLIT not in columns:
            columns[SPLIT] = [split] * len(container.names)
        tables.append((len(container.names), columns))
    names = dict.fromkeys(name for _, columns in tables for name in columns)
    joined = {
        name: [word for rows, columns in tables for word in columns.get(name) or [""] * rows]
        for name in names
    }
    named = all(split for _, split in files) and LABEL in joined
    note = repeated(joined[LABEL], joined[SPLIT]) if named else None
    if note is None:
        return joined, []
    del joined[SPLIT]
    return joined, [note]


def files_of(root: Place) -> list[Place]:
    """What lies in a folder of files; nothing of one with folders in it, which may be classes."""
    if isinstance(root, str):
        result = uris.below(root)
        return list(result) if all(uris.parent(f) == root.rstrip("/") for f in result) else []
    if not root.is_dir():
        return []
    entries = [entry for entry in root.iterdir() if not entry.name.startswith(".")]
    return [] if any(entry.is_dir() for entry in entries) else list(entries)
