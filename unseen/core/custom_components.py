"""Components from outside the package, by name or as objects: methods, networks, data sets.

    my_package.my_module:MyLoss     a class (or function) of an importable module
    ./my_loss.py:MyLoss             of a file
    my_idea                         an entry point of an installed package (below)
    object:my_module:MyLoss         an object passed to `unseen.fit`, known while it runs

    [project.entry-points."unseen.components"]
    "losses.my_idea" = "my_package.my_idea:MyIdea"

Naming a component runs its code. A config, run, index or study may come from someone else, so a
component is imported only if the user typed it or passed it from Python (`trust`), allowed it
(`--trust`, `with trusted():`), did either before with the same content at the same place
(`state_folder`), or if it is the entry point of an installed package. Child processes trust what
their parent trusts.
"""

import hashlib
import importlib
import importlib.metadata
import importlib.util
import inspect
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, partial
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

from unseen.core.files import now, replace_bytes, sha256
from unseen.core.names import by_front_end, known

GROUP = "unseen.components"
TRUST_VARIABLE = "UNSEEN_TRUST"  # marks of what this process trusts, and those it starts
EVERYTHING = "1"  # in place of a mark
_LIBRARIES = ("pml", "timm", "hf")  # what stands behind these is a name in that library
_REFERENCE = re.compile(r"(?P<where>[^:]+):(?P<name>[A-Za-z_]\w*)")


OBJECT = "object:"
_objects: ContextVar[Mapping[str, Any]] = ContextVar("_objects", default=MappingProxyType({}))
_components: dict[
    str, Any
] = {}  # by place: a file that is edited while a run goes on changes nothing


@dataclass(frozen=True)
class Origin:
    """Where a custom component comes from."""

    qualified: str  # module and name
    file: str
    sha256: str  # of the file; "" where there is none, as in a notebook

    def to_dict(self) -> dict[str, str]:
        return {"qualified": self.qualified, "file": self.file, "sha256": self.sha256}


def is_reference(name: str) -> bool:
    """Whether a name says where its component lies: a file or a module, then a colon."""
    match = _REFERENCE.fullmatch(name)
    if not match:
        return False
    where = match["where"]
    if where in _LIBRARIES:
        return False
    return where.endswith(".py") or all(word.isidentifier() for word in where.split("."))


def find(reference: str) -> Any:
    """The class or function that a reference names."""
    match = _REFERENCE.fullmatch(reference)
    assert match, f"{reference} is no reference"
    where, name = match["where"], match["name"]
    files = _files(reference)
    place = json.dumps([_module(where), name, *map(str, files)])
    if place in _components:
        return _components[place]
    mark = _mark(reference, files)
    if not (is_entry_point := reference in {entry.value for entry in _entry_points()}):
        _refuse_untrusted(reference, files, mark)
    module = _loaded(files[0]) if _is_file(where) else _imported(reference, where)
    public = [key for key, value in vars(module).items() if callable(value) and key[0] != "_"]
    _components[place] = getattr(module, known(name, public, f"name in {where}"))
    if not is_entry_point:
        _record(reference, files, mark)
    return _components[place]


def is_object(name: str) -> bool:
    """Whether a name stands for an object that was passed from Python."""
    return name.startswith(OBJECT)


def is_custom(name: str) -> bool:
    """Whether a name is a reference or stands for an object."""
    return is_object(name) or is_reference(name)


def object_name(component: Any) -> str:
    """What a config calls an object, class or function that was passed in place of a name."""
    definition = _definition(component)
    return f"{OBJECT}{definition.__module__}:{definition.__qualname__}"


def short_name(name: str) -> str:
    """What a component is called in tables and folders: ./my_loss.py:MyLoss -> MyLoss."""
    return name.rpartition(":")[2] if is_custom(name) else name


@contextmanager
def known_objects(objects: Mapping[str, Any]) -> Iterator[None]:
    """Objects by their names, found like other components while the block runs."""
    token = _objects.set({**_objects.get(), **objects})
    try:
        yield
    finally:
        _objects.reset(token)


