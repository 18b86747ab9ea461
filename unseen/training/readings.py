"""Judgements of a run after its training, one file each: `readings/001-unseen_evaluate.json`.

`result.json` is the final evaluation of training. Nothing that is read later replaces it, nor
another reading.
"""

import json
import re
from contextlib import suppress
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

from unseen.training.run_folder import RunFolder

FOLDER = "readings"
OTHER = "on"  # the key of a reading that names data other than the run's own


def note_reading(folder: RunFolder, purpose: str, result: dict[str, Any]) -> None:
    """Writes a reading under the next number that is free."""
    if not folder.writes:
        return
    folder.file(FOLDER).mkdir(exist_ok=True)
    time, name = datetime.now(UTC).isoformat(timespec="seconds"), re.sub(r"\W+", "_", purpose)
    told = json.dumps({"purpose": purpose, "time": time} | result, indent=2, sort_keys=True)
    for number in count(len(_files(folder.path)) + 1):
        with suppress(FileExistsError):  # of another process, a moment ago
            with folder.file(f"{FOLDER}/{number:03d}-{name}.json").open("x") as file:
                file.write(told + "\n")
            return


def result_of(run: Path) -> dict[str, Any] | None:
    """The scores of a run: its final evaluation or, of one that was stopped, the last reading."""
    final = run / "result.json"
    if final.exists():
        return dict(json.loads(final.read_text(encoding="utf-8")))
    for file in reversed(_files(run)):
        try:
            told: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        except json.JSONDecodeError:  # cut off by a crash
            continue
        if OTHER not in told:
            return told
    return None


def _files(run: Path) -> list[Path]:
    return sorted((run / FOLDER).glob("*.json"))
