"""Faults of every kind on everything that is kept on disk: the table of `docs/faults.md`.

python -m tests.faults                                 all of it, about 15 minutes on two free cores
python -m tests.faults --fraction 0.02                    a sample
python -m tests.faults --only pack --faults kill       one of everything
python -m tests.faults --from trials.jsonl --write     the page, from trials noted before
"""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.faults.injection import GOOD
from tests.faults.page import write
from tests.faults.plan import FAULTS, NUMBERS, ready, subjects, tried
from tests.faults.trials import Bench, noted, noted_before, table


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.faults")
    parser.add_argument("--only", default=";".join(NUMBERS), help="subjects, separated by ;")
    parser.add_argument("--faults", default=",".join(FAULTS))
    parser.add_argument("--kinds", default="", help="of files, separated by ,")
    parser.add_argument("--fraction", type=float, default=1.0, help="of the full numbers")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--notes", type=Path, default=Path(tempfile.mkdtemp()) / "trials.jsonl")
    parser.add_argument("--from", dest="before", type=Path, help="trials that were noted")
    parser.add_argument("--write", action="store_true", help="docs/faults.md")
    request = parser.parse_args()
    result = noted_before(request.before) if request.before else []
    if not request.before:
        ready()
        for subject in [s for s in subjects() if s.name in request.only.split(";")]:
            with tempfile.TemporaryDirectory() as folder:
                bench = Bench(subject, Path(folder) / "bench", request.seed)
                for fault in request.faults.split(","):
                    kinds = request.kinds.split(",") if request.kinds else None
                    result += noted(tried(bench, fault, request.fraction, kinds), request.notes)
    print(table(result))
    if request.write:
        write(result)
    bad = [trial for trial in result if trial.outcome not in GOOD]
    for trial in bad:
        print(
            f"\n{trial.subject}, {trial.fault}, {trial.where}: {trial.outcome}\n  {trial.message}"
        )
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
