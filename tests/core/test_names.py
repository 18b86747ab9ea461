"""Names are answered with the nearest; packages of methods show their classes without imports."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from unseen import losses, models
from unseen.core import names
from unseen.core.names import by_front_end, on_command_line

PACKAGE = Path(names.__file__).parents[1]


def test_a_long_list_is_not_recited() -> None:
    words = [f"word{number}" for number in range(500)]
    message = names.advice("nothing like it", words)
    assert message.endswith("(500 in all)")
    assert message.count(",") < 60


def test_classes_are_found_in_their_files() -> None:
    assert losses.MultiSimilarityLoss().beta == 50.0
    assert "ProxyNcaLoss" in dir(losses)
    assert models.EmbeddingNetwork.__module__ == "unseen.models.network"


def test_a_misspelt_class_is_answered() -> None:
    with pytest.raises(AttributeError, match="did you mean MultiSimilarity"):
        _ = losses.MultiSimilarty


def test_a_misspelt_path_is_answered_part_by_part(tmp_path: Path) -> None:
    (tmp_path / "Photos of 2024" / "birds").mkdir(parents=True)
    (tmp_path / "Photos of 2024" / "trees-margin-seed0").mkdir()
    (tmp_path / "runs").write_text("a file")
    for wrong, right in [
        ("photos of 2024/birds", "Photos of 2024/birds"),
        ("Photos of 2042/brids", "Photos of 2024/birds"),
        ("Photos of 2024/trees", "Photos of 2024/trees-margin-seed0"),
    ]:
        assert names.near_path(tmp_path / wrong) == f"; did you mean {tmp_path / right}?"
    for path in ("Photos of 2024", "Photos of 2024/maps", "nothing like it", "runs/brids"):
        assert names.near_path(tmp_path / path) == ""


def texts(tree: ast.AST) -> Iterator[str]:
    """Every text of a module but docstrings, lists of words, and what is said by the front end."""
    passed: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == by_front_end.__name__:
            passed.update(ast.walk(node))
        if isinstance(node, ast.Expr):  # a docstring
            passed.add(node.value)
        if isinstance(node, ast.List | ast.Tuple):  # words of a command
            passed.update(node.elts)
        if isinstance(node, ast.JoinedStr) and node not in passed:
            passed.update(node.values)
            parts = (getattr(value, "value", "{}") for value in node.values)
            yield "".join(part if isinstance(part, str) else "{}" for part in parts)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in passed:
            yield node.value


# there is no call of Python's own whose argument a message could name instead
COMMANDS = ("cli", "search/service")
NO_MESSAGE = re.compile(r"`[^`]*`|^unseen .*|var\(--\w+\)")  # a command, a style sheet's colour


def test_messages_that_python_can_meet_name_no_options() -> None:
    result = {}
    assert (PACKAGE / "api.py").exists()
    for path in sorted(PACKAGE.rglob("*.py")):
        place = path.relative_to(PACKAGE).as_posix()
        if not place.startswith(COMMANDS):
            tree = ast.parse(path.read_text())
            message = [NO_MESSAGE.sub("", text) for text in texts(tree)]
            named = [text for text in message if re.search(r"(?<!\w)--[a-z]", text)]
            result |= {place: named} if named else {}
    assert not result


def test_a_message_names_what_its_reader_can_give() -> None:
    assert by_front_end("--out", "out") == "out"
    with on_command_line():
        assert by_front_end("--out", "out") == "--out"
    assert by_front_end("--out", "out") == "out"
