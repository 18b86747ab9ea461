"""What the service answers from: an index with its model and calibration, always the newest whole
ones that belong together.

Requests come in threads. What was opened never changes, so a request takes the snapshot once and
answers from it; another is made when a writer has changed the index, looked for every two seconds.
"""

import logging
import math
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from unseen.evaluation.calibration import Calibration
from unseen.runs.calibrate_run import read_calibration
from unseen.runs.explain import Explanation, explain_images
from unseen.runs.trained_run import Trained
from unseen.search import feedback
from unseen.search.answers import DECIDING, Answer, ask
from unseen.search.index import Ids, Index, Neighbors
from unseen.search.ingest import require_same_model
from unseen.search.maintain import model_of
from unseen.search.manifest import DamagedError
from unseen.search.rerank import Kind, reranker
from unseen.search.upgrade import num_compatible

VALIDATE_EVERY = 2.0  # seconds
log = logging.getLogger("unseen.serve")


@dataclass(frozen=True)
class Neighbor:
    """Who asks for its k nearest images, of one label or of all."""

    id: int
    k: int
    label: str | None = None
    where: str | None = None


@dataclass(frozen=True)
class Snapshot:
    """An opened index, the model that made its vectors, and its labels looked up once. Embedding
    is done by one request at a time: the network already uses every core it was given."""

    index: Index
    model: Trained
    calibration: Calibration | None
    by_label: dict[str, Ids]
    num_compatible: int  # images that a newer model has not embedded yet
    _embedding: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @classmethod
    def open(cls, path: Path, run: Path | None, before: "Snapshot | None" = None) -> "Snapshot":
        """The model is read again only where the index was made with another."""
        index = Index.open(path)
        made_by = index.manifest.model
        if before is not None and before.index.manifest.model.fingerprint == made_by.fingerprint:
            model = before.model
        else:
            model = _model(index, run)
        return cls(index, model, read_calibration(model), index.by_label, num_compatible(index))

    def labelled(self, label: str) -> Ids:
        """Ids with a label; a ValueError where there is no such label."""
        if label not in self.by_label:
            raise ValueError(f"no image has the label {label!r}")
        return self.by_label[label]

    def vectors(self, images: Tensor) -> NDArray[np.float32]:  # [n, 3, s, s] -> [n, D]
        """Of images that `Trained.prepared` has made."""
        with self._embedding:
            vectors: NDArray[np.float32] = self.model.vectors(images).numpy()
        return vectors

    def explain(self, first: Tensor, second: Tensor) -> Explanation:
        """Why two of them are alike to the model."""
        with self._embedding:
            return explain_images(self.model, first, second)

    def query(
        self, vectors: NDArray[np.float32], right: Sequence[int] = (), wrong: Sequence[int] = ()
    ) -> NDArray[np.float32]:  # [n, D] -> [1, D]
        """What several vectors ask together, moved by images that were called right or wrong."""
        normalize = self.index.manifest.model.normalize
        request = vectors if len(vectors) == 1 else feedback.mean(vectors, normalize)
        if not right and not wrong:
            return request
        none = np.zeros((0, vectors.shape[1]), dtype=np.float32)
        known, refused = (self.index.vectors(ids) if ids else none for ids in (right, wrong))
        return feedback.rocchio(request, known, refused, normalize=normalize)

    def by_vector(
        self,
        vector: NDArray[np.float32],
        k: int,
        chosen: Ids | None = None,
        without: Collection[int] = (),
        evaluated: bool = True,
        search: Callable[..., Neighbors] | None = None,
    ) -> Answer:
        """The k nearest images, of those that are `chosen` or of all, without those named.
        evaluated: with conclusions, which hold for the vector of one image. search: by which."""
        calibration = self.calibration if evaluated else None
        depth = max(k, DECIDING) + len(without)
        result = ask(self.index, vector, depth, calibration, chosen, search=search)[0]
        return _without(result, without, k)

    def reranker(self, kind: Kind, image: Tensor | None) -> Callable[..., Neighbors]:
        """A search in another order, one at a time. image: that asks, if it is one."""
        with self._embedding:
            search = reranker(self.index, self.model, image, kind)

        def alone(*request: Any) -> Neighbors:
            with self._embedding:
                return search(*request)

        return alone

    def chosen(self, label: str | None, where: str | None) -> Ids | None:
        """Images that may be found; None: all. A ValueError where there is no such label, a
        FilterError for what is no filter."""
        labelled = None if label is None else self.labelled(label)
        if where is None:
            return labelled
        result = self.index.where(where)
        return result if labelled is None else np.intersect1d(result, labelled)

    def num_images(self, chosen: Ids | None, without: Collection[int] = ()) -> int:
        """How many `by_vector` can find."""
        if chosen is None:
            return len(self.index) - sum(id in self.index for id in set(without))
        return int(np.isin(chosen, list(without), invert=True).sum())

    def by_ids(self, request: Sequence[Neighbor]) -> list[Answer | ValueError]:
        """The nearest other images of images of the index, or what is wrong with a question.
        Those that ask for any image are one search."""
        unfiltered = [one for one in request if one.label is None and one.where is None]
        alike = [one for one in unfiltered if one.id in self.index]
        result: dict[Neighbor, Answer | ValueError] = {}
        if alike:
            vectors = self.index.vectors([one.id for one in alike])
            most = max(DECIDING, *(one.k for one in alike)) + 1
            answers = ask(self.index, vectors, most, self.calibration)
            for one, answer in zip(alike, answers, strict=True):
                result[one] = _without(answer, [one.id], one.k)
        return [result[one] if one in result else self._by_id(one) for one in request]

    def _by_id(self, request: Neighbor) -> Answer | ValueError:
        try:
            vector = self.index.vectors([request.id])
            chosen = self.chosen(request.label, request.where)
            return self.by_vector(vector, request.k, chosen, without=[request.id])
        except DamagedError:
            raise
        except ValueError as error:
            return error


