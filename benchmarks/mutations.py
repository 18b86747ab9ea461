"""Breaks every loss and miner in small ways and lists the test that notices; none may survive.

    python benchmarks/mutations.py [--only margin] [--per-method 4] [--all]

A mutant is the package with one change in one method's file: a sign flipped, a term dropped, a mask
swapped, a constant changed, ... Mutants come from the syntax tree of the file, so a new method is
covered without a line here. Each lives in a temporary copy of package and tests, where the method's
own test file runs until its first failure. Without --all, a few mutants of each method are taken,
of as many kinds as it has. The exit code is 1 if a mutant survives, or if a copy without any change
fails.
"""

import argparse
import ast
import copy
import importlib
import io
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytorch_metric_learning.losses  # noqa: F401  (the tests compare with it)
import torch

from unseen.core import registry

ROOT = Path(__file__).parent.parent
KINDS = ("losses", "miners")
NO_CHANGE = "no change"
SECONDS = 60  # a mutant may loop for ever: that is noticed too


@dataclass(frozen=True)
class Mutant:
    """One method's file with one change."""

    kind: str
    name: str
    operator: str
    line: int
    change: str  # before -> after
    source: str


# What an operator makes of a node. A node may have several mutants, or none.


def _both_ways(pairs: Mapping[Any, Any]) -> dict[Any, Any]:
    return {**pairs, **{after: before for before, after in pairs.items()}}


# not < to <=: rounding decides between the two, and no test of real numbers can tell
_FLIPPED = _both_ways(
    {
        ast.Add: ast.Sub,
        ast.Mult: ast.Div,
        ast.BitAnd: ast.BitOr,
        ast.Lt: ast.Gt,
        ast.LtE: ast.GtE,
        ast.Eq: ast.NotEq,
    }
)
_OPPOSITE = _both_ways({"pos": "neg", "positive": "negative", "near": "far"})
_OTHER_CALL = _both_ways({"mean": "sum", "amax": "amin", "argmax": "argmin"}) | {
    "any": "all",
    "square": "abs",
    "softplus": "relu",
}


def flipped(node: ast.AST) -> Iterator[ast.AST]:
    """The opposite of an operation or comparison."""
    if isinstance(node, ast.BinOp) and type(node.op) in _FLIPPED:
        yield ast.BinOp(node.left, _FLIPPED[type(node.op)](), node.right)
    if isinstance(node, ast.Compare) and type(node.ops[0]) in _FLIPPED:
        yield ast.Compare(node.left, [_FLIPPED[type(node.ops[0])]()], node.comparators)


def dropped(node: ast.AST) -> Iterator[ast.AST]:
    """A sum, product or intersection without one of its two parts; a value without its sign, unit
    length, bound or detachment."""
    if isinstance(node, ast.BinOp):
        yield node.left
        if not isinstance(node.op, ast.Div | ast.FloorDiv | ast.Mod | ast.Pow):
            yield node.right
    if isinstance(node, ast.UnaryOp):
        yield node.operand
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "unit":
        yield node.args[0]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        of_zero = [k.value for k in node.keywords if k.arg == "min"]
        if node.func.attr in ("clamp", "clamp_") and of_zero and _is_number(of_zero[0], 0):
            yield node.func.value
        if node.func.attr == "detach":
            yield node.func.value


def opposite(node: ast.AST) -> Iterator[ast.AST]:
    """A positive in place of a negative, and the other way round."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in _OPPOSITE:
        yield ast.Name(_OPPOSITE[node.id], node.ctx)


def other_number(node: ast.AST) -> Iterator[ast.AST]:
    """A number that is one too large, a switch in the other position."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        is_switch = isinstance(node.value, bool)
        yield ast.Constant(not node.value if is_switch else node.value + 1)


def other_call(node: ast.AST) -> Iterator[ast.AST]:
    """A sum instead of a mean, a smallest instead of a largest, ..."""
    if isinstance(node, ast.Attribute) and node.attr in _OTHER_CALL:
        yield ast.Attribute(node.value, _OTHER_CALL[node.attr], node.ctx)


def other_branch(node: ast.AST) -> Iterator[ast.AST]:
    """A condition turned round."""
    if isinstance(node, ast.If | ast.IfExp) and not _compares_sizes(node.test):
        turned = copy.copy(node)
        turned.test = ast.UnaryOp(ast.Not(), node.test)
        yield turned


OPERATORS = [flipped, dropped, opposite, other_branch, other_number, other_call]

# Where no mutant is made, because it would be the same function, or would not even run.

