"""`folder`: your own images, in one folder per class.

    root/<class>/*, root/<a>/<b>/*  as it is: the class is the folder that holds the image, by its
                                    path below the root (`cats/siamese`); folders may lie as deep
                                    as they like, some deeper than others
    root/<class>/**                 levels = 1: folders inside a class belong to it
    root/<category>/<product>/**    levels = 2: a class is a folder of the second level, and the
                                    levels, level_1 and level_2, are evaluated by as well;
                                    class_level = 1: a category is the class
    root/train/<class>/** ...       parts = true: where each class is in one part only, the official
                                    split; classes that repeat are put together, and the split is
                                    by class

Classes stand in alphabetical order. Hidden files and macOS's `._*` companions are passed over.
Files that are no images in spite of their name are found when the data set is made, left out, and
named by `describe()`, as is everything else that is not used; with `strict` the first unreadable
one is an error.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from unseen.core import uris
from unseen.core.contracts import Progress
from unseen.core.files import shown
from unseen.core.names import few, near_path
from unseen.core.uris import Place
from unseen.data.base import MIN_CLASSES, PARTS, Columns, described
from unseen.data.images.decode import SUFFIXES, UnreadableImageError, is_image
from unseen.data.images.image_files import ImageFiles, folders_of, images_at, unreadable, walk

_Key = tuple[str, ...]  # a class: its folders below the root


class Folder(ImageFiles):
    """Images in folders; the class of an image is the path of its folder.

    Args:
        root: The folder of class folders.
        levels: Folders down to a class; 0: down to the one that holds the image.
        class_level: Which of them is the class; None: the last.
        parts: The first folders are train, validation and test.
        strict: An unreadable file is an error, not a note.
        progress: Called with the images listed so far.

    Example:
        >>> from unseen.data import Folder
        >>> Folder("photos").label_names  # doctest: +SKIP
    """

    def __init__(
        self,
        root: str | Path,
        levels: int = 0,
        class_level: int | None = None,
        parts: bool = False,
        strict: bool = False,
        progress: Progress | None = None,
    ) -> None:
        root = uris.as_place(root)
        _refuse_absent(root)
        _refuse_levels(levels, class_level)
        result = {path: folders_of(path, root)[parts:] for path in images_at(root)}
        classes: dict[Any, str | None] = {
            path: class_of(key, levels, class_level or 0) for path, key in result.items()
        }
        depth = levels or None
        paths = sorted((path for path in result if classes[path]), key=lambda p: result[p][:depth])
        if not paths:
            raise ValueError(_nothing(root, max(levels, 1) + parts))
        skipped = unreadable(root, paths, progress)
        if strict and skipped:
            raise skipped[0]
        damaged = {error.path for error in skipped}
        selected = [path for path in paths if path not in damaged]
        _refuse_none(root, selected, skipped)
        labels = [str(classes[path]) for path in selected]
        split = [folders_of(path, root)[0] for path in selected] if parts else None
        notes = [*nesting(labels, levels), *_left_out(root, set(paths))]
        if split is not None and (again := repeated(labels, split)):
            split = None
            notes.insert(0, again)
        names = sorted(set(labels))  # as folders are listed, also where they are numbers
        _refuse_few(root, names)
        place = {name: number for number, name in enumerate(names)}
        depths = range(1, levels + 1) if levels > 1 else ()
        more = {f"level_{n}": ["/".join(result[path][:n]) for path in selected] for n in depths}
        codes = np.array([place[name] for name in labels])
        columns = Columns(codes, split=split, more=more, levels=list(more))
        metadata = replace(described(columns, str(root)), label_names=names)
        name = uris.name_of(root if isinstance(root, str) else root.resolve())
        super().__init__(root, name, selected, metadata)
        self.skipped, self.notes = skipped, notes
        self.skipped_labels = [shown(str(classes[error.path])) for error in skipped]


def class_of(folders: _Key, levels: int = 0, class_level: int = 0) -> str | None:
    """The class of an image by the folders between the root and it, the one rule of all commands:
    the path of the folder that holds it, or of the first `levels` folders (the first `class_level`
    of these); None: it lies in no class folder.

    Example: class_of(("cats", "siamese")) is "cats/siamese", with levels=1 "cats".
    """
    if not folders or len(folders) < levels:
        return None
    return "/".join(folders[: class_level or levels or None])


def labels_in(
    root: Place, rule: Callable[[_Key], str | None] = class_of
) -> dict[Place, str | None]:
    """Every image below a folder somebody names, with its class."""
    paths = images_at(root)
    parts = _are_parts({folders_of(path, root) for path in paths} - {()})
    return {path: rule(folders_of(path, root)[parts:]) for path in paths}


def nesting(labels: Iterable[str], levels: int = 0) -> list[str]:
    """What there is to say of classes that lie in folders of folders, in sentences."""
    keys = sorted({tuple(label.split("/")) for label in labels})
    if all(len(key) == 1 for key in keys):
        return []
    notes, first = [], sorted({key[0] for key in keys})
    if not levels:
        notes.append(
            f"the folder that holds an image is its class ({few(map('/'.join, keys))}); "
            f"data.levels=1 takes the {len(first):,} folders of the first level ({few(first)})"
        )
    parents = defaultdict(list)
    for key in keys:
        parents[key[-1]].append("/".join(key))
    if same := {name: paths for name, paths in parents.items() if len(paths) > 1}:
        listed = few(f"{name} ({few(paths)})" for name, paths in same.items())
        notes.append(f"folders of one name under several others are different classes: {listed}")
    return notes


def layout(root: Place) -> dict[str, Any]:
    """What `Folder` must be told of a folder that somebody only names: nothing for class folders,
    `parts` for train/<class>."""
    inside = {folders_of(path, root) for path in images_at(root)} - {()}
    return {"parts": True} if _are_parts(inside) else {}


def _are_parts(inside: Collection[_Key]) -> bool:
    named = all(key[0].lower() in PARTS for key in inside)
    return named and any(len(key) > 1 for key in inside)


def repeated(keys: Sequence[Hashable], split: Sequence[str]) -> str | None:
    """Why the parts of a classification set are no split by class."""
    parts = defaultdict(set)
    for key, split_name in zip(keys, split, strict=True):
        parts[key].add(split_name)
    both = sum(len(where) > 1 for where in parts.values())
    if not both and len(set(split)) > 1:
        return None
    names = ", ".join(sorted(set(split)))
    why = f"{both} of {len(parts)} classes are in several of them" if both else "it is alone"
    return (
        f"{names} put together and divided by class ({why}): unseen classes are what is evaluated"
    )


def _left_out(root: Place, taken: set[Place]) -> list[str]:
    """What lies below the root and is not used, in sentences."""
    if isinstance(root, str):
        return []
    loose, other, empty = [], [], []
    for here, folders, files in walk(root):
        loose += [here / name for name in files if is_image(name) and here / name not in taken]
        other += [here / name for name in files if not is_image(name)]
        if not folders and not any(is_image(name) for name in files) and here != root:
            empty.append(here)

    def sentence(paths: list[Path], what: str) -> list[str]:
        names = few(shown(path.relative_to(root)) for path in sorted(paths))
        return [f"left out, {what}: {len(paths):,} ({names})"] if paths else []

    return [
        *sentence(loose, "images that lie in no class folder"),
        *sentence(empty, "folders without images"),
        *sentence(other, "files that are no images by their names"),
    ]


def _refuse_levels(levels: int, class_level: int | None) -> None:
    if levels < 0:
        raise ValueError(
            f"data.levels must be 0 (the folder that holds an image) or more, got {levels}"
        )
    if class_level is not None and not 1 <= class_level <= levels:
        raise ValueError(f"data.class_level must be 1 to data.levels={levels}, got {class_level}")


def _refuse_none(root: Place, selected: list[Place], skipped: list[UnreadableImageError]) -> None:
    if not selected:
        raise ValueError(
            f"none of the {len(skipped)} images under {root} can be read; "
            f"the first: {skipped[0].line}"
        )


def _refuse_few(root: Place, names: list[str]) -> None:
    if len(names) < MIN_CLASSES:
        raise ValueError(
            f"{root} has {len(names)} classes of readable images ({', '.join(names)}); "
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
        return f"no images {depth} folders deep under {root}; {_expected(root)}"
    entries = [entry for entry in root.iterdir() if not entry.name.startswith(".")]
    files = [entry for entry in entries if not entry.is_dir()]
    loose = sum(is_image(entry.name) for entry in files)
    if loose == len(entries) > 0:
        return (
            f"{root} holds {loose:,} images and no class folders. If they are of one class, give "
            f"the folder above it; {_expected(root)}"
        )
    where = "in class folders" if depth == 1 else f"{depth} folders deep"
    return (
        f"no images {where} under {root}; {_expected(root)}, found {len(entries) - len(files)} "
        f"folders without {'images' if depth == 1 else 'them'} and {len(files)} files, "
        f"{loose} of them images"
    )


def _expected(root: Place) -> str:
    return f"expected {root}/<class>/<image>.jpg (or {', '.join(sorted(SUFFIXES - {'.jpg'}))})"