def find_object(name: str) -> Any:
    """The object behind a name."""
    if name not in _objects.get():
        raise ValueError(
            f"{name.removeprefix(OBJECT)} was an object passed from Python, which commands cannot "
            "find by name. In Python pass it again: the same unseen.fit(...) gives the finished "
            "run, unseen.load(RUN, network=...) its network."
            + by_front_end(" If it is the data, say where the same items lie with --data PATH", "")
        )
    return _objects.get()[name]


def entry_points(kind: str) -> dict[str, importlib.metadata.EntryPoint]:
    """The entry points of installed packages of a kind, by name."""
    prefix = f"{kind}."
    return {
        entry.name.removeprefix(prefix): entry
        for entry in _entry_points()
        if entry.name.startswith(prefix)
    }


def origin_of(component: Any) -> Origin | None:
    """Where a class, function or object comes from; None for our own."""
    definition = _definition(component)
    if definition.__module__.partition(".")[0] == "unseen":
        return None
    qualified = f"{definition.__module__}:{definition.__qualname__}"
    try:
        file = inspect.getsourcefile(definition)
        content = Path(file).read_bytes() if file else b""
    except (TypeError, OSError):  # built in, or typed into a notebook
        return Origin(qualified, "", _hash_of_text(definition))
    return Origin(qualified, str(file), hashlib.sha256(content).hexdigest())


@contextmanager
def trusted() -> Iterator[None]:
    """Any component may run while the block runs; what was used is trusted from then on."""
    before = _marks()
    os.environ[TRUST_VARIABLE] = " ".join({*before, EVERYTHING})
    try:
        yield
    finally:
        os.environ[TRUST_VARIABLE] = " ".join(_marks() - ({EVERYTHING} - before))


def trust(values: Any) -> None:
    """Trusts the code that values name, as it is now, in this process and those it starts.

    Args:
        values: What the user typed, or passed from Python: a reference, or a config, plan or list
            with references in it. Never what was read from a file.

    Example:
        >>> import unseen
        >>> unseen.trust({"loss": {"name": "./my_loss.py:MyIdea"}, "epochs": 10})
    """
    for reference in references_in(values):
        with suppress(ValueError):  # no such file: whoever looks for it says so
            _add(_mark(reference, _files(reference)))


def state_folder() -> Path:
    """`$XDG_STATE_HOME/unseen`, or `~/.local/state/unseen`: what the user has trusted."""
    state_home = Path(os.environ.get("XDG_STATE_HOME", ""))  # its standard ignores relative paths
    return (state_home if state_home.is_absolute() else Path.home() / ".local/state") / "unseen"


def safe_environment() -> dict[str, str]:
    """Of a Python process that imports what this one imports, and nothing by lying in the current
    folder; trusted components are found there all the same."""
    paths = os.pathsep.join(path for path in sys.path if path)
    return {**os.environ, "PYTHONPATH": paths, "PYTHONSAFEPATH": "1"}


@contextmanager
def safe_children() -> Iterator[None]:
    """Processes that are started while the block runs, by whomever, have that environment."""
    before = dict(os.environ)
    os.environ.update(safe_environment())
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


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


def _is_file(where: str) -> bool:
    return where.endswith(".py")


def _module(where: str) -> str:
    """The name it is imported by; a file has none, it is known by its path."""
    return "" if _is_file(where) else where


def _files(reference: str) -> tuple[Path, ...]:
    """Every file whose code a reference runs: the packages above a module, and itself. None of it
    runs here."""
    where = reference.rpartition(":")[0]
    if _is_file(where):
        file = Path(where).expanduser()
        if not file.is_file():
            raise ValueError(f"no such file: {where} (of {reference}), seen from {Path.cwd()}")
        return (file.resolve(),)
    files: list[Path] = []
    above: list[str] | None = None
    words = where.split(".")
    for depth, word in enumerate(words, start=1):
        spec = _spec(".".join(words[:depth]), above)
        if spec is None:
            if depth > 1:
                raise ValueError(f"cannot import {where} (of {reference}): no module {word!r}")
            raise ValueError(
                f"no module {word!r} (of {reference}): is it installed, or below here?"
            )
        if spec.has_location and spec.origin:
            place = Path(spec.origin).resolve()
            files += [each for each in (place, *place.parents) if each.is_file()][:1]  # or its zip
        above = list(spec.submodule_search_locations or ())
    return tuple(files)


