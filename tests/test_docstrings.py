"""Docstrings of the methods of the catalogue: parameters are described, the example runs."""

import doctest
import importlib
import inspect
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from unseen.core import registry

KINDS = [kind for kind in registry.KINDS if kind != "data"]
METHODS = [(kind, name) for kind in KINDS for name in registry.names(kind)]


@pytest.mark.parametrize(("kind", "name"), METHODS)
def test_the_example_runs(kind: str, name: str) -> None:
    (example,) = doctest.DocTestFinder(recurse=False).find(registry.find(kind, name), globs={})
    assert 2 <= len(example.examples) <= 5
    assert not doctest.DocTestRunner().run(example).failed


@pytest.mark.parametrize(("kind", "name"), METHODS)
def test_every_parameter_is_described(kind: str, name: str) -> None:
    method = registry.find(kind, name)
    section = re.search(r"^Args:\n((?: .*\n|\n)*)", registry.text(kind, name), re.MULTILINE)
    described = re.findall(r"^    (\w+): ", section[1], re.MULTILINE) if section else []
    parameters = [p.name for p in registry.parameters(method) if p.name not in ("args", "kwargs")]
    assert described == parameters


@pytest.mark.parametrize(("kind", "name"), METHODS)
def test_the_module_says_what_it_is_in_one_line(kind: str, name: str) -> None:
    module = inspect.getmodule(registry.find(kind, name))
    assert module
    assert module.__doc__
    assert "\n" not in module.__doc__


NAMES = (Path(__file__).parent / "public_names.txt").read_text().split()
OF_RUNS = [f"unseen.{name}" for name in ("fit", "Run", "load", "compare", "diagnose")]


def public(name: str) -> Any:
    module, _, rest = name.partition(".")
    found: Any = importlib.import_module(module)
    for word in rest.split("."):
        found = getattr(found, word)
    return found


def examples(name: str) -> doctest.DocTest:
    (example,) = doctest.DocTestFinder(recurse=False).find(
        public(name), name, globs={"Path": Path, "torch": torch}
    )
    assert example.examples, f"{name} has no example"
    return example


@pytest.mark.parametrize("name", [name for name in NAMES if callable(public(name))])
def test_every_public_name_explains_its_arguments(name: str) -> None:
    text = inspect.getdoc(public(name)) or ""
    parameters = set(inspect.signature(public(name)).parameters) - {"args", "kwargs", "settings"}
    section = re.search(r"^Args:\n((?: .*\n|\n)*)", text + "\n", re.MULTILINE)
    described = re.findall(r"^    (\w+): ", section[1], re.MULTILINE) if section else []
    assert parameters <= set(described)
    assert examples(name)


@pytest.mark.parametrize(
    "name", [n for n in NAMES if callable(public(n)) and n not in OF_RUNS and n.count(".") == 1]
)
def test_the_example_of_a_public_name_runs(name: str) -> None:
    assert not doctest.DocTestRunner().run(examples(name)).failed


def test_the_examples_of_a_run_follow_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in OF_RUNS:
        assert not doctest.DocTestRunner().run(examples(name)).failed
