"""`folder`: your own pictures, one sub-folder per class: `root/<class>/**/*.jpg`.

    root/<class>/**                 as it is: folders inside a class belong to it
    root/<category>/<product>/**    levels = 2: a class is a folder of the second level, and the
                                    levels, level_1 and level_2, are judged by as well;
                                    class_level = 1: a category is the class
    root/train/<class>/** ...       parts = true: where each class is in one part only, the official
                                    split; classes that repeat are put together, and the split is
                                    by class

Classes stand in alphabetical order. Hidden files and macOS's `._*` companions are passed over.
Files that are no pictures in spite of their name are found when the data set is made, left out, and
named by `describe()`, as is everything else that is not used; with `strict` the first unreadable
one is an error.
"""

import shlex
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from unseen import addresses
from unseen.addresses import Place
from unseen.contracts import Progress
from unseen.data.base import MIN_CLASSES, PARTS, Columns, described
from unseen.data.pictures.decode import SUFFIXES, UnreadablePictureError, is_picture
from unseen.data.pictures.files import (
    PictureFiles,
    folders_of,
    pictures_at,
    unreadable,
    walk,
)
from unseen.files import shown
from unseen.names import near_path

_NAMED = 3  # examples in a sentence
_Key = tuple[str, ...]  # a class: its folders below the root


class Folder(PictureFiles):
    """root: the folder of class folders. levels: of folders, down to a class; 0: nobody has said.
    class_level: which of them is the class; None: the last. parts: the first folders are train,
    validation and test. strict: an unreadable file is an error, not a note."""

    def __init__(
        self,
        root: str | Path,
        levels: int = 1,
        class_level: int | None = None,
        parts: bool = False,
        strict: bool = False,
        progress: Progress | None = None,
    ) -> None:
        root = addresses.as_place(root)
        _refuse_absent(root)
        level = levels if class_level is None else class_level
        if levels == 0:
            raise ValueError(_which_level(root, parts))
        if not 1 <= level <= levels:
            raise ValueError(f"data.class_level must be 1 to data.levels={levels}, got {level}")
        by_folder = _pictures_by_folder(root, levels + parts)
        paths = [path for paths in by_folder.values() for path in paths]
        skipped = unreadable(root, paths, progress)
        if strict and skipped:
            raise skipped[0]
        damaged = {error.path for error in skipped}
        kept = [
            (key, path) for key, paths in by_folder.items() for path in paths if path not in damaged
        ]
        _refuse_none(root, kept, skipped)
        keys = [key[parts:] for key, _ in kept]
        split = [key[0] for key, _ in kept] if parts else None
        notes = _left_out(root, by_folder)
        if split is not None and (again := repeated(keys, split)):
            split = None
            notes.insert(0, again)
        classes = ["/".join(key[:level]) for key in keys]
        names = sorted(set(classes))  # as folders are listed, also where they are numbers
        _refuse_few(root, names)
        place = {name: number for number, name in enumerate(names)}
        labels = np.array([place[name] for name in classes])
        more = {f"level_{n}": ["/".join(key[:n]) for key in keys] for n in range(1, levels + 1)}
        more = more if levels > 1 else {}
        columns = Columns(labels, split=split, more=more, levels=list(more))
        facts = replace(described(columns, str(root)), label_names=names)
        name = addresses.name_of(root if isinstance(root, str) else root.resolve())
        super().__init__(root, name, [path for _, path in kept], facts)
        self.skipped, self.notes = skipped, notes


def layout(root: Place) -> dict[str, Any]:
    """What `Folder` must be told of a folder that somebody only names: nothing for class folders,
    `parts` for train/<class>, `levels` 0 where folders lie in folders and only a person knows which
    of them are classes."""
    inside = {folders_of(path, root) for path in pictures_at(root)} - {()}
    parts = _are_parts(inside)
    facts: dict[str, Any] = {"parts": True} if parts else {}
    first, second = _levels(inside, parts)
    is_nested = len(second) > len(first) and all(len(key) > 1 + parts for key in inside)
    return facts | ({"levels": 0} if is_nested else {})


def _are_parts(inside: Iterable[_Key]) -> bool:
    inside = list(inside)
    named = all(key[0].lower() in PARTS for key in inside)
    return named and any(len(key) > 1 for key in inside)


def _levels(inside: Iterable[_Key], parts: bool) -> tuple[set[_Key], set[_Key]]:
    """The folders of the first and of the second level."""
    keys = [key[parts:] for key in inside if len(key) > parts]
    return {key[:1] for key in keys}, {key[:2] for key in keys}


