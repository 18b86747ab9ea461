"""M-per-class sampler."""

import math
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from unseen.core.contracts import IntArray
from unseen.samplers.base import (
    BatchSampler,
    ClassIndex,
    Deck,
    Replayed,
    check_enough_classes,
    check_groups,
)

VARIANT_NAMES = ("walk", "uniform", "by_size", "revisit_code", "thesis_code")
SMALL_CLASSES = ("resample", "skip", "resample_singles")


class MPerClassSampler(BatchSampler):
    """M per class: batches of P classes with n images each (SPC-n, "P x K").

    Rule:
        variant="walk": classes are dealt from a shuffled deck, and so are the images of each class,
        round after round: no batch holds a class twice, every class and, over time, every image of
        a class comes equally often.
        variant="uniform": P distinct classes and n distinct images, drawn afresh for each batch.
        variant="by_size": likewise, but a class is drawn in proportion to its images (Vo & Hays).
        variant="revisit_code": classes and images drawn with replacement, as the released code
        does: with P = 56 a batch then holds only 43 different ones of CUB's 100 classes.
        variant="thesis_code": distinct classes, images drawn with replacement.

    Paper:
        K. Roth et al., Revisiting Training Strategies and Generalization Performance in Deep
        Metric Learning, ICML 2020, https://arxiv.org/abs/2002.08473 (SPC-n); the walk
        is HORDE's loader.

    Args:
        items: data set positions to draw from.
        labels: the class of each item.
        batch_size: P * n; 112 (Roth), 100 or 180 (Psomas), 40 (HORDE), 100 (density adaptivity), 32
            (Vo & Hays).
        per_class: n, images of a class in a batch; 2 (Roth), 5 (Psomas), 8 (HORDE), 10 (density
            adaptivity), 2 (Vo & Hays).
        variant: walk, uniform, by_size, revisit_code or thesis_code, see the rule.
        small_classes: a class with fewer than n images gives all it has and repeats some
            ("resample"), or is left out ("skip"). A class with one image is left out, for it has no
            positive pair, unless "resample_singles" repeats that image: augmentation then makes
            the only difference.
        temperature: with uniform (or walk, which then is uniform) a class is drawn in proportion to
            its images to this power: 0 draws all classes alike, 1 is by_size, 0.5 lies between,
            for data with a long tail of small classes.
        steps: batches in an epoch; None: items / batch_size.
        seed: of all draws.

    Example:
        >>> import numpy as np
        >>> from unseen.samplers import MPerClassSampler
        >>> labels = np.arange(20) // 5
        >>> sampler = MPerClassSampler(np.arange(20), labels, batch_size=8, per_class=4)
        >>> [np.unique(labels[batch], return_counts=True)[1].tolist() for batch in sampler]
        [[4, 4], [4, 4]]
    """

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "revisit": {"per_class": 2, "variant": "uniform"},
        "revisit_code": {"per_class": 2, "variant": "revisit_code"},
        "thesis": {"per_class": 5, "variant": "uniform"},
        "thesis_code": {"per_class": 5, "variant": "thesis_code"},
        "density": {"per_class": 10, "variant": "uniform"},
        "horde": {"per_class": 8},
        "vo_hays": {"per_class": 2, "variant": "by_size"},
    }

    def __init__(
        self,
        items: IntArray,
        labels: IntArray,
        batch_size: int,
        per_class: int = 4,
        variant: str = "walk",
        small_classes: str = "resample",
        temperature: float | None = None,
        steps: int | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(items, labels, batch_size, seed, steps)
        check_groups(batch_size, per_class)
        if variant not in VARIANT_NAMES:
            raise ValueError(f"variant must be one of {', '.join(VARIANT_NAMES)}, got {variant!r}")
        if small_classes not in SMALL_CLASSES:
            allowed = ", ".join(SMALL_CLASSES)
            raise ValueError(f"small_classes must be one of {allowed}, got {small_classes!r}")
        if temperature is not None:
            if variant not in ("walk", "uniform") or not math.isfinite(temperature):
                raise ValueError(
                    "temperature must be a number, and goes with variant uniform, got "
                    f"temperature={temperature}, variant={variant!r}"
                )
            variant = "uniform"
        self.per_class, self.variant, self.num_classes = per_class, variant, batch_size // per_class
        self._index = ClassIndex(self.items, self.labels)
        self._smallest = {"resample": 2, "skip": max(2, per_class)}.get(small_classes, 1)
        eligible = np.flatnonzero(self._index.sizes >= self._smallest)
        enough = max(1, len(eligible)) if variant == "revisit_code" else self.num_classes
        check_enough_classes(len(eligible), enough * per_class, per_class)
        self._members = [self._index.members[c] for c in eligible]
        sizes = self._index.sizes[eligible]
        self._fractions = sizes / sizes.sum() if variant == "by_size" else None
        if temperature is not None:
            self._fractions = _by_power(sizes, temperature)
        self._walked = Replayed(self._walk)

    def left_out(self) -> dict[str, int]:
        return self._index.left_out(self._smallest)

    def draw(self, epoch: int) -> list[IntArray]:
        if self.variant == "walk":
            return self._walked[epoch]
        generator = np.random.default_rng([self.seed, epoch])
        return [self._drawn(generator) for _ in range(self.steps)]

    def _walk(self) -> Iterator[list[IntArray]]:
        """One epoch after another, from decks that go on."""
        generator = np.random.default_rng(self.seed)
        classes = Deck(np.arange(len(self._members)), generator)
        images = [Deck(members, generator) for members in self._members]

        def group(deck: Deck) -> IntArray:
            return self._filled(deck.draw(min(self.per_class, len(deck.cards))), generator)

        while True:
            yield [
                np.concatenate([group(images[c]) for c in classes.draw(self.num_classes)])
                for _ in range(self.steps)
            ]

    def _drawn(self, generator: np.random.Generator) -> IntArray:
        again = self.variant in ("revisit_code", "thesis_code")
        classes_again = self.variant == "revisit_code"

        def group(members: IntArray) -> IntArray:
            size = self.per_class if again else min(self.per_class, len(members))
            return self._filled(generator.choice(members, size, replace=again), generator)

        classes = generator.choice(
            len(self._members), self.num_classes, replace=classes_again, p=self._fractions
        )
        return np.concatenate([group(self._members[c]) for c in classes])

    def _filled(self, group: IntArray, generator: np.random.Generator) -> IntArray:
        """A small class repeats some of its images."""
        missing = self.per_class - len(group)
        return np.concatenate([group, generator.choice(group, missing)]) if missing else group


def _by_power(sizes: IntArray, temperature: float) -> NDArray[np.float64]:  # [C]
    """The share of each class, its size to a power."""
    powers = temperature * np.log(sizes)
    weights: NDArray[np.float64] = np.exp(powers - powers.max())
    if not weights.all():
        raise ValueError(
            f"temperature={temperature} is so far from 0 that some classes would never be drawn: "
            "values between 0 and 1 are usual"
        )
    return weights / weights.sum()
