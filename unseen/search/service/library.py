"""What the service answers from: an index with its model and calibration, always the newest whole
ones that belong together.

Requests come in threads. What was opened never changes, so a request takes the shelf once and
answers from it; another is made when a writer has changed the index, looked for every two seconds.
"""

import logging
import math
import threading
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from unseen.evaluation.calibrate import Calibration
from unseen.experiment.calibration import read_calibration
from unseen.experiment.explain import Explanation, explain
from unseen.experiment.trained import Picture, Trained
from unseen.search import feedback
from unseen.search.answers import Answer, ask
from unseen.search.index import Ids, Index
from unseen.search.ingest import require_same_model
from unseen.search.maintain import model_of
from unseen.search.manifest import DamagedError
from unseen.search.upgrade import num_mapped

LOOK_EVERY = 2.0  # seconds
log = logging.getLogger("unseen.serve")


@dataclass(frozen=True)
class Neighbour:
    """Who asks for its k nearest pictures, of one label or of all."""

    id: int
    k: int
    label: str | None = None


@dataclass(frozen=True)
class Shelf:
    """An opened index, the model that made its vectors, and its labels looked up once. Embedding
    is done by one request at a time: the network already uses every core it was given."""

    index: Index
    model: Trained
    calibration: Calibration | None
    by_label: dict[str, Ids]
    num_mapped: int  # pictures that a newer model has not embedded yet
    _embedding: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @classmethod
    def open(cls, path: Path, run: Path | None, before: "Shelf | None" = None) -> "Shelf":
        """The model is read again only where the index was made with another."""
        index = Index.open(path)
        made_by = index.manifest.model
        if before is not None and before.index.manifest.model.fingerprint == made_by.fingerprint:
            model = before.model
        else:
            model = _model(index, run)
        return cls(index, model, read_calibration(model), index.by_label, num_mapped(index))

    def labelled(self, label: str) -> Ids:
        """Ids with a label; a ValueError where there is no such label."""
        if label not in self.by_label:
            raise ValueError(f"no picture has the label {label!r}")
        return self.by_label[label]

    def embed(self, pictures: Sequence[bytes | Image.Image]) -> NDArray[np.float32]:  # [n, D]
        """bytes: of a picture file, which is read as those of the index were."""
        with self._embedding:
            vectors: NDArray[np.float32] = self.model.embed(pictures).numpy()
        return vectors

    def explain(self, first: Picture, second: Picture) -> Explanation:
        """Why two pictures are alike to the model."""
        with self._embedding:
            return explain(self.model, first, second)

    def query(
        self, vectors: NDArray[np.float32], right: Sequence[int] = (), wrong: Sequence[int] = ()
    ) -> NDArray[np.float32]:  # [n, D] -> [1, D]
        """What several vectors ask together, moved by pictures that were called right or wrong."""
        normalise = self.index.manifest.model.normalise
        asked = vectors if len(vectors) == 1 else feedback.mean(vectors, normalise)
        if not right and not wrong:
            return asked
        none = np.zeros((0, vectors.shape[1]), dtype=np.float32)
        known, refused = (self.index.vectors(ids) if ids else none for ids in (right, wrong))
        return feedback.rocchio(asked, known, refused, normalise=normalise)

    def by_vector(
        self,
        vector: NDArray[np.float32],
        k: int,
        label: str | None,
        without: Collection[int] = (),
        judged: bool = True,
    ) -> Answer:
        """The k nearest pictures, of one label or of all, without those named. judged: with
        verdicts, which hold for the vector of one picture."""
        if label is not None:
            self.labelled(label)
        calibration = self.calibration if judged else None
        found = ask(self.index, vector, k + len(without), calibration, label=label)[0]
        return _without(found, without, k)

    def num_pictures(self, label: str | None, without: Collection[int] = ()) -> int:
        """How many `by_vector` can find."""
        if label is None:
            return len(self.index) - sum(id in self.index for id in set(without))
        return int(np.isin(self.labelled(label), list(without), invert=True).sum())

    def by_ids(self, asked: Sequence[Neighbour]) -> list[Answer | ValueError]:
        """The nearest other pictures of pictures of the index, or what is wrong with a question.
        Those that ask for pictures of any label are one search."""
        any_label = [one for one in asked if one.label is None and one.id in self.index]
        found: dict[Neighbour, Answer | ValueError] = {}
        if any_label:
            vectors = self.index.vectors([one.id for one in any_label])
            most = max(one.k for one in any_label) + 1
            answers = ask(self.index, vectors, most, self.calibration)
            for one, answer in zip(any_label, answers, strict=True):
                found[one] = _without(answer, [one.id], one.k)
        return [found[one] if one in found else self._by_id(one) for one in asked]

    def _by_id(self, asked: Neighbour) -> Answer | ValueError:
        try:
            vector = self.index.vectors([asked.id])
            return self.by_vector(vector, asked.k, asked.label, without=[asked.id])
        except DamagedError:
            raise
        except ValueError as error:
            return error


class Library:
    """Keeps the newest shelf. run: where the model is, if not where the index says."""

    def __init__(self, index: Path, run: Path | None = None) -> None:
        self.path, self.run = index, run
        self._shelf = Shelf.open(index, run)
        self._looked = time.monotonic()
        self._reopening = threading.Lock()

    def is_ready(self) -> bool:
        """Whether the index can be read as it was opened."""
        try:
            self.shelf.index.require_whole()
        except (DamagedError, OSError):
            return False
        return True

    def look_again(self) -> None:
        """The next request sees what was just changed."""
        self._looked = -math.inf

    @property
    def shelf(self) -> Shelf:
        """The newest, or the last one that could be opened."""
        due = time.monotonic() - self._looked > LOOK_EVERY
        if due and self._reopening.acquire(blocking=False):
            try:
                if self._shelf.index.newer():
                    self._shelf = Shelf.open(self.path, self.run, self._shelf)
            except Exception as error:  # gone, being rebuilt, damaged: what is open still answers
                log.warning("%s cannot be opened, the last one answers: %s", self.path, error)
            finally:
                self._looked = time.monotonic()
                self._reopening.release()
        return self._shelf


def _without(answer: Answer, ids: Collection[int], k: int) -> Answer:
    return Answer([hit for hit in answer.hits if hit.id not in ids][:k])


def _model(index: Index, run: Path | None) -> Trained:
    """From where `run` says, or where the index says: a rebuilt index may be another run's."""
    model = model_of(index.path, run)
    if run is not None and model.fingerprint != index.manifest.model.fingerprint:
        told = Path(index.manifest.model.run)
        model = model_of(index.path, told) if told.exists() else model
    require_same_model(index.manifest.model, model, index.path)
    # pictures come one by one: no worker processes
    return replace(model, config=model.config.model_copy(update={"workers": 0}))
