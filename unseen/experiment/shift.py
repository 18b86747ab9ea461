"""A ladder of shifts of any data set, written as a table: of its features, or of descriptors that
its backbone gives of its pictures."""

from pathlib import Path

import torch

from unseen.config import Config
from unseen.contracts import Dataset, FeatureDataset
from unseen.evaluation.shift import ShiftLadder, shift_ladder
from unseen.experiment.features import computed_features
from unseen.experiment.run_context import Watch
from unseen.protocols.shift import own_halves
from unseen.settle import settle


def make_ladder(config: Config, dataset: Dataset, out: Path, watch: Watch) -> ShiftLadder:
    """Computes the descriptors where there are none, measures, and writes the table."""
    own = own_halves(dataset, config.split_seed)
    progress = watch.of("measuring shifts")
    if isinstance(dataset, FeatureDataset):
        of = f"features of {dataset.name}"
        ladder = shift_ladder(dataset.features, dataset.labels, own, of, progress)
    else:
        settled, _ = settle(config, dataset)
        torch.set_num_threads(settled.threads)
        of = (
            f"{settled.backbone} ({settled.weights or 'random weights'}), pooling {settled.pooling}"
        )
        with computed_features(settled, dataset, out, watch.of("computing features")) as features:
            ladder = shift_ladder(features, dataset.labels, own, of, progress)
    ladder.write(out, dataset.label_names)
    return ladder
