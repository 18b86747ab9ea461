"""Parts from outside the package, by name or as objects:

    my_package.my_module:MyLoss     a class (or function) of an importable module
    ./my_loss.py:MyLoss             of a file
    my_idea                         announced by an installed package (below)
    object:my_module:MyLoss         an object that was given to `unseen.fit`, known while it runs

    [project.entry-points."unseen.parts"]
    "losses.my_idea" = "my_package.my_idea:MyIdea"

Naming a part runs its code. A config, run, index or study may come from a stranger, so a part is
imported only if it lies below the current folder, an installed package announces it, or the user
said so (`--trust`, `with trusted():`).
"""

import hashlib
import importlib
import importlib.util
import inspect
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, partial
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

from unseen.names import known

GROUP = "unseen.parts"
TRUST_VARIABLE = "UNSEEN_TRUST"  # processes that this one starts trust what it trusts
_LIBRARIES = ("pml", "timm", "hf")  # what stands behind these is a name in that library
_REFERENCE = re.compile(r"(?P<where>[^:]+):(?P<name>[A-Za-z_]\w*)")


OBJECT = "object:"
_held: ContextVar[Mapping[str, Any]] = ContextVar("_held", default=MappingProxyType({}))


@dataclass(frozen=True)
class Origin:
    """Where a part that is not ours came from."""

    qualified: str  # module and name
    file: str
    sha256: str  # of the file; "" where there is none, as in a notebook

    def to_dict(self) -> dict[str, str]:
        return {"qualified": self.qualified, "file": self.file, "sha256": self.sha256}


def is_reference(name: str) -> bool:
    """Whether a name says where its part lies: a file or a module, then a colon."""
    found = _REFERENCE.fullmatch(name)
    if not found:
        return False
    where = found["where"]
    if where in _LIBRARIES:
        return False
    return where.endswith(".py") or all(word.isidentifier() for word in where.split("."))


def find(reference: str) -> Any:
    """The class or function that a reference names."""
    match = _REFERENCE.fullmatch(reference)
    assert match, f"{reference} is no reference"
    where, name = match["where"], match["name"]
    if where.endswith(".py"):
        file = Path(where).expanduser()
        if not file.is_file():
            raise ValueError(f"no such file: {where} (of {reference}), seen from {Path.cwd()}")
        _refuse_stranger(reference, file)
        module = _loaded(file.resolve())
    else:
        module = _imported(reference, where)
    public = [key for key, value in vars(module).items() if callable(value) and key[0] != "_"]
    return getattr(module, known(name, public, f"name in {where}"))


def is_object(name: str) -> bool:
    """Whether a name stands for an object that somebody gave."""
    return name.startswith(OBJECT)


def is_from_outside(name: str) -> bool:
    """Whether a name says where its part lies, or stands for an object."""
    return is_object(name) or is_reference(name)


def object_name(part: Any) -> str:
    """What a config calls an object, class or function that was given in place of a name."""
    made = _definition(part)
    return f"{OBJECT}{made.__module__}:{made.__qualname__}"


def short_name(name: str) -> str:
    """What a part is called in tables and folders: ./my_loss.py:MyLoss -> MyLoss."""
    return name.rpartition(":")[2] if is_object(name) or is_reference(name) else name


@contextmanager
def holding(objects: Mapping[str, Any]) -> Iterator[None]:
    """Objects by their names, found like other parts while the block runs."""
    token = _held.set({**_held.get(), **objects})
    try:
        yield
    finally:
        _held.reset(token)


def held(name: str) -> Any:
    """The object behind a name."""
    if name not in _held.get():
        raise ValueError(
            f"{name.removeprefix(OBJECT)} was an object given from Python, which commands cannot "
            "find by name. In Python give it again: the same unseen.fit(...) gives the finished "
            "run, unseen.load(RUN, network=...) its network. If it is the data, say where the same "
            "items lie with --data PATH"
        )
    return _held.get()[name]


def announced(kind: str) -> dict[str, EntryPoint]:
    """What installed packages announce of a kind: name -> entry point."""
    prefix = f"{kind}."
    found = (entry for entry in _entry_points() if entry.name.startswith(prefix))
    return {entry.name.removeprefix(prefix): entry for entry in found}


