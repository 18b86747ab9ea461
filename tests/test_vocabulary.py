"""Identifiers, keys, options and file names are words of the field: the retired ones stay out."""

import ast
import builtins
import re
import tokenize
from collections import Counter
from pathlib import Path

import pytest

from unseen.config.keys import GROUPS, TABLES
from unseen.config.schema import Config

ROOT = Path(__file__).parents[1]
WORDS = """
    settle settled assemble assembled assembly ladder ladders rung rungs climb climbs look
    looks looked judge judges judged judging told tell tells hears heard asked held given
    kept begun found part parts share shares announce announced stranger strangers shelf
    tally guard journal sink sinks tap taps tapped gate gates verdict verdicts arm arms
    variant variants retention suspect suspects suspicion price prices picture pictures
    address addresses optimiser optimisers normalise normalised neighbour neighbours centre
    centres colour colours clock divided beyond further gentle larger mapped facts watch
    descent together said gone store stores generalisation
"""
RETIRED = frozenset(WORDS.split())
ALLOWED = {  # word -> where it is the field's: paths begin so
    "address": ("unseen/search/service",),  # of the internet
    "addresses": ("unseen/search/service",),
    "store": ("unseen/training/distributed.py",),  # of torch
    "tell": (  # Optuna's, a file's
        "unseen/studies/run_queue.py",
        "unseen/training/event_log.py",
        "unseen/data/packed.py",
    ),
    "parts": ("unseen",),  # of a pathlib.Path
    "assemble": ("unseen",),  # rich.Text.assemble
    "variant": (
        "unseen/models/efficientnet_lite.py",
        "unseen/samplers/m_per_class.py",
        "unseen/losses/proxy_repulsion.py",  # the thesis's
    ),
}
FOREIGN = {*dir(builtins), "ipv4_mapped", "FileStore", "Store"}  # names of other libraries
WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+")


def words_of(name: str) -> set[str]:
    return {word.lower() for word in WORD.findall(name)}


def retired_in(name: str, path: str) -> set[str]:
    retired = set() if name in FOREIGN else words_of(name) & RETIRED
    return {word for word in retired if not path.startswith(ALLOWED.get(word, ("/",)))}


def modules() -> list[str]:
    return sorted(str(path.relative_to(ROOT)) for path in (ROOT / "unseen").rglob("*.py"))


@pytest.mark.parametrize("package", sorted({Path(each).parts[1] for each in modules()}))
def test_identifiers(package: str) -> None:
    retired: dict[str, Counter[str]] = {}
    for path in (each for each in modules() if Path(each).parts[1] == package):
        with (ROOT / path).open("rb") as file:
            names = [t.string for t in tokenize.tokenize(file.readline) if t.type == tokenize.NAME]
        if bad := Counter(name for name in names if retired_in(name, path)):
            retired[path] = bad
    assert not retired


def test_names_of_files() -> None:
    files = [path for path in (ROOT / "unseen").rglob("*") if path.suffix != ".pyc"]
    files = [path for path in files if path.is_file()]
    assert not {str(path) for path in files if retired_in(path.stem, str(path.relative_to(ROOT)))}


def test_keys() -> None:
    tables = (GROUPS | TABLES).values()
    keys = [*Config.model_fields, *(key for table in tables for key in table.model_fields)]
    assert not {key for key in keys if words_of(key) & RETIRED}


PROSE = re.compile(
    r"\b(settles?|settled|ladders?|rungs?|climb(s|ed)?|shelf|tally|verdicts?|pictures?|told apart|"
    r"exact cop(y|ies)|near cop(y|ies)|(cannot|can) be judged|looked at every)\b"
)
PAGES = [
    *(ROOT / "docs").rglob("*.md"),
    *(ROOT / "unseen").rglob("*.jinja"),
    *(ROOT / "unseen").rglob("*.html"),
    *(ROOT / "unseen").rglob("*.js"),
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
]
SOURCES_OWN = (
    "docs/sources.md",
    "unseen/reproductions/numbers",
)  # claims, as their papers word them


def is_ours(path: Path) -> bool:
    return not str(path.relative_to(ROOT)).startswith((*SOURCES_OWN, "docs/_build"))


def test_printed_text_and_docstrings() -> None:
    """Every string of the package: what is printed, help of options, docstrings."""
    retired: dict[str, set[str]] = {}
    for path in map(Path, modules()):
        tree = ast.parse((ROOT / path).read_text("utf-8"))
        strings = [n.value for n in ast.walk(tree) if isinstance(n, ast.Constant)]
        words = {
            m[0] for text in strings if isinstance(text, str) for m in PROSE.finditer(text.lower())
        }
        if words:
            retired[str(path)] = words
    assert not retired


def test_pages() -> None:
    texts = {path: path.read_text("utf-8").lower() for path in PAGES if is_ours(path)}
    words = {path: {m[0] for m in PROSE.finditer(text)} for path, text in texts.items()}
    assert not {str(path): each for path, each in words.items() if each}
