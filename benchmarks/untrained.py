"""Networks before training beside a paper's table: a check of data, network and evaluation at once.

    unseen data features path/to/CUB_200_2011 backbone=resnet50_caffe \\
        weights=resnet50_caffe.safetensors pooling=avg --out cub.npz
    python benchmarks/untrained.py cub.npz cub200

K. Roth et al. (Revisiting Training Strategies and Generalization Performance in Deep Metric
Learning, ICML 2020) evaluate ImageNet weights under a random linear layer on the test halves. Here
the pooled features as they are, and under such a layer (uniform in 1/sqrt(P) on both sides of 0, as
torch starts it), recall@1 by the cosine, mean of several layers with their deviation.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from unseen.evaluation.evaluate import evaluate
from unseen.reproductions.numbers import table

R1, PUBLISHED = "recall@1", "revisit_backbones_untrained"


def test_half(file: Path) -> tuple[Tensor, Tensor]:
    """Features and labels of the test classes; a file without parts is all of them."""
    with np.load(file) as held:
        tested = held["split"] == "test" if "split" in held else slice(None)
        return torch.from_numpy(held["features"][tested]), torch.from_numpy(held["labels"][tested])


def recall(embeddings: Tensor, labels: Tensor) -> float:
    return 100 * evaluate(embeddings, labels, metrics=(R1,), resamples=0).values[R1].value


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("features", type=Path, help="of `unseen data features`")
    parser.add_argument("data", choices=("cub200", "cars196", "online_products"))
    parser.add_argument("--network", default="resnet50", help="its column in the paper's table")
    parser.add_argument("--sizes", type=int, nargs="+", default=[128, 512])
    parser.add_argument("--layers", type=int, default=10, help="random layers of each size")
    words = parser.parse_args()
    features, labels = test_half(words.features)
    print(f"{len(features):,} images of {len(labels.unique())} classes, recall@1 in percent")
    print(f"  {features.shape[1]} features as they are   {recall(features, labels):5.2f}")
    for size in words.sizes:
        scores = []
        for seed in range(words.layers):
            torch.manual_seed(seed)
            layer = torch.nn.Linear(features.shape[1], size)
            with torch.no_grad():
                scores.append(recall(layer(features), labels))
        spread = f"±{np.std(scores, ddof=1):.2f} over {words.layers} layers"
        print(f"  a random linear layer to {size:4} {np.mean(scores):5.2f} {spread}")
    (row,) = [row for row in table(PUBLISHED) if row["dataset"] == words.data]
    print(f"  published, a random linear layer {row[words.network]}")


if __name__ == "__main__":
    main()
