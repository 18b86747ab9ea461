"""Queries made of several vectors: images that ask together, and images called right or wrong.

    mean       the mean of the images' unit vectors, at unit length again
    rocchio    J. J. Rocchio, Relevance feedback in information retrieval, 1971:

                   q' = alpha q + beta / |R| * sum over R - gamma / |N| * sum over N

               for a query q, images R that were called right and N that were called wrong; an
               empty set adds nothing, and q' is brought to unit length again.
Values     alpha 1, beta 0.75, gamma 0.15: C. Manning, P. Raghavan, H. Schütze, Introduction to
           Information Retrieval, 2008, section 9.1.1: what is right teaches more.

Raw vectors (`normalize=False`) are taken, and stay, as long as they are.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unseen.neighbors.space import to_sphere

ALPHA, BETA, GAMMA = 1.0, 0.75, 0.15

Vectors = NDArray[np.float32]


def mean(vectors: Vectors, normalize: bool = True) -> Vectors:  # [n, D] -> [1, D]
    """One query of several."""
    return _row(_prepared(vectors, normalize).mean(dim=0), normalize)


def rocchio(
    query: Vectors,  # [1, D]
    right: Vectors,  # [R, D]
    wrong: Vectors,  # [N, D]
    alpha: float = ALPHA,
    beta: float = BETA,
    gamma: float = GAMMA,
    normalize: bool = True,
) -> Vectors:  # [1, D]
    """The query moved towards what is right and away from what is wrong."""
    moved = alpha * _prepared(query, normalize)[0]
    for weight, vectors in ((beta, right), (-gamma, wrong)):
        if len(vectors):
            moved = moved + weight * _prepared(vectors, normalize).mean(dim=0)
    return _row(moved, normalize)


def _prepared(vectors: Vectors, normalize: bool) -> Tensor:
    x = torch.from_numpy(np.ascontiguousarray(vectors)).double()
    return to_sphere(x) if normalize else x


def _row(vector: Tensor, normalize: bool) -> Vectors:
    row = vector[None]
    made: Vectors = (to_sphere(row) if normalize else row).float().numpy()
    return made
