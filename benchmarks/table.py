"""Every comparison, one process a row, into the table of benchmarks/README.md and bench.json.

    make bench         all rows but the million, under 15 minutes on a machine that is quiet
    make bench-full    with the million
    python benchmarks/table.py --only losses     some rows again; the others stay as they were
    python benchmarks/table.py --features FILE   with the rows of image features (search.py)

Each script times its two sides in turn (timing.py); a row says the median of the runs' ratios and
the middle half of them, and where the goal is missed what its operations or bytes alone would
take, measured in the same process. What got slower since another file: benchmarks/compare.py.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

from timing import Row, read_rows

HERE = Path(__file__).parent
README, RESULTS = HERE / "README.md", HERE / "bench.json"
BEGIN, END = "<!-- made by make bench -->", "<!-- end of make bench -->"
COMMANDS = [  # each in a process of its own, and gives one row or a few
    ["losses.py", "--size", "b=112", "--repeats", "60"],
    ["losses.py", "--size", "b=512"],
    ["search.py", "--repeats", "5"],
    ["evaluation.py", "cub", "--threads", "1"],
    ["evaluation.py", "sop", "--threads", "1"],
    ["serve.py", "--seconds", "40"],
]
FEATURES = ["search.py", "--repeats", "5", "--features"]
MILLION = ["evaluation.py", "million"]


def line(row: Row) -> str:
    shown = f"{row.low:.3g} to {row.high:.3g}" if row.low != row.high else ""
    goal = f"{'at least' if row.higher_is_better else 'at most'} {row.goal:g}"
    reached = "reached" if row.reached else "not reached"
    figure = f"{row.value:.3g} {row.unit}"
    limit = "" if row.reached else row.limit
    return f"| {row.work} | {row.peer} | {figure} | {shown} | {goal} | {limit} | {reached} |"


def table(rows: list[Row]) -> str:
    head = [
        "| work | peer | figure | middle half of the runs | goal | limit, where it is missed | |",
        "|---|---|---:|---:|---:|---|---|",
    ]
    return "\n".join([*head, *map(line, rows)])


def into_readme(rows: list[Row]) -> None:
    before, _, rest = README.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    README.write_text(f"{before}{BEGIN}\n\n{table(rows)}\n\n{END}{after}")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--full", action="store_true", help="with the million")
    parser.add_argument("--only", default="", help="commands that contain this")
    parser.add_argument("--features", type=Path, help="a file of `unseen data features`")
    options = parser.parse_args()
    commands = [*COMMANDS, MILLION] if options.full else COMMANDS
    if options.features is not None:
        commands = [*commands, [*FEATURES, str(options.features)]]
    failed = 0
    for words in commands:
        if options.only not in " ".join(words):
            continue
        print(f"{' '.join(words)} (load {os.getloadavg()[0]:.1f})", flush=True)
        began = time.monotonic()
        request = [sys.executable, str(HERE / words[0]), *words[1:], "--rows", str(RESULTS)]
        failed += subprocess.run(request, check=False).returncode != 0
        print(f"{time.monotonic() - began:.0f} s\n", flush=True)
    rows = read_rows(RESULTS)
    into_readme(rows)
    print(table(rows))
    return int(failed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