_SAME_RESULT = {
    "dim",
    "keepdim",
    "dtype",
    "device",
    "minlength",
    "use_reentrant",
    "inplace",
    "strict",
}
# a bound of 1 or of a millionth keeps empty or constant batches finite: those are tested for the
# whole catalogue at once, in test_contract.py
_BOUNDS = {"min", "max"}
_NOT_PRICING = {"__init__", "get_extra_state", "set_extra_state"}  # checks and bookkeeping
_ROUNDING = {1e-4, 1e-5, 1e-10, 1e-12}
_NOT_VALUES = {"dtype", "device", "finfo"}  # how a number is kept, not which
_SHAPES = {"new_zeros", "clamp"}  # what they are called with: shapes, and bounds as above
# Equal by their mathematics, by line and change.
EQUIVALENT = {
    # both sides' counts hold the product of positives and negatives
    ("triplets = positive.per_anchor(num_anchors)  # [N], positives times negatives", "opposite"),
    # any number weighs all negatives alike
    ("log_weights.masked_fill_(stranded, 0.0)", "other_number"),
    # without a valid anchor, whatever is drawn is thrown away
    ("draws = self.per_anchor or int(class_size.max()) if len(valid) else 1", "other_number"),
}


def _is_number(node: ast.AST, value: float) -> bool:
    return isinstance(node, ast.Constant) and node.value == value


def _compares_sizes(test: ast.AST) -> bool:
    """Conditions on lengths choose the faster of two equal forms."""
    calls = [n.func for n in ast.walk(test) if isinstance(n, ast.Call)]
    return any(isinstance(f, ast.Name) and f.id == "len" for f in calls)


def _hidden(node: ast.AST, child: ast.AST) -> bool:
    """Whether a part of a node is no place for mutants."""
    hidden = isinstance(child, ast.Raise) or _is_guard(child)
    match node:
        case ast.FunctionDef():  # neither annotations nor decorators
            hidden = not isinstance(child, ast.stmt)
        case ast.AnnAssign():
            hidden = child is node.annotation
        case ast.If() | ast.IfExp() if child is node.test:
            hidden = _compares_sizes(child)
        case ast.Subscript() if child is node.slice:
            hidden = not any(isinstance(n, ast.Name) for n in ast.walk(child))
        case ast.Call(func=ast.Attribute(attr=name)) if name in _SHAPES:
            hidden = child is not node.func
        case ast.keyword():
            hidden = node.arg in _SAME_RESULT | _BOUNDS
    return hidden


def _is_guard(node: ast.AST) -> bool:
    """max(1, ...) for empty batches, and numbers that are there for rounding only."""
    if any(isinstance(n, ast.Attribute) and n.attr in _NOT_VALUES for n in _parts(node)):
        return True
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "max":
        return _is_number(node.args[0], 1)
    return isinstance(node, ast.Constant) and node.value in _ROUNDING


def _parts(node: ast.AST) -> list[ast.AST]:
    """An attribute or quotient and what it is made of; no other nodes."""
    if isinstance(node, ast.Attribute):
        return [node, *_parts(node.value)]
    if isinstance(node, ast.Call):
        return _parts(node.func)
    return _parts(node.left) if isinstance(node, ast.BinOp) else []


