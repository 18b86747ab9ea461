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
    """The scores of a run: `result.json` of its folder, and what is read of it later.

    share: of each batch that is taken for wrong. window: thresholds that are averaged. size: of
    the memory. start_step: before it all items stay. Its state is part of a checkpoint.

    Paper:
        C. Liu et al., Noise-resistant Deep Metric Learning with Ranking-based Instance Selection,
        CVPR 2021, https://arxiv.org/abs/2103.16047

    Formula:
        x[i] the unit embedding of item i, w[c] the mean of the unit embeddings of class c in a
        memory of the last items that were kept:

            P[i] = exp(x[i] . w[y]) / sum over classes c in the memory of exp(x[i] . w[c])

        the probability that label y of item i is right. An item of a class that is not in the
        memory yet has P = 1, and stays. In each batch of N the threshold is the floor(share * N)-
        th smallest P, unless that is 1; an item stays if its P lies above the mean of the last
        `window` thresholds (the smooth top-R of the paper). Where none would stay, all but the
        floor(share * N) of the smallest P do, and the window begins anew. What stays is priced
        and enters the memory; the rest does neither. (The authors' code also counts classes the
        memory does not hold, each with exp(0) = 1; here they do not count.)

    Values:
        share: of wrong labels, as far as one knows it; the authors set the true one, 0.5 for their
        noisiest data; 0.2 is ours. window 30, size 9,500 of 9,558 items (authors' config for
        Cars98N), 8,192 here as in their defaults. start_step 0 (theirs).

    Use:
        `label_filter=prism`, with any loss, miner and memory. Batches should hold several items of
        a class: half of them may be left out.
    """

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
