"""The table of `make bench`, and what got slower between two of them."""

import json
import subprocess
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


def row(work: str, value: float, spread: float = 0.1, higher_is_better: bool = True) -> dict:
    return {
        "work": work,
        "peer": "somebody",
        "value": value,
        "low": value - spread,
        "high": value + spread,
        "goal": 4.0,
        "unit": "times",
        "higher_is_better": higher_is_better,
    }


def compare(folder: Path, before: list[dict], after: list[dict]) -> subprocess.CompletedProcess:
    paths = [folder / "a.json", folder / "b.json"]
    for path, rows in zip(paths, (before, after), strict=True):
        path.write_text(json.dumps(rows))
    command = [sys.executable, BENCHMARKS / "compare.py", *paths]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_what_got_slower_is_named_and_noise_is_not(tmp_path: Path) -> None:
    before = [row("a", 4.0), row("b", 4.0), row("late", 40, higher_is_better=False), row("gone", 1)]
    after = [row("a", 3.0), row("b", 3.9), row("late", 60, higher_is_better=False), row("new", 1)]
    done = compare(tmp_path, before, after)
    assert done.returncode == 1, done.stderr
    assert "slower: a: 4 -> 3 times (0.75 of before)" in done.stdout
    assert "slower: late: 40 -> 60 times (0.67 of before)" in done.stdout
    assert "slower: b" not in done.stdout
    assert "only before: gone" in done.stdout
    assert "only after: new" in done.stdout
    assert "2 of 4 rows got slower" in done.stdout
    assert compare(tmp_path, after, after).returncode == 0


def test_the_table_stands_at_the_top_of_the_benchmarks(tmp_path: Path) -> None:
    """One row for each figure of bench.json, with its goal, and nothing that nobody measured."""
    rows = json.loads((BENCHMARKS / "bench.json").read_text())
    top, _, rest = (BENCHMARKS / "README.md").read_text().partition("<!-- end of make bench -->")
    assert rest
    assert "##" not in top
    lines = [line for line in top.splitlines() if line.startswith("| ")][1:]
    assert [line.split(" | ")[0].removeprefix("| ") for line in lines] == [r["work"] for r in rows]
    for line, result in zip(lines, rows, strict=True):
        more = result["value"] >= result["goal"]
        reached = more if result["higher_is_better"] else result["value"] <= result["goal"]
        assert line.endswith("| reached |" if reached else "| not reached |")
