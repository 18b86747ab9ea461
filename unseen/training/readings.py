"""Judgements of a run after its training, one file each: `readings/001-unseen_evaluate.json`.

`result.json` is the final evaluation of training. Nothing that is read later replaces it, nor
another reading.
"""

import hashlib
import json
import re
from contextlib import suppress
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

from unseen.training import checksums
from unseen.training.run_folder import RunFolder

FOLDER = "readings"
OTHER = "on"  # the key of a reading that names data other than the run's own


def note_reading(folder: RunFolder, purpose: str, result: dict[str, Any]) -> None:
    """Writes a reading under the next number that is free."""
    if not folder.writes:
        return
    folder.file(FOLDER).mkdir(parents=True, exist_ok=True)
    time, name = datetime.now(UTC).isoformat(timespec="seconds"), re.sub(r"\W+", "_", purpose)
    told = json.dumps({"purpose": purpose, "time": time} | result, indent=2, sort_keys=True)
    content = f"{told}\n".encode()
    for number in count(len(_files(folder.path)) + 1):
        with suppress(FileExistsError):  # of another process, a moment ago
            file = f"{FOLDER}/{number:03d}-{name}.json"
            with folder.file(file).open("xb") as stream:
                stream.write(content)
            checksums.expect(folder.path, file, hashlib.sha256(content).hexdigest())
            return


def result_of(run: Path) -> dict[str, Any] | None:
    """The scores of a run: its final evaluation or, of one that was stopped, the last reading."""
    if (run / "result.json").exists() or checksums.must_exist(run, "result.json"):
        final = checksums.checked(run, "result.json")
        return dict(json.loads(final.read_text(encoding="utf-8")))
    for file in reversed(_files(run)):
        checksums.checked(run, f"{FOLDER}/{file.name}")
        try:
            stored: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        except json.JSONDecodeError:  # cut off by a crash
            continue
        if OTHER not in stored:
            return stored
    return None


def _files(run: Path) -> list[Path]:
    return sorted((run / FOLDER).glob("*.json"))
