"""How often the true false match rate exceeds `upper_bound`, in worlds whose truth is known.

    python -m tests.evaluation.bound_worlds        # writes the tables of docs/serving.md

A world is a draw of classes from a population, with eight images each, as unit vectors. The
population's true rate at a threshold comes from 300,000 other classes of it. The threshold is fixed
(its true rate is the wanted one), or chosen on the world as `calibrate` does.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from unseen.evaluation.calibration import upper_bound

Floats = NDArray[np.floating]

IMAGES, DIMENSIONS, NOISE = 8, 24, 0.3
CLASSES, RATES = (4, 8, 16, 32, 64), (1e-1, 1e-2, 1e-3)
CONFIDENCE, WORLDS = 0.95, 2000
BINS, POPULATION, DRAWS = 200_000, 1000, 300
ENTRIES = 4_000_000  # similarities at a time
PAGE = Path(__file__).parents[2] / "docs" / "serving.md"
MARK, END = "<!-- made by: python -m tests.evaluation.bound_worlds -->", "<!-- end of worlds -->"


@dataclass(frozen=True)
class Structure:
    """A population. superclasses: how many, the n-th with a share of classes that falls as 1 / n;
    hubs: spread of the logarithm of what a class has of one common direction."""

    name: str
    superclasses: int = 0
    hubs: float = 0.0

    def draw(
        self, generator: np.random.Generator, worlds: int, classes: int, images: int
    ) -> Floats:  # [W, C, m, D]
        """Unit vectors of worlds with so many classes and images of each."""

        def normal(*size: int) -> Floats:
            return generator.standard_normal((*size, DIMENSIONS), np.float32) / DIMENSIONS**0.5

        centers = normal(worlds, classes)
        if self.superclasses:
            fraction = 1 / np.arange(1, self.superclasses + 1)
            kind = generator.choice(len(fraction), (worlds, classes), p=fraction / fraction.sum())
            centers = 0.6**0.5 * self._superclasses()[kind] + 0.4**0.5 * centers
        vectors = (1 - NOISE) ** 0.5 * centers[:, :, None] + NOISE**0.5 * normal(
            worlds, classes, images
        )
        if self.hubs:
            logarithm = self.hubs * generator.standard_normal((worlds, classes, 1))
            noise = 0.2 * generator.standard_normal((worlds, classes, images))  # images, too
            logarithm = logarithm + noise
            vectors[..., 0] += 0.5 * np.exp(logarithm)
        unit: Floats = vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)
        return unit.astype(np.float32)

    def _superclasses(self) -> Floats:
        drawn = np.random.default_rng(12345).standard_normal((self.superclasses, DIMENSIONS))
        return (drawn / DIMENSIONS**0.5).astype(np.float32)


STRUCTURES = (
    Structure("independent"),
    Structure("superclasses", superclasses=16),
    Structure("hubs", hubs=0.4),
)
STRONGER = Structure("stronger hubs", hubs=0.6)


@dataclass(frozen=True)
class Cell:
    """exceeded: share of worlds whose true rate is above the bound; ratio: median of bound by
    true rate."""

    exceeded: float
    ratio: float

    def __str__(self) -> str:
        return f"{100 * self.exceeded:.1f} % ({self.ratio:.3g})"


@cache
def population(structure: Structure, draws: int = DRAWS) -> Floats:  # [BINS]
    """Share of the pairs of two classes at or above each of `BINS` similarities from -1 to 1."""
    generator, counts = np.random.default_rng(999), np.zeros(BINS)
    first, second = np.triu_indices(POPULATION, 1)
    for _ in range(draws):
        one = structure.draw(generator, 1, POPULATION, 1)[0, :, 0]  # [P, D]
        place = ((one @ one.T)[first, second] + 1) * (BINS / 2)
        counts += np.bincount(place.astype(np.int64).clip(0, BINS - 1), minlength=BINS)
    tail: Floats = counts[::-1].cumsum()[::-1] / counts.sum()
    return tail


def true_rate(tail: Floats, threshold: Floats) -> Floats:
    return np.interp((threshold + 1) * (BINS / 2), np.arange(BINS), tail)


def chosen_threshold(wrong: Floats, right: Floats, rate: float) -> Floats:  # [W]
    """Halfway between the first wrong pair that is one too many and the next pair above it."""
    allowed = int(rate * wrong.shape[1] + 1e-9)
    place = wrong.shape[1] - allowed - 1
    below = np.partition(wrong, place, axis=1)[:, place]
    step = below + np.float32(2.0**-20)
    next_above = [
        np.where(pairs > below[:, None], pairs, np.inf).min(axis=1) for pairs in (wrong, right)
    ]
    above = np.minimum(*next_above)
    return (below + np.where(np.isinf(above), step, above)) / 2


def bounds(wrong: Floats, threshold: Floats) -> Floats:  # [W]
    """Of worlds with similarities [W, pairs of classes, pairs of their images]."""
    classes = round((2 * wrong.shape[1]) ** 0.5 + 0.5)
    member = np.zeros((wrong.shape[1], classes))  # which pairs of classes a class is in
    for side in np.triu_indices(classes, 1):
        member[np.arange(len(member)), side] = 1
    accepted = torch.from_numpy((wrong >= threshold[:, None, None]).sum(axis=2) @ member)  # [W, C]
    pairs = torch.full((classes,), float((classes - 1) * wrong.shape[2]), dtype=torch.float64)
    sizes = torch.full((classes,), round(wrong.shape[2] ** 0.5))
    return np.array([upper_bound(counts, pairs, sizes, CONFIDENCE) for counts in accepted])


def similarities(
    structure: Structure, classes: int, worlds: int
) -> Iterator[tuple[Floats, Floats, Floats]]:
    """Vectors, similarities of wrong pairs [W, pairs of classes, m^2], of right pairs [W, .]."""
    generator = np.random.default_rng([classes, worlds])
    step = max(1, ENTRIES // (classes * IMAGES) ** 2)
    first, second = np.triu_indices(classes, 1)
    own = np.triu_indices(IMAGES, 1)
    for start in range(0, worlds, step):
        vectors = structure.draw(generator, min(step, worlds - start), classes, IMAGES)
        flat = vectors.reshape(len(vectors), -1, DIMENSIONS)
        sim = flat @ flat.transpose(0, 2, 1)
        sim = sim.reshape(len(sim), classes, IMAGES, classes, IMAGES).transpose(0, 1, 3, 2, 4)
        wrong = sim[:, first, second].reshape(len(sim), len(first), -1)
        right = sim[:, np.arange(classes), np.arange(classes)][:, :, own[0], own[1]]
        yield vectors, wrong, right.reshape(len(sim), -1)


def simulate(
    structure: Structure,
    classes: int,
    worlds: int = WORLDS,
    rates: tuple[float, ...] = RATES,
    draws: int = DRAWS,
) -> dict[tuple[str, float], Cell]:
    """By how the threshold is found, "fixed" or "chosen", and by rate."""
    tail = population(structure, draws)
    results: dict[tuple[str, float], list[tuple[Floats, Floats]]] = {}
    for _, wrong, right in similarities(structure, classes, worlds):
        flat = wrong.reshape(len(wrong), -1)
        for rate in rates:
            fixed = 2 * np.searchsorted(-tail, -rate) / BINS - 1
            thresholds = {
                "fixed": np.full(len(wrong), fixed),
                "chosen": chosen_threshold(flat, right, rate),
            }
            for how, threshold in thresholds.items():
                pair = (bounds(wrong, threshold), true_rate(tail, threshold))
                results.setdefault((how, rate), []).append(pair)
    cells = {}
    for key, parts in results.items():
        bound, truth = (np.concatenate(values) for values in zip(*parts, strict=True))
        cells[key] = Cell(float((truth > bound).mean()), float(np.median(bound / truth)))
    return cells


def row(structure: Structure, classes: int, cells: dict[tuple[str, float], Cell]) -> str:
    values = [str(cells[how, rate]) for how in ("fixed", "chosen") for rate in RATES]
    return f"| {structure.name} | {classes} | {' | '.join(values)} |"


def main() -> None:
    heads = [f"{how}, {rate:g}" for how in ("fixed", "chosen") for rate in RATES]
    lines = [f"| world | classes | {' | '.join(heads)} |", "|---|---:|" + "---:|" * len(heads)]
    for structure in (*STRUCTURES, STRONGER):
        for classes in CLASSES:
            lines.append(row(structure, classes, simulate(structure, classes)))
            print(lines[-1], flush=True)
    before, _, rest = PAGE.read_text("utf-8").partition(MARK)
    after = rest.partition(END)[2]
    PAGE.write_text(before + MARK + "\n\n" + "\n".join(lines) + "\n\n" + END + after, "utf-8")


if __name__ == "__main__":
    main()
