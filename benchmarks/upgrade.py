"""What mapped vectors find, on features of two networks: the table of docs/upgrade.md.

    unseen features cub200 data.root=path/to/CUB_200_2011 picture_size=224 \\
        --backbone efficientnet_lite0 --out lite0.npz      # and efficientnet_lite2, lite2.npz
    python benchmarks/upgrade.py lite0.npz lite2.npz

Maps are fitted on the first 70 % of the training classes, one is chosen on the others, and all are
judged on the test classes, which neither saw; features are compared by cosine as they are.
"""

import argparse
import time
from pathlib import Path

import numpy as np

from unseen.search.space_map import fit_maps
from unseen.search.upgrade import Pairs, answers_mapped, recalls


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    asked = parser.parse_args()
    old, new = (np.load(path) for path in (asked.old, asked.new))
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
    maps = fit_maps(train.old, train.new, normalise=True)
    print(f"{len(train.labels):,} pairs, fitted in {time.perf_counter() - began:.0f} s\n")
    tables = [recalls(maps, pairs, normalise=True) for pairs in (validation, test)]
    best = max(maps, key=lambda each: tables[0][answers_mapped(each)].value)
    print("| who asks -> who answers | validation classes | test classes |")
    print("|---|--:|--:|")
    for name in tables[0]:
        cells = [
            f"{100 * s.value:.1f} ({100 * s.low:.1f} to {100 * s.high:.1f})"
            for s in (table[name] for table in tables)
        ]
        print(f"| {name} | {' | '.join(cells)} |")
    print(f"\nchosen: {best.kind}")


def unit(features: np.ndarray) -> np.ndarray:
    rows = features.astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


if __name__ == "__main__":
    main()
