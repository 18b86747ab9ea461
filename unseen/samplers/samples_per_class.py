"""Samples per class: batches of P classes with n images each (SPC-n, "P x K", "m per class").

Source   K. Roth et al., Revisiting Training Strategies and Generalization Performance in Deep Metric
         Learning, ICML 2020, https://arxiv.org/abs/2002.08473 (SPC-n); the walk is HORDE's loader.
Rule     variant="walk" (default): classes are dealt from a shuffled deck, and so are the images of each
             class; a deck that runs out is reshuffled behind what is left of it. No batch holds a class
             twice, every class and, over time, every image comes up equally often.
         variant="uniform": P distinct classes and n distinct images, drawn afresh for each batch.
         variant="revisit_code": classes and images drawn with replacement, as the released code does.
Small    a class with fewer than n images gives all it has and repeats some (`small_classes="resample"`)
         or is left out ("skip"). A class with one image is always left out: it has no positive pair.
Values   n 2, batch 112 (Roth); n 5, batch 100 or 180 (Psomas); n 8, batch 40 (HORDE); n 10, batch 100
         (density adaptivity).
"""

from typing import Any, ClassVar

import numpy as np

from unseen.contracts import IntArray
from unseen.samplers.base import BatchSampler, ClassIndex, Deck

VARIANTS = ("walk", "uniform", "revisit_code")


class SamplesPerClass(BatchSampler):
    """per_class: images of each class in a batch. steps: batches in an epoch (None: items / batch)."""

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "revisit": {"per_class": 2, "variant": "uniform"},
        "revisit_code": {"per_class": 2, "variant": "revisit_code"},
        "thesis": {"per_class": 5},
        "density": {"per_class": 10},
        "horde": {"per_class": 8},
        "vo_hays": {"per_class": 2},
    }

    def __init__(
        self,
        items: IntArray,
        labels: IntArray,
        batch_size: int,
        per_class: int = 4,
        variant: str = "walk",
        small_classes: str = "resample",
        steps: int | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(items, labels, batch_size, seed)
        if per_class < 1 or batch_size % per_class:
            raise ValueError(
                f"batch_size must be a multiple of per_class, got {batch_size} and {per_class}: "
                f"try batch_size={max(1, batch_size // max(1, per_class)) * max(1, per_class)}"
            )
        if variant not in VARIANTS:
            raise ValueError(f"variant must be one of {', '.join(VARIANTS)}, got {variant!r}")
        if small_classes not in ("resample", "skip"):
            raise ValueError(f"small_classes must be resample or skip, got {small_classes!r}")
        self.per_class, self.variant, self.steps = per_class, variant, steps
        self.small_classes = small_classes
        index = ClassIndex(self.items, self.labels)
        smallest = max(2, per_class) if small_classes == "skip" else 2
        eligible = np.flatnonzero(index.sizes >= smallest)
        self._members = [index.members[c] for c in eligible]
        self._single = int((index.sizes == 1).sum())
        self._small = len(index.sizes) - len(eligible) - self._single
        if len(self._members) < self.num_classes and variant != "revisit_code":
            raise ValueError(
                f"a batch of {batch_size} needs {self.num_classes} classes with {per_class} images "
                f"each, the training classes that can be drawn are {len(self._members)}: "
                f"lower batch_size or raise per_class"
            )
        self._dealt = -1  # the last epoch dealt from the decks
        self._decks: tuple[Deck, list[Deck]] | None = None

    @property
    def num_classes(self) -> int:
        """Classes in a batch."""
        return self.batch_size // self.per_class

    def __len__(self) -> int:
        return super().__len__() if self.steps is None else self.steps

    def left_out(self) -> dict[str, str]:
        reasons = {"one image, no positive pair": self._single}
        reasons[f"fewer than {self.per_class} images"] = self._small
        return {f"{count} classes": why for why, count in reasons.items() if count}

    def batches(self, epoch: int) -> list[IntArray]:
        if self.variant != "walk":
            generator = np.random.default_rng([self.seed, epoch])
            return [self._drawn(generator) for _ in range(len(self))]
        if self._decks is None or epoch <= self._dealt:  # decks remember: replay from the start
            self._decks, self._dealt = self._new_decks(), -1
        for earlier in range(self._dealt + 1, epoch):
            self._deal(*self._decks)
            self._dealt = earlier
        self._dealt = epoch
        return self._deal(*self._decks)

    def _new_decks(self) -> tuple[Deck, list[Deck]]:
        generator = np.random.default_rng(self.seed)
        classes = Deck(np.arange(len(self._members)), generator)
        return classes, [Deck(members, generator) for members in self._members]

    def _deal(self, classes: Deck, images: list[Deck]) -> list[IntArray]:
        def group(deck: Deck) -> IntArray:
            drawn = deck.draw(min(self.per_class, len(deck.cards)))
            return self._filled(drawn, deck.generator)

        return [
            np.concatenate([group(images[c]) for c in classes.draw(self.num_classes)])
            for _ in range(len(self))
        ]

    def _drawn(self, generator: np.random.Generator) -> IntArray:
        again = self.variant == "revisit_code"

        def group(members: IntArray) -> IntArray:
            size = self.per_class if again else min(self.per_class, len(members))
            return self._filled(generator.choice(members, size, replace=again), generator)

        classes = generator.choice(len(self._members), self.num_classes, replace=again)
        return np.concatenate([group(self._members[c]) for c in classes])

    def _filled(self, group: IntArray, generator: np.random.Generator) -> IntArray:
        """A small class repeats some of its images."""
        missing = self.per_class - len(group)
        return np.concatenate([group, generator.choice(group, missing)]) if missing else group