def places(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes below one that may be changed."""
    for child in ast.iter_child_nodes(node):
        if not _hidden(node, child):
            yield child
            yield from places(child)


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    """The functions and methods of a file that have to do with its result."""
    for node in tree.body:
        for part in node.body if isinstance(node, ast.ClassDef) else [node]:
            if isinstance(part, ast.FunctionDef) and part.name not in _NOT_PRICING:
                yield part


class _Replace(ast.NodeTransformer):
    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self.old, self.new = old, new

    def visit(self, node: ast.AST) -> ast.AST:
        return self.new if node is self.old else self.generic_visit(node)


def mutants(kind: str, name: str) -> list[Mutant]:
    """Every mutant of a method, in the order of its file."""
    text = (ROOT / "unseen" / kind / f"{name}.py").read_text()
    tree, lines = ast.parse(text), text.splitlines()
    made = []
    for node in [place for function in functions(tree) for place in places(function)]:
        for operator in OPERATORS:
            for new in list(operator(node)):
                line = getattr(node, "lineno", 0)
                if (lines[line - 1].strip(), operator.__name__) in EQUIVALENT:
                    continue
                _Replace(node, new).visit(tree)
                source = ast.unparse(ast.fix_missing_locations(tree))
                _Replace(new, node).visit(tree)
                made.append(Mutant(kind, name, operator.__name__, line, _change(node, new), source))
    return made


def _change(before: ast.AST, after: ast.AST) -> str:
    """Both in short, cut where they agree."""
    old, new = (
        f"if {ast.unparse(n.test)}" if isinstance(n, ast.If) else ast.unparse(n)
        for n in (before, after)
    )
    agree = [a == b for a, b in zip(old, new, strict=False)]
    start = max(0, (agree.index(False) if False in agree else len(agree)) - 20)
    lead = "..." if start else ""
    return " -> ".join(
        lead + text[start : start + 48] + ("..." if len(text) > start + 48 else "")
        for text in (old, new)
    )


def some(of_method: list[Mutant], count: int) -> list[Mutant]:
    """A few mutants: each kind in turn, and of a kind first those from the middle of the file."""
    by_operator: dict[str, list[Mutant]] = {}
    for mutant in of_method:
        by_operator.setdefault(mutant.operator, []).append(mutant)
    chosen: list[Mutant] = []
    while by_operator and len(chosen) < count:
        for operator in list(by_operator):
            left = by_operator[operator]
            chosen.append(left.pop(len(left) // 2))
            if not left:
                del by_operator[operator]
    return chosen[:count]


# Running the tests of a method in a copy of the package.


class _FirstFailure:
    """A pytest plug-in: the name of the test that failed first."""

    def __init__(self) -> None:
        self.test: str | None = None

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed and self.test is None:
            self.test = report.nodeid.split("::", 1)[1]

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed and self.test is None:
            self.test = "its import"


def failing_test(mutant: Mutant) -> str | None:
    """The first test to fail on a mutant, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        no_cache = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / "unseen", root / "unseen", ignore=no_cache)
        shutil.copytree(ROOT / "tests" / mutant.kind, root / "tests" / mutant.kind, ignore=no_cache)
        shutil.copy(ROOT / "tests" / "conftest.py", root / "tests")
        shutil.copy(ROOT / "pyproject.toml", root)
        (root / "unseen" / mutant.kind / f"{mutant.name}.py").write_text(mutant.source)
        import_from(root)
        first = _FirstFailure()
        os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
        signal.signal(signal.SIGALRM, _too_long)
        signal.alarm(SECONDS)
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            # no rewriting of assertions: nobody reads their messages
            options = ["-x", "-q", "--assert=plain", "--rootdir", folder]
            code = pytest.main(
                [*options, f"tests/{mutant.kind}/test_{mutant.name}.py"], plugins=[first]
            )
        signal.alarm(0)
        os.chdir(ROOT)
        return first.test or (None if code == pytest.ExitCode.OK else f"pytest, code {code}")


def import_from(root: Path) -> None:
    """Makes `unseen` mean the copy, although this process has imported the installed one."""
    for module in [m for m in sys.modules if m.split(".")[0] == "unseen"]:
        del sys.modules[module]
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(root))
    os.chdir(root)
    result = importlib.import_module("unseen").__file__
    if result is None or not Path(result).is_relative_to(root):
        raise RuntimeError(f"the mutant must be imported from {root}, not from {result}")


def _too_long(*_: object) -> None:
    raise TimeoutError(f"longer than {SECONDS} s")


def chosen_mutants(only: str | None, count: int | None) -> list[Mutant]:
    """For each method its file without a change, which has to pass, and its mutants."""
    chosen = []
    for kind in KINDS:
        for name in registry.names(kind):
            if only in (None, name):
                unchanged = (ROOT / "unseen" / kind / f"{name}.py").read_text()
                chosen.append(Mutant(kind, name, NO_CHANGE, 0, NO_CHANGE, unchanged))
                of_method = mutants(kind, name)
                chosen += of_method if count is None else some(of_method, count)
    return chosen


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", choices=[n for k in KINDS for n in registry.names(k)])
    parser.add_argument("--per-method", type=int, default=4)
    parser.add_argument("--all", action="store_true", help="every mutant: about half an hour")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    options = parser.parse_args()
    torch.set_num_threads(1)
    chosen = chosen_mutants(options.only, None if options.all else options.per_method)
    killed = survived = 0
    print("| method | mutant | noticed by |\n|---|---|---|")
    # the packages that take long to import are imported once, and every process begins with them
    with multiprocessing.get_context("fork").Pool(options.processes, maxtasksperchild=1) as pool:
        for mutant, test in zip(chosen, pool.imap(failing_test, chosen), strict=True):
            if mutant.operator == NO_CHANGE:
                if test is not None:
                    print(f"{mutant.kind}/{mutant.name} fails without a change: {test}")
                    survived += 1
                continue
            killed, survived = killed + (test is not None), survived + (test is None)
            place = f"{mutant.kind}/{mutant.name} | {mutant.line}: `{mutant.change}`"
            print(f"| {place} | {test or '**SURVIVED**'} |", flush=True)
    print(f"\n{killed} mutants noticed, {survived} not")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
