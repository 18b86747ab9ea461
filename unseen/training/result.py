"""The scores of a run: `result.json` of its folder, and what is read of it later."""

import hashlib
import math
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import field, replace
from itertools import count
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator
from pydantic.dataclasses import dataclass

from unseen.core.files import now
from unseen.evaluation import training_gain as gains
from unseen.evaluation.evaluate import Evaluation, Score
from unseen.evaluation.findings import Finding
from unseen.evaluation.long_tail import Third
from unseen.evaluation.training_gain import Extent, Gain, Start
from unseen.training import checksums, json_files
from unseen.training.json_files import CHECKED
from unseen.training.manifest import DataMetadata, SplitMetadata
from unseen.training.run_folder import RunFolder
from unseen.training.selected_weights import Selection

FILE = "result.json"
READINGS = "readings"


def _nan_for_null(values: Any) -> Any:
    if not isinstance(values, dict):
        return values
    return {key: math.nan if value is None else value for key, value in values.items()}


@dataclass(frozen=True, config=CHECKED)
class IntervalKind:
    """What the intervals of a row are."""

    over: str = "queries"
    level: float = 0.95
    resamples: int = 0


@dataclass(frozen=True, config=CHECKED)
class Row:
    """The scores of one descriptor: of the trained network, or of what it is compared with."""

    metrics: dict[str, Annotated[Score, BeforeValidator(_nan_for_null)]]
    counts: dict[str, int] = field(default_factory=dict)
    interval: IntervalKind = field(default_factory=IntervalKind)


@dataclass(frozen=True, config=CHECKED)
class Result:
    """The scores of a run: `result.json` of its folder, and what is read of it later."""

    scores: dict[str, Row]
    config_hash: str = ""
    data: DataMetadata = field(default_factory=DataMetadata)
    split: SplitMetadata = field(default_factory=SplitMetadata)
    seed: int | None = None
    selection: Selection | None = None
    unreadable_images: int | None = None
    start: Start | None = None
    gain: dict[str, Gain] | None = None
    extent: Extent | None = None
    thirds: list[Third] | None = None
    monitor: str | None = None
    purpose: str | None = None
    time: str | None = None
    on: str | None = None

    def score(self, row: str, metric: str) -> Score | None:
        """None where there is no number."""
        result = self.scores[row].metrics.get(metric) if row in self.scores else None
        return None if result is None or math.isnan(result.value) else result

    @property
    def start_title(self) -> str:
        """What the row before training is called."""
        return gains.UNTRAINED if self.start is None else self.start.title

    @property
    def conclusion(self) -> Finding | None:
        """The headline: what training added; None where it is not known."""
        if self.start is None:
            return None
        keeps_start = self.selection is not None and self.selection.epoch == -1
        return gains.conclusion(self.start, self.gain or {}, keeps_start, self.extent)


def rows_of(scores: Mapping[str, Evaluation]) -> dict[str, Row]:
    """As they are stored: rounded, without the values per query."""
    return {
        name: json_files.parsed(Row, json_files.text_of(each), name)
        for name, each in scores.items()
    }


def read_result(folder: RunFolder) -> Result:
    """The final evaluation."""
    return folder.read(FILE, Result)


def write_result(folder: RunFolder, result: Result) -> None:
    folder.write_json(FILE, result)


def note_reading(folder: RunFolder, purpose: str, result: Result, on: str | None = None) -> None:
    """Writes a reading under the next number that is free. on: other data that were evaluated."""
    if not folder.writes:
        return
    folder.file(READINGS).mkdir(parents=True, exist_ok=True)
    name = re.sub(r"\W+", "_", purpose)
    content = json_files.text_of(replace(result, purpose=purpose, time=now(), on=on)).encode()
    for number in count(len(_files(folder.path)) + 1):
        with suppress(FileExistsError):  # of another process, a moment ago
            file = f"{READINGS}/{number:03d}-{name}.json"
            with folder.file(file).open("xb") as stream:
                stream.write(content)
            checksums.expect(folder.path, file, hashlib.sha256(content).hexdigest())
            return


def result_of(run: Path) -> Result | None:
    """The scores of a run: its final evaluation or, of one that was stopped, the last reading."""
    folder = RunFolder(run)
    if folder.file(FILE).exists() or checksums.must_exist(run, FILE):
        return read_result(folder)
    for file in reversed(_files(run)):
        name = f"{READINGS}/{file.name}"
        if not folder.checked(name).read_text(encoding="utf-8").endswith("}\n"):
            continue  # cut off by a crash
        reading = folder.read(name, Result)
        if reading.on is None:
            return reading
    return None


def _files(run: Path) -> list[Path]:
    return sorted((run / READINGS).glob("*.json"))
