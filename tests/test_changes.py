"""What the next version changes lies in files that towncrier finds and puts where it belongs."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["towncrier"]


def test_each_change_has_a_kind() -> None:
    kinds = "|".join(kind["directory"] for kind in SETTINGS["type"])
    named = re.compile(rf"(\+[\w-]+|\d+)\.({kinds})\.md")
    files = {path.name for path in (ROOT / SETTINGS["directory"]).iterdir()}
    assert not {name for name in files - set(SETTINGS["ignore"]) if not named.fullmatch(name)}


def test_the_changelog_has_a_place_for_it() -> None:
    assert (ROOT / SETTINGS["filename"]).read_text().count(SETTINGS["start_string"]) == 1
