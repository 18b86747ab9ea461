"""Names. A file is a class: `losses/proxy_nca.py` holds `ProxyNcaLoss`. An unknown name is answered
with the nearest known ones, a path that is not there with the nearest one that is. Nothing is
registered and nothing heavy is imported here."""

import difflib
import importlib
import pkgutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

NOT_METHODS = ("base",)
SUFFIXES = {  # folder -> how its classes' names end
    "losses": "Loss",
    "miners": "Miner",
    "samplers": "Sampler",
    "regularizers": "Regularizer",
}
_COMMANDS: list[bool] = []  # a word for each command that runs in this process
_LISTED = 40  # names in one answer


def known(
    word: str, words: Iterable[str], what: str, elsewhere: Mapping[str, str] | None = None
) -> str:
    """The word itself if it is one of the words; otherwise a ValueError with the nearest ones.
    elsewhere: the right word for one that other libraries have."""
    words = list(words)
    if word in words:
        return word
    if elsewhere is not None and word in elsewhere:
        raise ValueError(f"unknown {what} {word!r}: did you mean {elsewhere[word]}?")
    raise ValueError(f"unknown {what} {word!r}: {advice(word, words)}")


def advice(word: str, words: Sequence[str]) -> str:
    """What may have been meant by a word that is none of the words."""
    near = difflib.get_close_matches(word, words, n=3, cutoff=0.6)
    if near:
        return f"did you mean {' or '.join(near)}?"
    more = f" ... ({len(words):,} in all)" if len(words) > _LISTED else ""
    return f"choose from: {', '.join(words[:_LISTED])}{more}"


def near_path(path: str | PathLike[str]) -> str:
    """`; did you mean photos?` of a path that is not there, part by part (runs/photos stands for
    runs/photos-margin-seed0 too); nothing where it is, or where nothing is like it."""
    result = Path(Path(path).anchor)
    for step in Path(path).relative_to(result).parts:
        if not (result / step).exists():
            try:
                beside = {entry.name.casefold(): entry.name for entry in result.iterdir()}
            except OSError:
                return ""
            near = difflib.get_close_matches(step.casefold(), beside, n=1, cutoff=0.7)
            near = near or sorted(name for name in beside if name.startswith(f"{step.casefold()}-"))
            if not near:
                return ""
            step = beside[near[0]]  # noqa: PLW2901
        result /= step
    return "" if Path(path).exists() else f"; did you mean {result}?"


@contextmanager
def on_command_line() -> Iterator[None]:
    """Messages name options while the block runs; outside of it they name Python's arguments."""
    _COMMANDS.append(True)
    try:
        yield
    finally:
        _COMMANDS.pop()


def by_front_end(command: str, python: str) -> str:
    """What a message says to somebody who gave a command, or made a call in Python."""
    return command if _COMMANDS else python


def few(words: Iterable[Any], number: int = 3) -> str:
    """The first of many: `a, b, c and 4 more`."""
    words = list(words)
    more = f" and {len(words) - number:,} more" if len(words) > number else ""
    return ", ".join(map(str, words[:number])) + more


def class_name(kind: str, name: str) -> str:
    """The class of a file: ("losses", "proxy_nca") -> ProxyNcaLoss, ("metrics", "recall") ->
    Recall."""
    return "".join(word.capitalize() for word in name.split("_")) + SUFFIXES.get(kind, "")


def files_of(path: Iterable[str]) -> list[str]:
    """The names of the methods in a package's folder, sorted."""
    modules = pkgutil.iter_modules(path)
    return sorted(m.name for m in modules if not m.ispkg and m.name not in NOT_METHODS)


def classes_of(package: str, path: Iterable[str]) -> dict[str, str]:
    """Class -> file of the methods in a package's folder."""
    kind = package.rpartition(".")[2]
    return {class_name(kind, name): name for name in files_of(path)}


def lazy(
    package: str, where: Mapping[str, str], ours: Mapping[str, str] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """`__getattr__`, `__dir__` and `__all__` of a package whose names lie in the modules `where`
    says (`module:name` where it has another name there), and are imported when they are asked
    for. ours: names that our own modules ask for, which are not public."""
    every = {**where, **(ours or {})}

    def find(name: str) -> Any:
        if name not in every:
            near = advice(name, sorted(where))
            raise AttributeError(f"module {package!r} has no attribute {name!r}: {near}")
        module, _, there = every[name].partition(":")
        return getattr(importlib.import_module(f"{package}.{module}"), there or name)

    return find, lambda: sorted(where), sorted(where)
