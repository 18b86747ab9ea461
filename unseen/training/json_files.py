"""Dataclasses as JSON files: one spelling, checked when they are read."""

import json
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

import unseen

CHECKED = ConfigDict(extra="forbid", strict=True)
OPEN = ConfigDict(extra="allow", strict=True)  # with further keys, whose values are not checked
_UNKNOWN = ("unexpected_keyword_argument", "extra_forbidden")

T = TypeVar("T")
_reader: Callable[[Any], TypeAdapter[Any]] = cache(TypeAdapter)


def spelled(value: Any) -> Any:
    """As JSON has it. Fields that are None by default are left out while they are; what has a
    spelling of its own (`to_dict`) keeps it."""
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if is_dataclass(value) and not isinstance(value, type):
        optional = {field.name for field in fields(value) if field.default is None}
        known = {k: v for k, v in vars(value).items() if v is not None or k not in optional}
        return spelled(known)
    if isinstance(value, Mapping):
        return {key: spelled(each) for key, each in value.items()}
    return [spelled(each) for each in value] if isinstance(value, list | tuple) else value


def text_of(value: Any) -> str:
    """In one order of keys, so that files can be compared byte for byte."""
    return json.dumps(spelled(value), indent=2, sort_keys=True) + "\n"


def parsed(kind: type[T], text: str, name: str, remedy: str = "") -> T:
    """The content of a file. name: of the file; remedy: what to do with a damaged one.

        spelled(result)                    plain values for json.dumps; what is not known has no key
        parsed(Result, text, "a.json")     the same object back; ValueError of one line

    A key that this version does not know was written by a later one, and is refused like a wrong
    type.
    """
    try:
        result: T = _reader(kind).validate_json(text)
        return result
    except ValidationError as error:
        if error.errors()[0]["type"] in _UNKNOWN:
            raise ValueError(
                f"{name}: unseen {unseen.__version__} knows no {_place(error)}. A newer version "
                "has written it: update unseen"
            ) from None
        what = f": {remedy}" if remedy else ""
        raise ValueError(f"{name} is damaged ({first_error(error)}){what}") from None


def first_error(error: ValidationError) -> str:
    """In one line: where, and what is wrong."""
    message = error.errors()[0]["msg"]
    return f"{_place(error)}: {message}" if _place(error) else message


def _place(error: ValidationError) -> str:
    return ".".join(str(key) for key in error.errors()[0]["loc"])
