"""What the service answers from: an index, its model and calibration, always the newest whole one.

Requests come in threads. An index that was opened never changes, so a request keeps the one it
began with; another is opened when a writer has made a newer one, looked for every two seconds.
"""

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from unseen.evaluation.calibrate import Calibration
from unseen.experiment.calibration import read_calibration
from unseen.experiment.trained import Trained
from unseen.search.answers import Answer, ask
from unseen.search.index import Ids, Index
from unseen.search.ingest import require_same_model
from unseen.search.maintain import model_of

LOOK_EVERY = 2.0  # seconds


@dataclass(frozen=True)
class Shelf:
    """An opened index with its labels looked up once."""

    index: Index
    by_label: dict[str, Ids]

    @classmethod
    def of(cls, index: Index) -> "Shelf":
        found: dict[str, list[int]] = {}
        for id, facts in index.every():
            if facts.label is not None:
                found.setdefault(facts.label, []).append(id)
        return cls(index, {name: np.array(found[name]) for name in sorted(found)})

    def labelled(self, label: str) -> Ids:
        """Ids with a label; a ValueError where there is no such label."""
        if label not in self.by_label:
            raise ValueError(f"no picture has the label {label!r}")
        return self.by_label[label]


class Library:
    """Opens an index for the service. Embedding is done by one request at a time: the network
    already uses every core it was given."""

    def __init__(self, index: Path, run: Path | None = None) -> None:
        model = model_of(index, run)
        opened = Index.open(index)
        require_same_model(opened.manifest.model, model, index)
        # pictures come one by one: no worker processes
        alone = model.config.model_copy(update={"workers": 0})
        self.model: Trained = replace(model, config=alone)
        self.calibration: Calibration | None = read_calibration(model)
        self.path, self._shelf = index, Shelf.of(opened)
        self._looked = time.monotonic()
        self._reopening, self._embedding = threading.Lock(), threading.Lock()

    @property
    def shelf(self) -> Shelf:
        """The newest index, or the last one that could be opened."""
        due = time.monotonic() - self._looked > LOOK_EVERY
        if due and self._reopening.acquire(blocking=False):
            try:
                if self._shelf.index.newer():
                    self._shelf = Shelf.of(Index.open(self.path))
            except ValueError:
                pass  # being rebuilt, or damaged: what is open still answers
            finally:
                self._looked = time.monotonic()
                self._reopening.release()
        return self._shelf

    def embed(self, picture: Image.Image) -> NDArray[np.float32]:  # [1, D]
        with self._embedding:
            vector: NDArray[np.float32] = self.model.embed([picture]).numpy()
        return vector

    def by_vector(
        self, vector: NDArray[np.float32], k: int, label: str | None, without: Sequence[int] = ()
    ) -> Answer:
        """The k nearest pictures, of one label or of all, without those named."""
        shelf = self.shelf
        allowed = None if label is None else shelf.labelled(label)
        found = ask(shelf.index, vector, k + len(without), self.calibration, allowed)[0]
        return Answer([hit for hit in found.hits if hit.id not in without][:k])

    def by_id(self, id: int, k: int, label: str | None) -> Answer:
        """The nearest other pictures of a picture of the index."""
        return self.by_vector(self.shelf.index.vectors([id]), k, label, without=[id])
