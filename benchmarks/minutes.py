"""Whether budgets are kept: how late runs with `--minutes` end.

    python benchmarks/minutes.py path/to/images                    3 3 3 3 3 10 10 10 30 30
    python benchmarks/minutes.py path/to/images --minutes 3 10     chosen ones
    python benchmarks/minutes.py path/to/images --words seed=1
    python benchmarks/minutes.py path/to/images --minutes 3 --kills 2

Each run is the command a user gives, in a process of its own with an empty folder and cache, from
its start to its report. Every line has the plan's minutes, those that were taken, how late that is,
what the clock decided, and recall@1. To be kept: at most 15 % late in 10 of 10, on a machine that
does nothing else.

`--kills` does each run once more, with the speeds and frozen layers that the first has kept, killed
so often on its way and taken up again: its weights are to be those of the undisturbed one. A head
alone is trained from kept layers before the first kill: give minutes enough for more depth.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from unseen.training.event_log import read
from unseen.training.events import BudgetDecided

USUAL = [3.0] * 5 + [10.0] * 3 + [30.0] * 2
LATE = 0.15


def command(data: str, minutes: float, words: list[str], out: Path) -> list[str]:
    request = ["train", data, "--minutes", str(minutes), *words]
    return [sys.executable, "-m", "unseen", *request, "--out", str(out)]


def cached(folder: Path) -> dict[str, str]:
    """The environment of a run whose cache is empty at first."""
    return os.environ | {"UNSEEN_CACHE": str(folder / "cache")}


def run(data: str, minutes: float, words: list[str], folder: Path) -> tuple[float, str]:
    """Minutes that a run took, and what came of it in words."""
    began, out = time.monotonic(), folder / "run"
    subprocess.run(command(data, minutes, words, out), env=cached(folder), check=True)
    taken = (time.monotonic() - began) / 60
    result = json.loads((out / "result.json").read_text())
    decided = [e for e in read(out / "events.jsonl") if isinstance(e, BudgetDecided)]
    stages = result["selection"].get("stages", {"selected": "head"})
    recall = result["scores"]["trained"]["metrics"]["recall@1"]["value"]
    message = "; ".join(f"{event.training} {event.epochs}" for event in decided) or "nothing"
    return taken, f"{stages['selected']} kept, recall@1 {100 * recall:.1f}, by the clock: {message}"


def run_with_kills(
    data: str, minutes: float, words: list[str], folder: Path, kills: int, taken: float
) -> str:
    """Another run beside one that took so many minutes, stopped and begun again on its way."""
    request = command(data, minutes, words, folder / "killed")
    killed = 0
    for _ in range(kills):
        process = subprocess.Popen(request, env=cached(folder))
        try:
            process.wait(60 * taken / (kills + 2))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            killed += 1
    subprocess.run(request, check=True)
    weights = [(folder / out / "weights.safetensors").read_bytes() for out in ("run", "killed")]
    same = "the same weights" if weights[0] == weights[1] else "OTHER WEIGHTS"
    return f"killed {killed} of {kills} times: {same}"


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("data")
    arguments.add_argument("--minutes", type=float, nargs="+", default=USUAL)
    arguments.add_argument("--words", nargs="*", default=[])
    arguments.add_argument("--kills", type=int, default=0)
    given = arguments.parse_args()
    kept = 0
    for minutes in given.minutes:
        with tempfile.TemporaryDirectory(prefix="unseen-minutes-") as folder:
            what = (given.data, minutes, given.words, Path(folder))
            taken, message = run(*what)
            if given.kills:
                message += f"; {run_with_kills(*what, given.kills, taken)}"
        late = taken / minutes - 1
        kept += late <= LATE
        print(
            f"{minutes:5g} minutes: {taken:5.1f} taken, {100 * late:+5.1f} %  {message}", flush=True
        )
    print(f"{kept} of {len(given.minutes)} at most {100 * LATE:.0f} % late")


if __name__ == "__main__":
    main()
