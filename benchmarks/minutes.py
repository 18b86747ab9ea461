"""Whether budgets are kept: how late runs with `--minutes` end.

    python benchmarks/minutes.py path/to/pictures                    3 3 3 3 3 10 10 10 30 30
    python benchmarks/minutes.py path/to/pictures --minutes 3 10     chosen ones
    python benchmarks/minutes.py path/to/pictures --words seed=1

Each run is the command a user gives, in a process of its own with an empty folder and cache, from
its start to its report. Every line has the plan's minutes, those that were taken, how late that is,
what the clock decided, and recall@1. To be kept: at most 15 % late in 10 of 10, on a machine that
does nothing else.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from unseen.training.events import ClockDecided
from unseen.training.journal import read

USUAL = [3.0] * 5 + [10.0] * 3 + [30.0] * 2
LATE = 0.15


def run(data: str, minutes: float, words: list[str], out: Path) -> tuple[float, str]:
    """Minutes that a run took, and what came of it in words."""
    command = [sys.executable, "-m", "unseen", "train", data, "--minutes", str(minutes), *words]
    began = time.monotonic()
    subprocess.run([*command, "--out", str(out / "run"), "--cache", str(out / "cache")], check=True)
    taken = (time.monotonic() - began) / 60
    result = json.loads((out / "run/result.json").read_text())
    decided = [e for e in read(out / "run/journal.jsonl") if isinstance(e, ClockDecided)]
    ladder = result["selection"].get("ladder", {"kept": "head"})
    recall = result["scores"]["trained"]["metrics"]["recall@1"]["value"]
    told = "; ".join(f"{event.what} = {event.decided}" for event in decided) or "nothing"
    return taken, f"{ladder['kept']} kept, recall@1 {100 * recall:.1f}, by the clock: {told}"


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("data")
    arguments.add_argument("--minutes", type=float, nargs="+", default=USUAL)
    arguments.add_argument("--words", nargs="*", default=[])
    given = arguments.parse_args()
    kept = 0
    for minutes in given.minutes:
        with tempfile.TemporaryDirectory(prefix="unseen-minutes-") as folder:
            taken, told = run(given.data, minutes, given.words, Path(folder))
        late = taken / minutes - 1
        kept += late <= LATE
        print(f"{minutes:5g} minutes: {taken:5.1f} taken, {100 * late:+5.1f} %  {told}", flush=True)
    print(f"{kept} of {len(given.minutes)} at most {100 * LATE:.0f} % late")


if __name__ == "__main__":
    main()
