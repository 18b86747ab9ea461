"""Splits of growing shift of any data set, written as a table: of its features, or of descriptors
that its backbone gives of its images."""

from pathlib import Path

import torch

from unseen.config.resolve import resolve
from unseen.config.schema import Config
from unseen.core.contracts import Dataset, FeatureDataset
from unseen.evaluation.shift_splits import ShiftSplits, shift_splits
from unseen.protocols.shift import own_halves
from unseen.runs.extract_features import computed_features
from unseen.runs.prepare import Callbacks


def make_shift_splits(
    config: Config, dataset: Dataset, out: Path, callbacks: Callbacks
) -> ShiftSplits:
    """Computes the descriptors where there are none, measures, and writes the table."""
    own = own_halves(dataset, config.evaluation.protocol.split_seed)
    progress = callbacks.of("measuring shifts")
    if isinstance(dataset, FeatureDataset):
        of = f"features of {dataset.name}"
        stages = shift_splits(dataset.features, dataset.labels, own, of, progress)
    else:
        resolved, _ = resolve(config, dataset)
        torch.set_num_threads(resolved.training.machine.threads)
        weights = resolved.model.weights or "random weights"
        of = f"{resolved.model.backbone} ({weights}), pooling {resolved.model.pooling}"
        computing = callbacks.of("computing features")
        with computed_features(resolved, dataset, out, computing) as features:
            stages = shift_splits(features, dataset.labels, own, of, progress)
    stages.write(out, dataset.label_names)
    return stages
