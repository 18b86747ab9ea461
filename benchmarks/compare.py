"""What got slower between two files of `make bench`: python benchmarks/compare.py A.json B.json

A row is slower where the middle halves of its runs do not meet, and lies within the noise where
they do. Ends with 1 where a row got slower.
"""

import argparse
from pathlib import Path

from timing import Row, read_rows


def change(before: Row, after: Row) -> float:
    """How many times as good it has become."""
    better = after.value / before.value
    return better if before.higher_is_better else 1 / better


def is_slower(before: Row, after: Row) -> bool:
    return after.high < before.low if before.higher_is_better else after.low > before.high


def compare(before: list[Row], after: list[Row]) -> tuple[list[str], int]:
    """A line for each row that got slower, or is missing on one side; how many got slower."""
    old, new = ({row.work: row for row in rows} for rows in (before, after))
    slower = [work for work in old if work in new and is_slower(old[work], new[work])]
    lines = [
        f"slower: {work}: {old[work].value:.3g} -> {new[work].value:.3g} {new[work].unit} "
        f"({change(old[work], new[work]):.2f} of before)"
        for work in slower
    ]
    lines += [f"only before: {work}" for work in old if work not in new]
    lines += [f"only after: {work}" for work in new if work not in old]
    return lines, len(slower)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    options = parser.parse_args()
    for path in (options.before, options.after):
        if not path.exists():
            parser.error(f"{path} is not there: make bench writes benchmarks/bench.json")
    before = read_rows(options.before)
    lines, slower = compare(before, read_rows(options.after))
    print("\n".join([*lines, f"{slower} of {len(before)} rows got slower"]))
    return int(slower > 0)


if __name__ == "__main__":
    raise SystemExit(main())
