"""What others may import stays: the names of `unseen` and its packages stand in public_names.txt.

Importing any of it imports nothing else: who asks for a name pays for that name.
"""

import difflib
import importlib
import subprocess
import sys
from pathlib import Path

import unseen

FROZEN = Path(__file__).with_name("public_names.txt")
REFUSING = """
import sys
allowed = {{"unseen", *sys.stdlib_module_names, *{allowed!r}}}
class Refused:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in allowed:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Refused())
"""
NEEDED_BY_TORCH = [
    "typing_extensions",
    "sympy",
    "mpmath",
    "networkx",
    "filelock",
    "fsspec",
    "jinja2",
]
NEEDED_BY_TORCH += ["jinja2", "markupsafe", "setuptools", "_distutils_hack"]
TORCH = ["torch", "torchgen", "functorch", *NEEDED_BY_TORCH]


def alone(code: str, allowed: list[str]) -> None:
    """Runs code in a process that can import nothing else of other packages."""
    whole = REFUSING.format(allowed=allowed) + code
    subprocess.run([sys.executable, "-c", whole], check=True)


def public_names() -> list[str]:
    packages = [name for name in dir(unseen) if name in unseen._PACKAGES]
    result = [f"unseen.{name}" for name in dir(unseen) if name not in packages]
    for package in packages:
        module = importlib.import_module(f"unseen.{package}")
        result += [f"unseen.{package}.{name}" for name in module.__all__]
    return result


def test_public_names_are_as_they_were() -> None:
    changes = [
        line
        for line in difflib.ndiff(FROZEN.read_text().splitlines(), public_names())
        if line[0] in "+-"
    ]
    message = "\n".join(changes)
    assert not changes, (
        f"public names have changed; if so it shall be, {FROZEN.name} too:\n{message}"
    )


def test_every_public_name_is_there() -> None:
    for name in public_names():
        module, _, attribute = name.rpartition(".")
        assert getattr(importlib.import_module(module), attribute) is not None


def test_importing_packages_imports_nothing_else() -> None:
    """Not even torch and numpy; and a `dir` shows what there is."""
    packages = ", ".join(unseen._PACKAGES)
    alone(f"import unseen\nfrom unseen import {packages}\nassert 'MarginLoss' in dir(losses)", [])


def test_losses_need_torch_and_numpy_alone() -> None:
    """Every class of the packages that run inside another registry's loop."""
    code = """
from unseen import losses, miners, samplers, metrics
for package in (losses, miners, samplers, metrics):
    for name in package.__all__:
        getattr(package, name)
"""
    alone(code, [*TORCH, "numpy"])
