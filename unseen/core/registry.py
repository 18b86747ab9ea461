"""Every method by name. Names are file names: `losses/proxy_nca.py` holds `ProxyNcaLoss`.

There is no list to keep: a file put into one of the folders below is in the registry. Names such
as `pml:CircleLoss` mean a loss or miner of pytorch-metric-learning, when that package is installed;
`./my_loss.py:MyLoss` and entry points of installed packages are custom components
(`core/custom_components.py`).
"""

import importlib
import inspect
import re
from copy import deepcopy
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError

from unseen.core import custom_components
from unseen.core.extras import install_command
from unseen.core.names import class_name, files_of, known

KINDS = {  # folder -> what one of its methods is called, in configs and messages
    "losses": "loss",
    "miners": "miner",
    "samplers": "sampler",
    "regularizers": "regularizer",
    "metrics": "metric",
    "diagnostics": "diagnostic",
    "classical": "classical metric",
    "protocols": "protocol",
    "data": "data set",
}
# built in by other rules, see `models/backbone.py` and `models/presets.py`; from outside as all
OTHER_KINDS = {"backbones": "backbone", "networks": "network"}
# components that are one call
_CALLS = ("losses", "miners", "regularizers", "metrics", "diagnostics", "protocols")
_OF_THE_RUN = (
    "shards",
    "open_root",
    "domains",
)  # parameters that are no user's to give: `create` fills them in
_PML = "pml:"
_ANY_TYPE = ConfigDict(arbitrary_types_allowed=True)
_THEIR_ENDINGS = ("Loss", "Miner")  # of names in that package


@dataclass(frozen=True)
class Entry:
    """What the registry says of a method."""

    name: str
    line: str  # the first line of its docstring
    paper: str
    defaults: dict[str, Any]
    presets: tuple[str, ...]


def names(kind: str) -> list[str]:
    """The names of a kind, sorted, entry points of installed packages among them."""
    return sorted({*_built_in(kind), *custom_components.entry_points(kind)})


def find(kind: str, name: str) -> Any:
    """The class of a method (or, from outside, a function or an object); an unknown name is a
    ValueError that says the nearest ones."""
    if name.startswith(_PML):
        return _find_in_pml(kind, name.removeprefix(_PML))
    if custom_components.is_object(name):
        return custom_components.find_object(name)
    if custom_components.is_reference(name):
        return custom_components.find(name)
    if name not in _built_in(kind) and name in custom_components.entry_points(kind):
        return custom_components.entry_points(kind)[name].load()
    by_class = {class_name(kind, each): each for each in names(kind)}
    if name.endswith(_THEIR_ENDINGS):
        by_class = {name: f"{_PML}{name}"} | by_class
    known(name, names(kind), (KINDS | OTHER_KINDS)[kind], by_class)
    return getattr(importlib.import_module(f"unseen.{kind}"), class_name(kind, name))


@cache  # a config asks some hundred times
def _built_in(kind: str) -> tuple[str, ...]:
    known(kind, KINDS | OTHER_KINDS, "kind")
    if kind in OTHER_KINDS:
        return ()
    package = importlib.import_module(f"unseen.{kind}")
    in_folders = chain.from_iterable(getattr(package, "IN_FOLDERS", {}).values())
    return tuple(sorted([*files_of(package.__path__), *in_folders]))


def entry(kind: str, name: str) -> Entry:
    """Name, one line, paper, defaults and presets of a method."""
    method, message = find(kind, name), text(kind, name)
    return Entry(
        name=name,
        line=message.splitlines()[0] if message else "",
        paper=_section(message, "Paper") or _section(message, "Source"),
        defaults={p.name: p.default for p in _values(method) if p.default is not p.empty},
        presets=tuple(getattr(method, "PRESETS", {})),
    )


def text(kind: str, name: str) -> str:
    """The docstring of a method's class (of a data set in a file of its own: of its module)."""
    method = find(kind, name)
    is_alone = method.__module__ == f"unseen.data.{name}"
    return inspect.getdoc(inspect.getmodule(method) if is_alone else method) or ""


def parameters(method: Any) -> list[inspect.Parameter]:
    """The constructor's parameters, without self; an object has been made already."""
    if not makes_components(method):
        return []
    if method.__module__.startswith("pytorch_metric_learning."):
        return _handed_up(method)
    return list(inspect.signature(method).parameters.values())


