"""Docstrings of the methods of the catalogue: parameters are described, the example runs."""

import doctest
import inspect
import re

import pytest

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
