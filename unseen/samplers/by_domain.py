"""By domain: batches of one domain each, or of all of them alike, for one model of many domains.

Source   N.-A. Ypsilantis et al., Towards Universal Image Embeddings, ICCV 2023,
         https://arxiv.org/abs/2309.08944 (domains in turn, each equally often)
Rule     batches="one" (default): domains take turns, in an order that is drawn anew round after
             round; negatives come from the anchor's own domain.
         batches="mixed": every batch holds as many items of each domain; negatives come from all.
         Inside a domain classes and items are dealt as `samples_per_class` deals them, so a small
         domain is seen as often as a large one, and its items more often.
Small    a domain with fewer classes than a batch wants gives all it has: its batches are smaller.
Values   per_class 4.
Use      `data=["birds/", "cars/"]`, or a table with a column `domain`. Without domains it is
         samples_per_class.
"""

from typing import ClassVar

import numpy as np

from unseen.contracts import IntArray
from unseen.samplers.base import BatchSampler, ClassIndex
from unseen.samplers.samples_per_class import SamplesPerClass

BATCHES = ("one", "mixed")


class ByDomain(BatchSampler):
    """domains: of each item; None: one for all. per_class: images of a class in a batch. batches:
    of one domain each, or mixed. steps: batches in an epoch (None: items / batch)."""

    fills_batches: ClassVar[bool] = False

    def __init__(
        self,
        items: IntArray,
        labels: IntArray,
        batch_size: int,
        domains: IntArray | None = None,
        per_class: int = 4,
        batches: str = "one",
        steps: int | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(items, labels, batch_size, seed, steps)
        if batches not in BATCHES:
            raise ValueError(f"batches must be one of {', '.join(BATCHES)}, got {batches!r}")
        codes = np.zeros(len(self.items), dtype=np.int64) if domains is None else domains
        if len(codes) != len(self.items):
            raise ValueError(f"domains must be one for each item, got {len(codes)}")
        found = np.unique(codes)
        self.batches_are, self._wanted = batches, batch_size
        turns = self.steps
        if batches == "one":
            turns = -(-self.steps // len(found))
        else:
            self._wanted = batch_size // len(found) // per_class * per_class
            if self._wanted < max(2, per_class):
                raise ValueError(
                    f"a mixed batch of {batch_size} has no room for {per_class} images of a class "
                    f"of each of {len(found)} domains: raise batch_size, or use batches=one"
                )
        self._inner = [
            self._of_domain(codes == domain, per_class, turns, place)
            for place, domain in enumerate(found)
        ]

    def _of_domain(self, rows: IntArray, per_class: int, steps: int, place: int) -> SamplesPerClass:
        items, labels = self.items[rows], self.labels[rows]
        classes = int((ClassIndex(items, labels).sizes > 1).sum())
        size = max(per_class, min(self._wanted, per_class * classes))
        return SamplesPerClass(
            items, labels, size, per_class, steps=steps, seed=self.seed + 7919 * place
        )

    def left_out(self) -> dict[str, int]:
        counted: dict[str, int] = {}
        for inner in self._inner:
            for why, number in inner.left_out().items():
                counted[why] = counted.get(why, 0) + number
        return counted

    def draw(self, epoch: int) -> list[IntArray]:
        drawn = [inner.draw(epoch) for inner in self._inner]
        if self.batches_are == "mixed":
            return [np.concatenate(parts) for parts in zip(*drawn, strict=True)]
        generator = np.random.default_rng([self.seed, epoch, 0xD0])
        rounds = [generator.permutation(len(drawn)) for _ in range(len(drawn[0]))]
        return [
            drawn[domain][turn] for turn, order in enumerate(rounds) for domain in order.tolist()
        ][: self.steps]
