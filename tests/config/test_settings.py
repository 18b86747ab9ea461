"""`unseen.fit` says every key, with its default and one line, as the tables of a config do."""

import inspect
import re
from typing import Any, get_type_hints

import pytest
from pydantic import BaseModel, TypeAdapter

import unseen
from unseen.config import schema as configs
from unseen.config.keys import GROUPS, WITH_TABLE, Keys
from unseen.config.schema import Config
from unseen.config.settings import Settings

SPELLED: dict[Any, str] = {None: "none", True: "true", False: "false"}
DEFAULTS = Config().flat()
ARGS = re.compile(r"^    (\w+): (.*(?:\n {8}.*)*)", re.MULTILINE)
OF_A_TABLE = "how a gradient moves the weights; `adamw`, `adam` or `sgd`."


def lines_of(table: type[BaseModel]) -> dict[str, str]:
    """A line for each key, from the docstring of its table."""
    section = (inspect.getdoc(table) or "").partition("Args:\n")[2]
    return {match[1]: " ".join(match[2].split()) for match in ARGS.finditer(section)}


def spelled(value: Any) -> str:
    if isinstance(value, dict):
        return str(value.get("name", "{}"))
    if isinstance(value, list):
        return f"[{', '.join(map(str, value))}]"
    return SPELLED[value] if value is None or isinstance(value, bool) else str(value)


def described() -> dict[str, str]:
    """Key -> its line, of all that may be written alone; that of a table which has no name is told
    by its keys."""
    result = {"optimizer": OF_A_TABLE}
    for path, table in {"": Keys, **GROUPS}.items():
        lines = lines_of(table)
        for key in table.model_fields:
            if key in DEFAULTS and not (path and key in WITH_TABLE):
                result.setdefault(key, lines.get(key, ""))
    return {key: line for key, line in result.items() if key != "data"}


def test_every_key_has_a_line() -> None:
    assert not [key for key, line in described().items() if not line.endswith(".")]
    assert set(described()) | {"data"} == set(DEFAULTS)


def test_help_of_fit_shows_every_key_with_its_default() -> None:
    section = (inspect.getdoc(unseen.fit) or "").partition("Settings:\n")[2].partition("\nExample")
    found = re.findall(r"^    (\w+) \((.*?)\): (.*(?:\n {8}.*)*)", section[0], re.MULTILINE)
    told = {key: (default, " ".join(line.split())) for key, default, line in found}
    assert told == {key: (spelled(DEFAULTS[key]), line) for key, line in described().items()}


def test_an_editor_knows_every_key() -> None:
    tables = {"model", "training", "evaluation"}
    assert set(get_type_hints(Settings)) == set(described()) | tables


@pytest.mark.parametrize("key", sorted(described()))
def test_the_type_of_a_setting_takes_its_default(key: str) -> None:
    hint = get_type_hints(Settings)[key]
    TypeAdapter(hint).validate_python(DEFAULTS[key], strict=True)
    if hint is not Any:
        with pytest.raises(ValueError, match="validation error"):
            TypeAdapter(hint).validate_python(object(), strict=True)
    assert configs.make({key: DEFAULTS[key]}) == Config()
