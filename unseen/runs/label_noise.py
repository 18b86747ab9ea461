"""Wrong labels on purpose, for studies: `label_noise=0.2` changes a fifth of the training labels.

Paper    C. Liu et al., Noise-resistant Deep Metric Learning with Ranking-based Instance Selection,
         CVPR 2021, https://arxiv.org/abs/2103.16047 (both kinds, at 10 to 50 %)
Kinds    symmetric      round(share * n) items, each gets one of the other training classes, all
                        equally likely
         small_cluster  whole classes are dissolved, at random, until the share is reached: k-means
                        makes half as many clusters as the class has items, and each goes to one of
                        the classes that stay. As where one name stood for two things: items are
                        wrong together, and belong to no class that is left.
Clusters are found in the features, or in grey images of 16 x 16 (ours; the authors have those of
a pretrained network).

All is drawn from the run's seed and the training items: the same run has the same wrong labels, and
an item that is wrong at one share is wrong at every larger one. Validation and test items keep
their labels, and scores are by the labels as given, also those on training classes.
"""

import numpy as np
import torch
from numpy.typing import NDArray

from unseen.config.tables import LabelNoiseSettings
from unseen.core.contracts import Dataset, FeatureDataset, IntArray, PixelDataset
from unseen.data.images.duplicates import appearance
from unseen.evaluation.clustering import cluster

STREAM = 27  # of the generator: no other part of a run draws from (seed, 27)


def with_noise(
    dataset: Dataset, train: IntArray, noise: LabelNoiseSettings, seed: int
) -> IntArray:  # [n]
    """The labels of all items, those of the training items wrong by the given share."""
    labels, generator = dataset.labels.copy(), np.random.default_rng([seed, STREAM])
    classes = np.unique(labels[train])
    if len(classes) < 2:
        raise ValueError(f"label_noise needs 2 training classes or more, got {len(classes)}")
    if noise.kind == "symmetric":
        order = generator.permutation(len(train))
        place = np.searchsorted(classes, labels[train])  # of each item's class among them
        steps = generator.integers(1, len(classes), len(train))
        changed = order[: round(noise.fraction * len(train))]
        labels[train[changed]] = classes[(place + steps)[changed] % len(classes)]
        return labels
    order = generator.permutation(classes)
    reached = np.cumsum([np.count_nonzero(labels[train] == c) for c in order])
    number = 1 + int(np.searchsorted(reached, noise.fraction * len(train)))
    if number >= len(classes):
        raise ValueError(
            f"label_noise.fraction={noise.fraction} would dissolve all {len(classes)} training "
            "classes"
        )
    for dissolved in order[:number]:
        items = train[dataset.labels[train] == dissolved]
        targets = generator.choice(order[number:], len(items))
        labels[items] = targets[_clusters(dataset, items, seed)]
    return labels


def _clusters(dataset: Dataset, items: IntArray, seed: int) -> IntArray:  # [n]
    """Small ones: half as many as there are items."""
    images = torch.from_numpy(_images(dataset, items))
    number = max(1, len(items) // 2)
    result = cluster(images, number, starts=1, normalize=True, seed=seed)[0]
    assignments: IntArray = result.assignments.numpy()
    return assignments


def _images(dataset: Dataset, items: IntArray) -> NDArray[np.float32]:  # [n, P]
    if isinstance(dataset, FeatureDataset):
        return np.asarray(dataset.features[items], dtype=np.float32)
    if isinstance(dataset, PixelDataset):
        pixels = dataset.arrays()[items]
    else:
        pixels = np.stack([appearance(dataset.image(int(item)))[1] for item in items])
    return pixels.reshape(len(items), -1).astype(np.float32)
