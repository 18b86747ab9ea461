"""What an index of 8-bit integers loses: python benchmarks/rounded.py [features.npz]

Vectors go into an index of float32 and one of int8: bytes of both, the bound on similarities, the
share of the ten nearest by the first that the second finds, and what `unseen index info` estimates
of it. Clouds around 10,000 centres, 100,000 x 128; of a file the rows with labels from 100 on, also
on the first 128 and 512 principal directions of the others.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from unseen.search.index import Index
from unseen.search.index_info import describe
from unseen.search.manifest import ModelEntry, Precision
from unseen.search.segment import Metadata, NewImage
from unseen.search.writer import Writer

QUERIES = 1000


def written(folder: Path, x: NDArray[np.float32], precision: Precision) -> Index:
    entry = ModelEntry(run="/nowhere", fingerprint="f" * 32, size=x.shape[1], normalize=True)
    with Writer.create(folder / precision, entry, precision=precision) as writer:
        for first in range(0, len(x), 8192):
            part = enumerate(x[first : first + 8192], start=first)
            writer.add([NewImage(Metadata(f"/{i}.jpg", None, 1, 1), row, b"x") for i, row in part])
    return Index.open(folder / precision)


def compare(name: str, x: NDArray[np.float32]) -> None:
    x = (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)
    with tempfile.TemporaryDirectory() as folder:
        floats, rounded = (written(Path(folder), x, p) for p in ("float32", "int8"))
        ids = np.random.default_rng(1).choice(floats.ids, min(QUERIES, len(x)), replace=False)
        whole, result = (
            index.search(index.vectors(ids), 11).ids[:, 1:] for index in (floats, rounded)
        )
        fraction = (whole[:, :, None] == result[:, None]).any(axis=2).mean()
        known, before = describe(rounded), describe(floats).num_bytes["vectors"]
    print(
        f"| {name}, {len(x):,} x {x.shape[1]} | {before / known.num_bytes['vectors']:.2f} | "
        f"{known.largest_error:.4f} | {known.mean_error:.4f} | {100 * fraction:.1f} % | "
        f"{100 * (known.recall or 0):.1f} % |",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("features", type=Path, nargs="?")
    request = parser.parse_args()
    print("| vectors | bytes, times fewer | largest error | mean | ten nearest found | estimated |")
    print("|---|---:|---:|---:|---:|---:|")
    draw = np.random.default_rng(0)
    centers = draw.normal(size=(10_000, 128))[draw.integers(0, 10_000, 100_000)]
    compare("clouds", (centers + 0.7 * draw.normal(size=centers.shape)).astype(np.float32))
    if request.features is not None:
        with np.load(request.features) as held:
            x, labels = held["features"].astype(np.float32), held["labels"]
        train, test = x[labels < 100], x[labels >= 100]
        directions = np.linalg.svd(train - train.mean(axis=0), full_matrices=False)[2]
        compare("as given", test)
        for size in (128, 512):
            compare("principal", (test - train.mean(axis=0)) @ directions[:size].T)


if __name__ == "__main__":
    main()
