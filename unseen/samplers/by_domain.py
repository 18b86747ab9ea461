"""By-domain sampler: batches of one domain, or of all of them."""

from typing import ClassVar

import numpy as np

from unseen.core.contracts import IntArray
from unseen.samplers.base import BatchSampler, ClassIndex
from unseen.samplers.m_per_class import MPerClassSampler

BATCHES = ("one", "mixed")


class ByDomainSampler(BatchSampler):
    """By domain: batches of one domain, or of all domains alike, for one model of many domains.

    Rule:
        batches="one": domains take turns, in an order that is drawn anew for each round; negatives
        come from the anchor's own domain. batches="mixed": every batch holds as many items of each
        domain; negatives come from all. Inside a domain classes and items are drawn as
        `m_per_class` draws them: a small domain comes as often as a large one, its items more
        often. A domain with fewer classes than a batch needs gives all it has: its batches are
        smaller.

    Paper:
        N.-A. Ypsilantis et al., Towards Universal Image Embeddings, ICCV 2023,
        https://arxiv.org/abs/2309.08944 (domains in turn, each equally often)

    Args:
        items: data set positions to draw from.
        labels: the class of each item.
        batch_size: items in a batch.
        domains: the domain of each item; None: one domain, which is `m_per_class`.
        per_class: items of a class in a batch; 4.
        batches: "one" domain each, or "mixed".
        steps: batches in an epoch; None: items / batch_size.
        seed: of all draws.

    Use:
        `data=["birds/", "cars/"]`, or a table with a column `domain`.

    Example:
        >>> import numpy as np
        >>> from unseen.samplers import ByDomainSampler
        >>> labels, domains = np.arange(16) // 4, np.arange(16) // 8
        >>> sampler = ByDomainSampler(np.arange(16), labels, 8, domains, per_class=4)
        >>> [len(set(domains[batch])) for batch in sampler]
        [1, 1]
    """

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
        distinct = np.unique(codes)
        self.batches_are, self._wanted = batches, batch_size
        turns = self.steps
        if batches == "one":
            turns = -(-self.steps // len(distinct))
        else:
            self._wanted = batch_size // len(distinct) // per_class * per_class
            if self._wanted < max(2, per_class):
                raise ValueError(
                    f"a mixed batch of {batch_size} has no room for {per_class} images of a class "
                    f"of each of {len(distinct)} domains: raise batch_size, or use batches=one"
                )
        self._inner = [
            self._of_domain(codes == domain, per_class, turns, place)
            for place, domain in enumerate(distinct)
        ]

    def _of_domain(
        self, rows: IntArray, per_class: int, steps: int, place: int
    ) -> MPerClassSampler:
        items, labels = self.items[rows], self.labels[rows]
        classes = int((ClassIndex(items, labels).sizes > 1).sum())
        size = max(per_class, min(self._wanted, per_class * classes))
        return MPerClassSampler(
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
            return [np.concatenate(rows) for rows in zip(*drawn, strict=True)]
        generator = np.random.default_rng([self.seed, epoch, 0xD0])
        rounds = [generator.permutation(len(drawn)) for _ in range(len(drawn[0]))]
        return [
            drawn[domain][turn] for turn, order in enumerate(rounds) for domain in order.tolist()
        ][: self.steps]
