"""What mapped vectors find, on features of two networks: the table of docs/upgrade.md.

    unseen data features cub200 data.root=path/to/CUB_200_2011 image_size=224 \\
        backbone=efficientnet_lite0 --out lite0.npz      # and efficientnet_lite2, lite2.npz
    python benchmarks/upgrade.py lite0.npz lite2.npz

Maps are fitted on the first 70 % of the training classes, one is chosen on the others, and all are
evaluated on the test classes, which neither saw; features are compared by cosine as they are.
"""

import argparse
import time
from pathlib import Path

import numpy as np

from unseen.search import upgrade
from unseen.search.upgrade import Pairs, chosen, compare, fit_maps


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--most-stretch", type=float, default=upgrade.MOST_STRETCH)
    request = parser.parse_args()
    upgrade.MOST_STRETCH = request.most_stretch
    old, new = (np.load(path) for path in (request.old, request.new))
    assert (old["labels"] == new["labels"]).all(), "two data sets"
    vectors = [unit(held["features"]) for held in (old, new)]
    labels, is_test = old["labels"].astype(np.int64), old["split"] == "test"
    classes = np.unique(labels[~is_test])
    fitted = np.isin(labels, classes[: round(0.7 * len(classes))])
    train, validation, test = (
        Pairs(vectors[0][part], vectors[1][part], labels[part])
        for part in (fitted, ~fitted & ~is_test, is_test)
    )
    began = time.perf_counter()
    maps = fit_maps(train.old, train.new, normalize=True)
    print(f"{len(train.labels):,} pairs, fitted in {time.perf_counter() - began:.0f} s\n")
    tables = [compare(maps, pairs, normalize=True) for pairs in (validation, test)]
    print("| who asks -> who answers | validation: recall@1 | mAP@R | test: recall@1 | mAP@R |")
    print("|---|--:|--:|--:|--:|")
    for name in tables[0]:
        cells = []
        for result in (table[name] for table in tables):
            mean, low, high = (100 * x for x in vars(result.recall).values())
            cells += [f"{mean:.1f} ({low:.1f} to {high:.1f})", f"{100 * result.map_at_r:.1f}"]
        print(f"| {name} | {' | '.join(cells)} |")
    print(f"\nchosen: {chosen(maps, tables[0]).kind}")


def unit(features: np.ndarray) -> np.ndarray:
    rows = features.astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


if __name__ == "__main__":
    main()