def _which_level(root: Place, parts: bool) -> str:
    inside = {folders_of(path, root) for path in pictures_at(root)} - {()}
    first, second = _levels(inside, parts)
    command = f"unseen train {shlex.quote(str(root))} data.levels=2"
    return (
        f"{root} has folders in folders, and either may be the classes: `{command}` takes the "
        f"{len(second):,} of the second level ({_some(map('/'.join, sorted(second)))}), "
        f"`{command} data.class_level=1` the {len(first):,} of the first "
        f"({_some(map('/'.join, sorted(first)))})"
    )


def _pictures_by_folder(root: Place, depth: int) -> dict[_Key, list[Place]]:
    """The picture files below every folder of that depth, sorted."""
    found: dict[_Key, list[Place]] = defaultdict(list)
    for path in pictures_at(root):
        folders = folders_of(path, root)
        if len(folders) >= depth:
            found[folders[:depth]].append(path)
    if not found:
        raise ValueError(_nothing(root, depth))
    return dict(sorted(found.items()))


def repeated(keys: Sequence[Hashable], split: Sequence[str]) -> str | None:
    """Why the parts of a classification set are no split by class."""
    parts = defaultdict(set)
    for key, part in zip(keys, split, strict=True):
        parts[key].add(part)
    both = sum(len(where) > 1 for where in parts.values())
    if not both and len(set(split)) > 1:
        return None
    names = ", ".join(sorted(set(split)))
    why = f"{both} of {len(parts)} classes are in several of them" if both else "it is alone"
    return f"{names} put together and divided by class ({why}): unseen classes are what is judged"


def _left_out(root: Place, used: dict[_Key, list[Place]]) -> list[str]:
    """What lies below the root and is not used, in sentences."""
    if isinstance(root, str):
        return []
    taken = {path for paths in used.values() for path in paths}
    loose, other, empty = [], [], []
    for here, folders, files in walk(root):
        loose += [here / name for name in files if is_picture(name) and here / name not in taken]
        other += [here / name for name in files if not is_picture(name)]
        if not folders and not any(is_picture(name) for name in files) and here != root:
            empty.append(here)

    def sentence(paths: list[Path], what: str) -> list[str]:
        names = _some(shown(path.relative_to(root)) for path in sorted(paths))
        return [f"left out, {what}: {len(paths):,} ({names})"] if paths else []

    return [
        *sentence(loose, "pictures that lie in no class folder"),
        *sentence(empty, "folders without pictures"),
        *sentence(other, "files that are no pictures by their names"),
    ]


def _some(names: Iterable[str]) -> str:
    names = list(names)
    return ", ".join(names[:_NAMED]) + (", ..." if len(names) > _NAMED else "")


def _refuse_none(
    root: Place, kept: list[tuple[_Key, Place]], skipped: list[UnreadablePictureError]
) -> None:
    if not kept:
        raise ValueError(
            f"none of the {len(skipped)} pictures under {root} can be read; "
            f"the first: {skipped[0].line}"
        )


def _refuse_few(root: Place, names: list[str]) -> None:
    if len(names) < MIN_CLASSES:
        raise ValueError(
            f"{root} has {len(names)} classes of readable pictures ({', '.join(names)}); "
            f"at least {MIN_CLASSES} are needed to train and test on different ones"
        )


def _refuse_absent(root: Place) -> None:
    if isinstance(root, str):
        return
    if not root.exists():
        raise FileNotFoundError(
            f"no such folder: {root}{near_path(root) or f'; {_expected(root)}'}"
        )
    if not root.is_dir():
        raise ValueError(f"{root} is a file, not a folder; {_expected(root)}")


def _nothing(root: Place, depth: int) -> str:
    if isinstance(root, str):
        return f"no pictures {depth} folders deep under {root}; {_expected(root)}"
    entries = [entry for entry in root.iterdir() if not entry.name.startswith(".")]
    files = [entry for entry in entries if not entry.is_dir()]
    loose = sum(is_picture(entry.name) for entry in files)
    if loose == len(entries) > 0:
        return (
            f"{root} holds {loose:,} pictures and no class folders. If they are of one class, give "
            f"the folder above it; {_expected(root)}"
        )
    where = "in class folders" if depth == 1 else f"{depth} folders deep"
    return (
        f"no pictures {where} under {root}; {_expected(root)}, found {len(entries) - len(files)} "
        f"folders without {'pictures' if depth == 1 else 'them'} and {len(files)} files, "
        f"{loose} of them pictures"
    )


def _expected(root: Place) -> str:
    return f"expected {root}/<class>/<picture>.jpg (or {', '.join(sorted(SUFFIXES - {'.jpg'}))})"