def _spec(name: str, above: list[str] | None) -> ModuleSpec | None:
    """Where a module lies. above: the folders of its package, which need not be imported."""
    importlib.invalidate_caches()
    for finder in sys.meta_path:
        try:
            if (spec := finder.find_spec(name, above)) is not None:
                return spec
        except KeyError:  # a folder without __init__.py in another one that is not imported
            spec = ModuleSpec(name, None, is_package=True)
            spec.submodule_search_locations = [
                f"{each}/{name.rpartition('.')[2]}" for each in above or ()
            ]
            return spec
    return PathFinder.find_spec(name, [str(Path.cwd())]) if above is None else None


def _imported(reference: str, module: str) -> ModuleType:
    if str(Path.cwd()) not in sys.path:  # last: nothing installed is shadowed by a file here
        sys.path.append(str(Path.cwd()))
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ValueError(f"cannot import {module} (of {reference}): {error}") from error


@cache
def _loaded(file: Path) -> ModuleType:
    """A file as a module of its own; read once in a process, and never from its __pycache__, which
    need not say what the file says."""
    name = f"unseen_component_{file.stem}_{hashlib.sha256(str(file).encode()).hexdigest()[:8]}"
    loader = SourceFileLoader(name, str(file))
    spec = importlib.util.spec_from_file_location(name, file, loader=loader)
    assert spec is not None, f"{file} is a Python file"
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # pickling and inspect look there
    exec(loader.source_to_code(file.read_bytes(), str(file)), vars(module))
    return module


def _mark(reference: str, files: tuple[Path, ...]) -> str:
    """A hash of what a reference runs: name, and place and content of each file. The same file in
    another folder is another one: what it imports may lie beside it."""
    where, _, name = reference.rpartition(":")
    contents = [[str(file), sha256(file)] for file in files]
    return hashlib.sha256(json.dumps([_module(where), name, contents]).encode()).hexdigest()


def _marks() -> set[str]:
    return set(os.environ.get(TRUST_VARIABLE, "").split())


def _add(mark: str) -> None:
    os.environ[TRUST_VARIABLE] = " ".join({*_marks(), mark})


def _refuse_untrusted(reference: str, files: tuple[Path, ...], mark: str) -> None:
    if _marks() & {mark, EVERYTHING} or _place_of(mark).exists():
        return
    place = files[-1] if files else "Python itself"
    raise ValueError(
        f"{reference} would run code of {place}, which you have not typed yourself, or which has "
        "changed since. Read it, then "
        + by_front_end("add --trust once", f"call unseen.trust({reference!r})")
    )


def _record(reference: str, files: tuple[Path, ...], mark: str) -> None:
    """What has run once is trusted by later commands, and by processes that this one starts."""
    _add(mark)
    text = "\n".join([f"{now()} {reference}", *map(str, files), ""])
    with suppress(OSError):  # a home that cannot be written to: then it is trusted here alone
        if not _place_of(mark).exists():
            replace_bytes(_place_of(mark), text.encode("utf-8", "backslashreplace"))


def _place_of(mark: str) -> Path:
    return state_folder() / "trust" / mark


def _definition(component: Any) -> Any:
    """The class or function behind an object, class, function or function with values bound."""
    code = component.func if isinstance(component, partial) else component
    return code if inspect.isclass(code) or inspect.isroutine(code) else type(code)


@cache
def _entry_points() -> tuple[importlib.metadata.EntryPoint, ...]:
    return tuple(importlib.metadata.entry_points(group=GROUP))


def _hash_of_text(definition: Any) -> str:
    try:
        return hashlib.sha256(inspect.getsource(definition).encode()).hexdigest()
    except (TypeError, OSError):
        return ""