def origin_of(part: Any) -> Origin | None:
    """Where a class, function or object comes from; None for our own."""
    made = _definition(part)
    if made.__module__.partition(".")[0] == "unseen":
        return None
    qualified = f"{made.__module__}:{made.__qualname__}"
    try:
        file = inspect.getsourcefile(made)
        content = Path(file).read_bytes() if file else b""
    except (TypeError, OSError):  # built in, or typed into a notebook
        return Origin(qualified, "", _hash_of_text(made))
    return Origin(qualified, str(file), hashlib.sha256(content).hexdigest())


@contextmanager
def trusted() -> Iterator[None]:
    """Parts may come from anywhere while the block runs."""
    before = os.environ.get(TRUST_VARIABLE)
    os.environ[TRUST_VARIABLE] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[TRUST_VARIABLE]
        else:
            os.environ[TRUST_VARIABLE] = before


def without_value(name: str) -> str:
    """./mine.py:FirstK@3 -> ./mine.py:FirstK: a metric's name may end with a value."""
    return re.sub(r"@[^@:/]*$", "", name)


def has_objects(values: Any) -> bool:
    """Whether plain values name an object, which only the process it was given to knows."""
    if isinstance(values, str):
        return is_object(values)
    inner = values.values() if isinstance(values, dict) else values
    return isinstance(values, dict | list | tuple) and any(has_objects(value) for value in inner)


def references_in(values: Any) -> set[str]:
    """Every reference that stands somewhere in plain values: a config, a plan."""
    if isinstance(values, str):
        name = without_value(values)
        return {name} if is_reference(name) else set()
    inner = values.values() if isinstance(values, dict) else values
    if not isinstance(values, dict | list | tuple):
        return set()
    return set().union(*(references_in(value) for value in inner))


def _imported(reference: str, module: str) -> ModuleType:
    """An importable module; where it lies is looked up before anything of it runs."""
    top = module.partition(".")[0]
    if str(Path.cwd()) not in sys.path:  # last: nothing installed is shadowed by a file here
        sys.path.append(str(Path.cwd()))
    importlib.invalidate_caches()
    spec = importlib.util.find_spec(top)
    if spec is None:
        raise ValueError(f"no module {top!r} (of {reference}): is it installed, or below here?")
    values = {entry.value for entry in _entry_points()}
    if reference not in values:
        places = list(spec.submodule_search_locations or ()) or [spec.origin or ""]
        _refuse_stranger(reference, *(Path(place) for place in places if Path(place).exists()))
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ValueError(f"cannot import {module} (of {reference}): {error}") from error


@cache
def _loaded(file: Path) -> ModuleType:
    """A file as a module of its own; read once in a process."""
    name = f"unseen_part_{file.stem}_{hashlib.sha256(str(file).encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None, f"{file} is a Python file"
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # pickling and inspect look there
    spec.loader.exec_module(module)
    return module


def _refuse_stranger(reference: str, *places: Path) -> None:
    here = Path.cwd().resolve()
    if os.environ.get(TRUST_VARIABLE) == "1":
        return
    if places and all(_is_below(place.resolve(), here) for place in places):
        return
    place = places[0].resolve() if places else "Python itself"
    raise ValueError(
        f"{reference} would run code of {place}, which is not a file of yours below {here}: go to "
        "its folder, or add --trust if you know what is in it"
    )


def _is_below(place: Path, here: Path) -> bool:
    """Below the current folder, and no package that is only installed there."""
    return place.is_relative_to(here) and not {"site-packages", "dist-packages"} & set(place.parts)


def _definition(part: Any) -> Any:
    """The class or function behind an object, class, function or function with values bound."""
    part = part.func if isinstance(part, partial) else part
    return part if inspect.isclass(part) or inspect.isroutine(part) else type(part)


@cache
def _entry_points() -> tuple[EntryPoint, ...]:
    return tuple(entry_points(group=GROUP))


def _hash_of_text(made: Any) -> str:
    try:
        return hashlib.sha256(inspect.getsource(made).encode()).hexdigest()
    except (TypeError, OSError):
        return ""
