"""Commands that are printed for the user to run survive a path with spaces."""

import ast
import re
from pathlib import Path

from unseen.cli.main import COMMANDS

PACKAGE = Path(__file__).parents[2] / "unseen"
COMMAND = re.compile(rf"unseen (?:{'|'.join(COMMANDS)})(?: [\w./-]+)* $")


def unquoted(source: str) -> list[str]:
    """F-strings that put a value after a command as it is."""
    result = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.JoinedStr):
            continue
        before = ""
        for part in node.values:
            if isinstance(part, ast.Constant):
                before += str(part.value)
            elif COMMAND.search(before) and "shlex" not in ast.unparse(part):
                result.append(ast.unparse(node))
    return result


def test_what_follows_a_command_is_quoted() -> None:
    assert unquoted('f"Next: unseen train {out}"')
    assert unquoted('f"`unseen index build RUN IMAGES --out {folder}`"')
    assert not unquoted('f"Next: unseen train {shlex.quote(str(out))}"')
    sources = sorted(PACKAGE.rglob("*.py"))
    assert sources
    assert {path.name: message for path in sources if (message := unquoted(path.read_text()))} == {}
