"""Why two images are similar to a run: the pairs of places that make up their cosine."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from PIL import Image
from torch import Tensor

from unseen.core.contracts import Dataset
from unseen.data.images.loader import prepared
from unseen.models.map_positions import places_of
from unseen.runs.trained_run import ImageLike, Trained

Grid = tuple[int, int]  # rows, columns
ENOUGH = 0.5  # of all that pulls together
EXACT = "exact: the parts of all pairs of places add up to the similarity"
GRADIENT = (
    "by gradient, because the way from the map to the descriptor is not linear: the parts say what "
    "a small change of a place would change, and add up to {total:.3f}"
)
PIXELS = (
    "by gradient at the pixels, because the last layers keep no places: rougher than on a map; "
    "the parts add up to {total:.3f}"
)


class PlacePair(NamedTuple):
    """A place of the first image and one of the second, and what the two add."""

    first: int
    second: int
    amount: float


@dataclass(frozen=True)
class Explanation:
    """Two images as the network saw them, and the parts of their cosine.

    `pairs` [P, Q] add up to `similarity`; `heat` has the same by place, as two maps. Formula
    and exactness: `models/map_positions.py`.

    Example:
        why = explain(unseen.load("runs/birds"), "a.jpg", "b.jpg")
        why.strongest(5)  # the pairs that contribute most
    """

    similarity: float
    pairs: Tensor  # [P, Q]
    grids: tuple[Grid, Grid]
    images: tuple[Image.Image, Image.Image]
    is_exact: bool
    how: str  # exact, or by gradient, and why

    @property
    def heat(self) -> tuple[Tensor, Tensor]:
        """What each place adds, over all places of the other image: two maps [rows, columns]."""
        first, second = self.pairs.sum(dim=1), self.pairs.sum(dim=0)
        return first.view(self.grids[0]), second.view(self.grids[1])

    def strongest(self, count: int) -> list[PlacePair]:
        """The pairs that pull most, each place in one of them."""
        left, result = self.pairs.clone(), []
        for _ in range(min(count, *left.shape)):
            first, second = divmod(int(left.argmax()), left.shape[1])
            if left[first, second] <= 0:
                break
            result.append(PlacePair(first, second, float(self.pairs[first, second])))
            left[first], left[:, second] = -torch.inf, -torch.inf
        return result

    @property
    def sentences(self) -> list[str]:
        """The explanation in words."""
        half = [_num_places(heat) for heat in self.heat]
        return [
            f"Similarity {self.similarity:.3f}, {self.how}.",
            f"Half of what pulls them together comes from {half[0]} of {self.pairs.shape[0]} "
            f"places of the first image and {half[1]} of {self.pairs.shape[1]} of the second.",
        ]


def explain(trained: Trained, first: ImageLike, second: ImageLike) -> Explanation:
    """The cosine of two images' descriptors in parts, also where the run compares distances."""
    return explain_images(trained, trained.prepared(first), trained.prepared(second))


def explain_items(trained: Trained, dataset: Dataset, first: int, second: int) -> Explanation:
    """The same of two items of a data set, read as those that are evaluated."""
    images = (prepared(dataset, trained.transform, index, (0,))[0] for index in (first, second))
    return explain_images(trained, *images)


def explain_images(trained: Trained, *images: Tensor) -> Explanation:
    """The same of two images as the network takes them (`Trained.prepared`)."""
    one, two = (places_of(trained.network, image.to(trained.device)) for image in images)
    lengths = one.descriptor.double().norm() * two.descriptor.double().norm()
    lengths = lengths.clamp(min=torch.finfo(torch.float64).tiny)
    pairs = (one.parts.double() @ two.parts.double().T / lengths).cpu()
    similarity = float(one.descriptor.double() @ two.descriptor.double() / lengths)
    words = EXACT if one.is_exact else PIXELS if one.on_pixels else GRADIENT
    return Explanation(
        similarity,
        pairs,
        (one.grid, two.grid),
        (trained.transform.colors(images[0]), trained.transform.colors(images[1])),
        one.is_exact,
        words.format(total=float(pairs.sum())),
    )


def _num_places(heat: Tensor) -> int:
    """The fewest places that make half of what pulls together."""
    pulls = heat.clamp(min=0).flatten().sort(descending=True).values
    return int((pulls.cumsum(0) < ENOUGH * pulls.sum()).sum()) + 1