class IndexRegistry:
    """Keeps the newest snapshot. run: where the model is, if not where the index says."""

    def __init__(self, index: Path, run: Path | None = None) -> None:
        self.path, self.run = index, run
        self._snapshot = Snapshot.open(index, run)
        self._checked = time.monotonic()
        self._reopening = threading.Lock()

    def is_ready(self) -> bool:
        """Whether the index can be read as it was opened."""
        try:
            self.snapshot.index.require_whole()
        except (DamagedError, OSError):
            return False
        return True

    def refresh(self) -> None:
        """The next request sees what was just changed."""
        self._checked = -math.inf

    @property
    def snapshot(self) -> Snapshot:
        """The newest, or the last one that could be opened."""
        due = time.monotonic() - self._checked > VALIDATE_EVERY
        if due and self._reopening.acquire(blocking=False):
            try:
                if self._snapshot.index.newer():
                    self._snapshot = Snapshot.open(self.path, self.run, self._snapshot)
            except Exception as error:  # gone, being rebuilt, damaged: what is open still answers
                log.warning("%s cannot be opened, the last one answers: %s", self.path, error)
            finally:
                self._checked = time.monotonic()
                self._reopening.release()
        return self._snapshot


def _without(answer: Answer, ids: Collection[int], k: int) -> Answer:
    return Answer.of([hit for hit in answer.hits if hit.id not in ids], k)


def _model(index: Index, run: Path | None) -> Trained:
    """From where `run` says, or where the index says: a rebuilt index may be another run's."""
    model = model_of(index.path, run)
    if run is not None and model.fingerprint != index.manifest.model.fingerprint:
        stated = Path(index.manifest.model.run)
        model = model_of(index.path, stated) if stated.exists() else model
    require_same_model(index.manifest.model, model, index.path)
    # images come one by one: no worker processes
    return replace(model, config=model.config.with_values({"workers": 0}))
