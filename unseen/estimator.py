"""A scikit-learn estimator: a linear or hidden head trained on feature arrays with any loss here.

    learner = MetricLearner(loss="proxy_anchor", embedding_size=32).fit(features, labels)
    learner.transform(features)           unit vectors [n, embedding_size]
    learner.predict(others)               the class of the nearest training item

It works in pipelines, grid searches and wherever a transformer or a classifier is asked for.
`from_run` makes one around a run trained on features (`unseen train features.npz`).
"""

from collections.abc import Callable
from os import PathLike
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from unseen.config import build
from unseen.config import schema as configs
from unseen.core import custom_components, registry
from unseen.core.contracts import Annotations
from unseen.data.base import Described
from unseen.data.images.loader import training_batches
from unseen.data.in_memory.user_data import UserFeatures
from unseen.models.backbone import FEATURES, OWN
from unseen.models.head import Head
from unseen.models.network import EmbeddingNetwork
from unseen.neighbors.nearest import nearest
from unseen.neighbors.space import make_space, precise, to_sphere
from unseen.runs.trained_run import Trained

RESOLVED: dict[str, Any] = {  # a plain head, trained by Adam at a constant rate
    "device": "cpu",
    "threads": 1,
    "workers": 0,
    "cpu_processes": 1,
    "micro_batch": None,
    "weights": None,
    "pooling": OWN,
    "depth": "full",
    "freeze_until": None,
    "cached_augmentations": 0,
    "head": {"start": "default"},
    "image_size": None,
    "transform": None,
    "miner": None,
    "weight_decay": 0.0,
    "optimizer": "adam",
    "schedule": "constant",
    "validation_fraction": 0.5,
    "normalize": True,
    "relevance": {"kind": "labels"},
}


class MetricLearner(TransformerMixin, ClassifierMixin, BaseEstimator):
    """A linear head trained on features with any loss of the catalogue, as scikit-learn has it:
    `fit`, `transform` (unit vectors), `predict` (the class of the nearest training item).

    Args:
        loss: A name of the catalogue, or an object; multi_similarity.
        embedding_size: Numbers of an embedding; 32.
        epochs: How often the items are gone through; 10.
        per_class: Items of each class in a batch; 4.
        lr: The learning rate of Adam; 1e-3.
        random_state: Of the starting values and the batches; 0.

    Example:
        >>> import numpy as np
        >>> from unseen import MetricLearner
        >>> features, labels = np.eye(8).repeat(4, axis=0), np.arange(8).repeat(4)
        >>> learner = MetricLearner(embedding_size=4, epochs=1).fit(features, labels)
        >>> learner.transform(features).shape
        (32, 4)
    """

    def __init__(
        self,
        loss: Any = "multi_similarity",
        embedding_size: int = 32,
        epochs: int = 10,
        per_class: int = 4,
        lr: float = 1e-3,
        random_state: int = 0,
    ) -> None:
        self.loss, self.embedding_size = loss, embedding_size
        self.epochs, self.per_class = epochs, per_class
        self.lr, self.random_state = lr, random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags

    @classmethod
    def from_run(cls, run: str | PathLike[str], X: Any, y: Any) -> "MetricLearner":  # noqa: N803
        """The head of a run trained on features, with the items `predict` compares with."""
        trained = Trained.open(str(run))
        if trained.transform is not None:
            raise ValueError(f"{run} was trained on images: unseen.load(RUN).embed takes those")
        made = cls(trained.config.loss_name, trained.network.embedding_size)
        x, y = validate_data(made, X, y, dtype=np.float32)
        made.head_, made.mean_, made.scale_ = trained.vectors, np.float32(0), np.float32(1)
        made.classes_, made._labels = np.unique(y, return_inverse=True)
        made._items = made.transform(x)
        return made

    def fit(self, X: Any, y: Any) -> "MetricLearner":  # noqa: N803 - scikit-learn's names
        """Trains the head on features X [n, D] with classes y [n]."""
        x, y = validate_data(self, X, y, dtype=np.float32, ensure_min_samples=2)
        check_classification_targets(y)
        custom_components.trust(self.loss)
        self.classes_, self._labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"fit needs at least 2 classes, got {len(self.classes_)} class")
        self.mean_, self.scale_ = x.mean(axis=0), np.maximum(x.std(axis=0), 1e-6)
        head = self._trained(torch.from_numpy((x - self.mean_) / self.scale_))
        self.head_: Callable[[torch.Tensor], torch.Tensor] = head.eval()
        self._items = self.transform(x)
        return self

    def transform(self, X: Any) -> NDArray[np.float32]:  # noqa: N803
        """Unit vectors [n, embedding_size]."""
        check_is_fitted(self, "head_")
        x = validate_data(self, X, dtype=np.float32, reset=False)
        with torch.inference_mode():
            made = self.head_(torch.from_numpy((x - self.mean_) / self.scale_).float())
        vectors: NDArray[np.float32] = to_sphere(made).clone().numpy()
        return vectors

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """The class of the nearest item that was fitted."""
        request = torch.from_numpy(self.transform(X))
        with precise(request.device):
            _, result = nearest(make_space(request, torch.from_numpy(self._items)), 1)
        classes: NDArray[Any] = self.classes_[self._labels[result[:, 0].numpy()]]
        return classes

    def _trained(self, x: torch.Tensor) -> Head:
        """By the build of every run, without a folder, a split or a selection."""
        labels, size = self._labels.astype(np.int64), self._batch_size(len(x))
        name = self.loss if isinstance(self.loss, str) else custom_components.object_name(self.loss)
        values: dict[str, Any] = {
            "seed": int(self.random_state),
            "backbone": f"{FEATURES}{x.shape[1]}",
            "embedding_size": self.embedding_size,
            "sampler": {"name": "m_per_class", "per_class": self.per_class},
            "loss": {"name": name} | self._rate(name),
            "batch_size": size,
            "epochs": max(1, self.epochs),
            "lr": self.lr,
        }
        config = configs.make_resolved(RESOLVED | values)
        names = [str(name) for name in self.classes_]
        dataset = UserFeatures(x.numpy(), Described(labels, names, None, Annotations()))
        with custom_components.known_objects({name: self.loss}):
            sampler = build.sampler(config, np.arange(len(x)), labels)
            made = build.build(config, len(self.classes_), len(sampler))
        every_class = torch.arange(len(self.classes_))
        for epoch in range(self.epochs):
            batches = training_batches(
                dataset, None, sampler, epoch, config.training.seed, workers=0
            )
            made.trainer.epoch(batches, every_class, lambda event: None)
        assert isinstance(made.network, EmbeddingNetwork)
        return made.network.head

    def _rate(self, loss: str) -> dict[str, float]:
        """Class parameters learn at the same rate as the head."""
        with custom_components.known_objects({loss: self.loss}):
            takes = {p.name for p in registry.parameters(registry.find("losses", loss))}
        return {"lr": float(self.lr)} if "lr" in takes else {}

    def _batch_size(self, number: int) -> int:
        size = min(64, max(2 * self.per_class, number // 2))
        size = max(2, size // self.per_class) * self.per_class
        return min(size, self.per_class * len(self.classes_))
