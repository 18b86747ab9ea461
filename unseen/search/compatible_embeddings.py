"""Maps from the vectors of one model to those of another, fitted on images that both have seen.

    orthogonal  the rotation that brings the old vectors nearest to the new ones (P. Schönemann,
                Psychometrika 31, 1966); of two sizes a part of one
    linear      ridge regression with a constant; its weight is chosen by leaving one out
    mlp         the linear map plus a perceptron of one hidden layer, fitted on what that leaves

Regression draws what it cannot tell towards the mean, from where everything is near: beside new
vectors, compatible ones would be found too often. So both are stretched from the mean by as much as
they fall short on the last fifth of the images, fitted on the others; of images in the order of
their classes that are mostly other classes.

What an old vector does not say of an image no map can know: compatible vectors find less than
new ones (docs/upgrade.md).
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Ridge, RidgeCV
from sklearn.neural_network import MLPRegressor

from unseen.neighbors.space import to_sphere

Vectors = NDArray[np.float32]
HIDDEN = 512
PASSES = 60
FEWEST = 11  # images: the perceptron sets a tenth of them aside, rounded up, and needs two there
MOST_STRETCH = 2.0


@dataclass(frozen=True)
class SpaceMap:
    """Old vectors [n, D] to new ones [n, E], of unit length where the new model's are."""

    kind: str
    normalize: bool
    raw: Callable[[Vectors], NDArray[Any]]

    def __call__(self, old: Vectors) -> Vectors:
        fitted = torch.from_numpy(np.ascontiguousarray(self.raw(old), dtype=np.float32))
        made: Vectors = (to_sphere(fitted) if self.normalize else fitted).numpy()
        return made


def fit_maps(old: Vectors, new: Vectors, normalize: bool) -> list[SpaceMap]:
    """One of each kind, the simplest first. old [n, D] and new [n, E] are of the same images."""
    if len(old) < FEWEST:
        raise ValueError(
            f"a map between two models is fitted on {FEWEST} images or more that both have seen, "
            f"got {len(old)}: `unseen index rebuild` embeds the index's images again instead"
        )
    left, _, right = np.linalg.svd(old.T.astype(np.float64) @ new, full_matrices=False)
    rotation = (left @ right).astype(np.float32)  # [D, E]
    linear = RidgeCV(alphas=np.logspace(-4, 2, 7)).fit(old, new)
    stretch = _stretch(old, new, float(linear.alpha_))
    scale = max(float((new - linear.predict(old)).std()), 1e-12)
    rest = MLPRegressor(
        hidden_layer_sizes=HIDDEN, early_stopping=True, max_iter=PASSES, random_state=0
    )
    with warnings.catch_warnings():  # the passes are bounded
        warnings.simplefilter("ignore", ConvergenceWarning)
        rest.fit(old, (new - linear.predict(old)) / scale)
    return [
        SpaceMap("orthogonal", normalize, lambda x: x @ rotation),
        SpaceMap("linear", normalize, lambda x: stretch(linear.predict(x))),
        SpaceMap("mlp", normalize, lambda x: stretch(linear.predict(x) + scale * rest.predict(x))),
    ]


def _stretch(old: Vectors, new: Vectors, weight: float) -> Callable[[NDArray[Any]], NDArray[Any]]:
    most = 4 * len(old) // 5
    partial, center = Ridge(alpha=weight).fit(old[:most], new[:most]), new.mean(axis=0)
    far, reached = new[most:] - center, partial.predict(old[most:]) - center
    missed = float(np.linalg.norm(far)) / max(float(np.linalg.norm(reached)), 1e-12)
    factor = min(max(missed, 1.0), MOST_STRETCH)
    return lambda vectors: center + factor * (vectors - center)
