"""Values of a config as TOML, and back. TOML has no null: nothing is written as the word `none`."""

import tomllib
from pathlib import Path
from typing import Any

import tomli_w

from unseen.core.names import near_path

NOTHING = "none"


def dump(values: dict[str, Any]) -> str:
    """Values as TOML."""
    return tomli_w.dumps(_swapped(values, None, NOTHING))


def with_nothing(values: dict[str, Any]) -> dict[str, Any]:
    """The word `none` as nothing, anywhere in a config."""
    swapped: dict[str, Any] = _swapped(values, NOTHING, None)
    return swapped


def parse(text: str) -> dict[str, Any]:
    """The values of a TOML text."""
    try:
        return with_nothing(tomllib.loads(text))
    except RecursionError:
        raise tomllib.TOMLDecodeError("it is nested too deeply") from None


def load(path: Path) -> dict[str, Any]:
    """The values of a TOML file; a file that cannot be read says why in one line."""
    try:
        return parse(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ValueError(f"no such config file: {path}{near_path(path)}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not valid TOML: {error}") from error


def _swapped(value: Any, old: Any, new: Any) -> Any:
    """TOML has no null: nothing is written as the word `none`, anywhere in a config."""
    if isinstance(value, dict):
        return {key: _swapped(item, old, new) for key, item in value.items()}
    if isinstance(value, list):
        return [_swapped(item, old, new) for item in value]
    return new if isinstance(value, str | None) and value == old else value
