"""The house keeps its order: imports point upwards; a method is one file, class, name and test."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from unseen import catalogue
from unseen.names import class_name

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "unseen"
SOURCES = sorted(PACKAGE.rglob("*.py"))
# Data flows downwards; a module imports only from its own line or lines above it.
ORDER = [
    "torchvision_operators",
    "extras",
    "files",
    "addresses",
    "pages",
    "names",
    "outside",
    "catalogue",
    "derivatives",
    "geometry",
    "hinges",
    "relevance",
    "tuples",
    "comparison",
    "contracts",
    "statistics",
    "neighbours",
    "data",
    "samplers",
    "networks",
    "miners",
    "losses",
    "memory",
    "prism",
    "nested",
    "regularizers",
    "objective",
    "metrics",
    "diagnostics",
    "evaluation",
    "classical",
    "protocols",
    "training",
    "config_tables",
    "config_toml",
    "config_keys",
    "config",
    "relating",
    "rungs",
    "shares",
    "settle",
    "find_data",
    "assemble",
    "experiment",
    "reports",
    "export",
    "estimator",
    "studies",
    "search",
    "cli",
    "api",
]
METHOD_KINDS = [kind for kind in catalogue.KINDS if kind != "data"]
METHODS = [(kind, name) for kind in METHOD_KINDS for name in catalogue.names(kind)]


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_rooms(path: Path) -> set[str]:
    rooms = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            dotted = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            dotted = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        rooms |= {name.split(".")[1] for name in dotted if name.startswith("unseen.")}
    return rooms


def test_imports_point_upwards() -> None:
    outside = [PACKAGE / "__init__.py", PACKAGE / "__main__.py"]
    for path in set(SOURCES) - set(outside):
        allowed = ORDER[: ORDER.index(room(path)) + 1]
        below = imported_rooms(path) - set(allowed)
        assert not below, f"{path} imports from below itself: {sorted(below)}"


MOST_IMPORTED = {"cli.train": 86, "experiment.run": 122}  # modules, not counting packages


@pytest.mark.parametrize("room", MOST_IMPORTED)
def test_training_imports_few_modules(room: str) -> None:
    """What a run may need, and this one does not ask for, is imported when it is asked for: by a
    package's table of names (`names.lazy`), or by the catalogue."""
    code = (
        f"import sys, unseen.{room}\n"
        "for name, module in sorted(sys.modules.items()):\n"
        "    if name.startswith('unseen.') and not hasattr(module, '__path__'): print(name)"
    )
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    imported = found.stdout.splitlines()
    assert len(imported) <= MOST_IMPORTED[room], "\n".join(imported)


CONTRACTS = PACKAGE / "contracts.py"


def imported_from_contracts(path: Path) -> set[str]:
    nodes = [n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.ImportFrom)]
    return {a.name for n in nodes if n.module == "unseen.contracts" for a in n.names}


def test_every_contract_is_asked_for() -> None:
    """A protocol that no module names is a promise nobody keeps; those behind a function of the
    same page (`annotations_of`) are asked for by it."""
    page = ast.parse(CONTRACTS.read_text())
    classes = {node.name for node in page.body if isinstance(node, ast.ClassDef)}
    functions = [node for node in page.body if isinstance(node, ast.FunctionDef)]
    used = {n.id for f in functions for n in ast.walk(f) if isinstance(n, ast.Name)}
    used |= {n for p in set(SOURCES) - {CONTRACTS} for n in imported_from_contracts(p)}
    assert not classes - used


def test_data_sets_are_asked_by_their_contract() -> None:
    """Abilities of data sets stand in the contracts, and are asked for with isinstance."""
    asking = re.compile(r"(?:get|has)attr\((?:self\.|context\.)?_?dataset\b")
    assert not {str(path) for path in SOURCES if asking.search(path.read_text())}


def test_no_file_over_400_lines() -> None:
    lengths = {str(path): len(path.read_text().splitlines()) for path in SOURCES}
    assert not {path: length for path, length in lengths.items() if length > 400}


def test_every_room_is_in_the_order() -> None:
    rooms = {room(path) for path in SOURCES} - {"__init__", "__main__"}
    assert rooms <= set(ORDER)


@pytest.mark.parametrize(("kind", "name"), METHODS)
def test_a_method_is_one_file_one_class_one_name_one_test(kind: str, name: str) -> None:
    method = catalogue.find(kind, name)
    assert method.__name__ == class_name(name)
    assert method.__module__ == f"unseen.{kind}.{name}"
    assert (ROOT / "tests" / kind / f"test_{name}.py").exists()


@pytest.mark.parametrize(("kind", "name"), METHODS)
def test_a_method_explains_itself(kind: str, name: str) -> None:
    entry = catalogue.entry(kind, name)
    assert entry.line.endswith(".")
    assert catalogue.find(kind, name).__doc__


@pytest.mark.parametrize(("kind", "name"), METHODS)
def test_a_constructor_has_at_most_six_values_of_its_own(kind: str, name: str) -> None:
    given_by_the_run = {
        "num_classes",
        "embedding_size",
        "seed",
        "items",
        "labels",
        "batch_size",
        "lr",
        "switch",
        "make_loss",
        "miner",
        "num_channels",
        "num_features",
        "shards",
    }
    own = catalogue.parameters(catalogue.find(kind, name))
    assert len([p for p in own if p.name not in given_by_the_run]) <= 6


def test_nothing_is_registered_by_hand() -> None:
    """Kinds are folders: what the catalogue lists is what lies on disk."""
    for kind in METHOD_KINDS:
        files = {p.stem for p in (PACKAGE / kind).glob("*.py")} - {"__init__", "base"}
        assert files == set(catalogue.names(kind))
