"""Why two pictures are alike to a run: the places of both that make up their similarity.

    why = explain(unseen.load("runs/birds"), "a.jpg", "b.jpg")
    why.similarity            # the cosine of the two descriptors
    why.pairs                 # [P, Q]: what each pair of places adds; they add up to it
    why.heat                  # the same by place, as two maps
    why.strongest(5)          # the pairs that pull most

Formula and exactness: `networks/places.py`.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from PIL import Image
from torch import Tensor

from unseen.contracts import Dataset
from unseen.data.pictures.loader import prepared
from unseen.experiment.trained import Picture, Trained
from unseen.networks.places import places_of

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
    """A place of the first picture and one of the second, and what the two add."""

    first: int
    second: int
    part: float


@dataclass(frozen=True)
class Explanation:
    """Two pictures as the network saw them, and the parts of their cosine."""

    similarity: float
    pairs: Tensor  # [P, Q]
    grids: tuple[Grid, Grid]
    pictures: tuple[Image.Image, Image.Image]
    is_exact: bool
    how: str  # exact, or by gradient, and why

    @property
    def heat(self) -> tuple[Tensor, Tensor]:
        """What each place adds, over all places of the other picture: two maps [rows, columns]."""
        first, second = self.pairs.sum(dim=1), self.pairs.sum(dim=0)
        return first.view(self.grids[0]), second.view(self.grids[1])

    def strongest(self, count: int) -> list[PlacePair]:
        """The pairs that pull most, each place in one of them."""
        left, found = self.pairs.clone(), []
        for _ in range(min(count, *left.shape)):
            first, second = divmod(int(left.argmax()), left.shape[1])
            if left[first, second] <= 0:
                break
            found.append(PlacePair(first, second, float(self.pairs[first, second])))
            left[first], left[:, second] = -torch.inf, -torch.inf
        return found

    @property
    def sentences(self) -> list[str]:
        """The explanation in words."""
        half = [_num_places(heat) for heat in self.heat]
        return [
            f"Similarity {self.similarity:.3f}, {self.how}.",
            f"Half of what pulls them together comes from {half[0]} of {self.pairs.shape[0]} "
            f"places of the first picture and {half[1]} of {self.pairs.shape[1]} of the second.",
        ]


def explain(trained: Trained, first: Picture, second: Picture) -> Explanation:
    """The cosine of two pictures' descriptors in parts, also where the run compares distances."""
    return _explained(trained, trained.prepared(first), trained.prepared(second))


def explain_items(trained: Trained, dataset: Dataset, first: int, second: int) -> Explanation:
    """The same of two items of a data set, read as those that are judged."""
    images = (prepared(dataset, trained.transform, index, (0,))[0] for index in (first, second))
    return _explained(trained, *images)


def _explained(trained: Trained, *images: Tensor) -> Explanation:
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
        (trained.transform.colours(images[0]), trained.transform.colours(images[1])),
        one.is_exact,
        words.format(total=float(pairs.sum())),
    )


def _num_places(heat: Tensor) -> int:
    """The fewest places that make half of what pulls together."""
    pulls = heat.clamp(min=0).flatten().sort(descending=True).values
    return int((pulls.cumsum(0) < ENOUGH * pulls.sum()).sum()) + 1