def _values(method: Any) -> list[inspect.Parameter]:
    """The parameters that a user may give."""
    return [p for p in parameters(method) if p.name not in _OF_THE_RUN]


def create(
    kind: str,
    name: str,
    user_values: dict[str, Any] | None = None,
    preset: str | None = None,
    **context: Any,
) -> Any:
    """An object of a method. A custom function is a loss, miner, ... as it is, with the user's
    values beside the tensors; of other kinds it makes the object.

    Args:
        user_values: over the preset's.
        context: what the run knows (num_classes, embedding_size, seed, ...): a method gets what it
            takes.
    """
    user_values = user_values or {}
    check(kind, name, user_values, preset)
    method = find(kind, name)
    if inspect.isfunction(method) and kind in _CALLS:
        return partial(method, **user_values) if user_values else method
    if not makes_components(method):
        return method if kind == "data" else deepcopy(method)  # a run trains a copy of its own
    takes = {p.name for p in parameters(method)}
    values = {key: value for key, value in context.items() if key in takes}
    values |= preset_values(kind, name, preset) | user_values
    own = inspect.signature(method).parameters.values()
    if missing := [p.name for p in own if _is_needed(p) and p.name not in values]:
        raise ValueError(f"{(KINDS | OTHER_KINDS)[kind]} {name} needs {' and '.join(missing)}")
    return method(**values)


def _is_needed(p: inspect.Parameter) -> bool:
    return p.default is p.empty and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)


def makes_components(method: Any) -> bool:
    """Whether a call of a method makes the component: a class or function, not an object."""
    return inspect.isclass(method) or inspect.isroutine(method)


def check(kind: str, name: str, user_values: dict[str, Any], preset: str | None = None) -> None:
    """A ValueError where there is no method, preset or parameter, or a value has a wrong type."""
    if custom_components.is_object(name):  # it is known where it is held, and has its values
        if user_values or preset is not None:
            raise ValueError(f"{name} is an object with its own values: leave {kind} values out")
        return
    preset_values(kind, name, preset)
    takes = {p.name: p.annotation for p in _values(find(kind, name))}
    if "kwargs" in takes:  # classes of other libraries may pass theirs on
        return
    for key, value in user_values.items():
        hint = takes[known(key, list(takes), f"parameter of {KINDS[kind]} {name}")]
        if hint is inspect.Parameter.empty:
            continue
        try:
            TypeAdapter(hint, config=_ANY_TYPE).validate_python(value, strict=True)
        except ValidationError:
            wanted = getattr(hint, "__name__", str(hint))
            raise ValueError(
                f"{key} of {KINDS[kind]} {name} must be {wanted}, got {value!r}"
            ) from None


def preset_values(kind: str, name: str, preset: str | None) -> dict[str, Any]:
    """What a source used for a method."""
    if preset is None:
        return {}
    presets: dict[str, dict[str, Any]] = getattr(find(kind, name), "PRESETS", {})
    return presets[known(preset, sorted(presets), f"preset of {name}")]


def _section(text: str, head: str) -> str:
    """The indented text below a head such as `Paper:`, on one line."""
    match = re.search(rf"^{head}:?\s+(.*(?:\n(?: .*)?)*)", text, re.MULTILINE)
    return " ".join(match[1].split()) if match else ""


def _handed_up(method: type) -> list[inspect.Parameter]:
    """Of a class of pytorch-metric-learning, whose constructors hand `**kwargs` up to its bases."""
    result: dict[str, inspect.Parameter] = {}
    for each in method.__mro__:
        if each.__module__.startswith("pytorch_metric_learning.") and "__init__" in vars(each):
            for p in inspect.signature(each).parameters.values():
                if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
                    result.setdefault(p.name, p)
    return list(result.values())


def _find_in_pml(kind: str, name: str) -> type:
    if kind not in ("losses", "miners"):
        raise ValueError(f"pytorch-metric-learning has losses and miners for us, no {kind}")
    try:
        package = importlib.import_module(f"pytorch_metric_learning.{kind}")
    except ModuleNotFoundError as error:
        raise ValueError(
            f"pml:{name} needs pytorch-metric-learning: {install_command('pml')}"
        ) from error
    classes = [key for key, value in vars(package).items() if inspect.isclass(value)]
    result: type = getattr(package, known(name, sorted(classes), "pytorch-metric-learning class"))
    return result
