"""The map of the test embeddings: t-SNE of a sample, a colour per class, thumbnails on one sheet.

Method   L. van der Maaten, G. Hinton, Visualizing Data using t-SNE, JMLR 2008, by openTSNE:
         50 principal components first, the first two as the start, so that the same embeddings
         give the same map.
Sample   at most 3,000 items (about 6 s on one core), the same number of every class.
Colour   hues a golden angle apart in OKLCH, three lightnesses: neighbouring classes differ.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from openTSNE import TSNE

from unseen.core.contracts import Dataset, FeatureDataset
from unseen.reports.queries import ResultItems
from unseen.reports.stored_run import TestEmbeddings
from unseen.reports.thumbnails import sheet

MOST_POINTS = 3000
FEWEST_POINTS = 10
COMPONENTS = 50
TILE = 40
SEED = 0


def sample(labels: NDArray[np.int64], most: int = MOST_POINTS) -> NDArray[np.int64]:
    """Positions of at most `most` items: all, or equally many of each class (4 or more)."""
    if len(labels) <= most:
        return np.arange(len(labels))
    rng = np.random.default_rng(SEED)
    classes = rng.permutation(np.unique(labels))
    each = max(4, most // len(classes))
    shuffled = rng.permutation(len(labels))
    shuffled = shuffled[np.isin(labels[shuffled], classes[: most // each])]
    shuffled = shuffled[np.argsort(labels[shuffled], kind="stable")]
    _, first, counts = np.unique(labels[shuffled], return_index=True, return_counts=True)
    place_in_class = np.arange(len(shuffled)) - np.repeat(first, counts)
    chosen: NDArray[np.int64] = np.sort(shuffled[place_in_class < each])
    return chosen


def flatten(embeddings: NDArray[np.float32], normalize: bool) -> NDArray[np.float64]:
    """Two coordinates per item, [n, 2]."""
    x = embeddings.astype(np.float64)
    if normalize:
        x /= np.linalg.norm(x, axis=1, keepdims=True) + 1e-12
    x -= x.mean(axis=0)
    left, scale, right = np.linalg.svd(x, full_matrices=False)
    # the sign of a component is arbitrary: its largest loading is made positive
    sign = np.sign(right[np.arange(len(right)), np.abs(right).argmax(axis=1)])
    x = (left * scale * sign)[:, :COMPONENTS]
    start = np.zeros((len(x), 2))
    start[:, : x.shape[1]] = x[:, :2]
    start *= 1e-4 / max(float(start[:, 0].std()), 1e-12)
    tsne = TSNE(
        perplexity=min(30, (len(x) - 1) / 3),
        initialization=start,
        neighbors="exact",
        negative_gradient_method="bh",
        early_exaggeration_iter=150,
        n_iter=400,
        n_jobs=1,
        random_state=SEED,
    )
    return np.asarray(tsne.fit(x))


def class_colors(count: int) -> list[str]:
    """One colour per class, of middling lightness so that it shows on white and on black."""
    return [_oklch((0.55, 0.72, 0.63)[c % 3], 0.15, 2.39996 * c) for c in range(count)]


def map_data(
    test: TestEmbeddings, result: ResultItems, dataset: Dataset, normalize: bool
) -> dict[str, Any] | None:
    """What the page's script draws; None when there are too few items."""
    if len(test) < FEWEST_POINTS:
        return None
    points = sample(test.labels)
    place = flatten(test.embeddings[points], normalize)
    place -= (place.max(axis=0) + place.min(axis=0)) / 2
    place /= np.abs(place).max() or 1.0
    nearest = result.positions[points, 0]
    classes, of_point = np.unique(test.labels[points], return_inverse=True)
    uri, columns = None, 1
    if not isinstance(dataset, FeatureDataset):
        uri, columns = sheet(dataset, test.indices[points].tolist(), TILE)
    return {
        "x": np.round(place[:, 0], 3).tolist(),
        "y": np.round(place[:, 1], 3).tolist(),
        "classOf": of_point.tolist(),
        "names": [str(dataset.label_names[c]) for c in classes],
        "colors": class_colors(len(classes)),
        "right": result.matches[points, 0].astype(int).tolist(),
        "alone": (~result.askable[points]).astype(int).tolist(),
        "nearest": [str(dataset.label_names[c]) for c in test.labels[nearest]],
        "sheet": uri,
        "columns": columns,
        "rows": math.ceil(len(points) / columns),
        "total": len(test),
    }


def _oklch(lightness: float, chroma: float, hue: float) -> str:
    """A colour of Ottosson's OKLCH space as #rrggbb, clipped to what screens show."""
    a, b = chroma * math.cos(hue), chroma * math.sin(hue)
    long = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3
    middle = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3
    short = (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3
    linear = (
        4.0767416621 * long - 3.3077115913 * middle + 0.2309699292 * short,
        -1.2684380046 * long + 2.6097574011 * middle - 0.3413193965 * short,
        -0.0041960863 * long - 0.7034186147 * middle + 1.7076147010 * short,
    )
    clipped = [min(max(value, 0.0), 1.0) for value in linear]
    channels = [12.92 * v if v <= 0.0031308 else 1.055 * v ** (1 / 2.4) - 0.055 for v in clipped]
    return "#" + "".join(f"{round(255 * value):02x}" for value in channels)
