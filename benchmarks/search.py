"""What an index costs over the engine below it: python benchmarks/search.py [--count 100000]

    python benchmarks/search.py --features cub.npz     # of `unseen data features`: 90,000 x 512

Unit vectors of 128 numbers in an index on disk, against the same vectors in memory with raw torch
(one product, one selection) and raw faiss (IndexFlatIP, IndexHNSWFlat), in one process, in turn,
one thread, median of repeats. Times are of the processor, so that other work on a busy machine does
not count. Also: how long opening takes, how fast rows come in.

With --features the vectors are image features, along their first 512 principal directions and
turned at random, as often as needed with noise of a tenth of their length; the peer is faiss's
IndexFlatIPPanorama, on vectors turned back, and every call has other queries.
"""

import argparse
import itertools
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import faiss
import numpy as np
import torch
from timing import Row, add_rows, in_turn, middle, ratios

from unseen.neighbors.certified import Integers
from unseen.search.index import Index
from unseen.search.manifest import ModelEntry
from unseen.search.segment import Metadata, NewImage
from unseen.search.writer import Writer

SIZE, K = 128, 10
FEATURES, NOISE = (90_000, 512), 0.1
GOALS = {1: 1.2, 32: 2.0, 1000: 5.0}  # times Panorama


def message(title: str, times: dict[str, list[float]]) -> None:
    medians = {name: 1000 * statistics.median(values) for name, values in times.items()}
    ours = medians["index"]
    for name, value in medians.items():
        more = "" if name == "index" else f"  index: {ours - value:+.2f} ms, {ours / value:.2f} x"
        print(f"{title:28} {name:12} {value:9.2f} ms{more}")


def filled(path: Path, vectors: np.ndarray) -> None:
    size = vectors.shape[1]
    model = ModelEntry(run="/none", fingerprint="0" * 32, size=size, normalize=True)
    start = time.process_time()
    with Writer.create(path, model) as writer:
        for first in range(0, len(vectors), 1024):
            writer.add(
                [
                    NewImage(Metadata(f"/{first + i}.jpg", None, 1, 1), vector, b"x" * 1500)
                    for i, vector in enumerate(vectors[first : first + 1024])
                ]
            )
    spent = time.process_time() - start
    print(f"adding {len(vectors):,} rows: {spent:.1f} s, {len(vectors) / spent:,.0f} rows/s")


def integers(some: torch.Tensor, whole: torch.Tensor) -> None:
    """What no search here does without; blocks stay in a cache."""
    width = max(8192, 2**21 // len(some))
    out = torch.empty(len(some) * width, dtype=torch.int32)
    for part in whole.split(width):
        torch._int_mm(some, part.T, out=out[: len(some) * len(part)].view(len(some), len(part)))


def opening(path: Path, query: np.ndarray) -> None:
    times = in_turn({"index": lambda: Index.open(path)}, 5)
    start = time.process_time()
    Index.open(path).search(query, K)
    first = 1000 * (time.process_time() - start)
    opened = 1000 * statistics.median(times["index"])
    print(f"opening {opened:.1f} ms; opening and a first answer {first:.1f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument(
        "--approximate", action="store_true", help="also with faiss's bits and graph"
    )
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--features", type=Path, help="a file with an array `features`")
    parser.add_argument("--rows", type=Path, help="the ratios go into this file too")
    request = parser.parse_args()
    torch.set_num_threads(1)
    faiss.omp_set_num_threads(1)
    if request.features is not None:
        beside_panorama(request.features, request.repeats, request.rows)
        return
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(request.count // 20, SIZE)).astype(np.float32)
    vectors = np.repeat(centers, 20, axis=0)
    vectors += 0.7 * rng.normal(size=vectors.shape).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    queries = vectors[rng.integers(0, len(vectors), 1000)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "index"
        filled(path, vectors)
        opening(path, queries[:1])
        index, held, flat = Index.open(path), torch.from_numpy(vectors), faiss.IndexFlatIP(SIZE)
        print(f"{len(index.segments)} segments")
        flat.add(vectors)
        whole = Integers.of(held).whole
        for count in (1, 32, 1000):
            some = queries[:count]
            asking = torch.from_numpy(some)
            functions = {
                "index": lambda some=some: index.search(some, K),
                "raw torch": lambda asking=asking: (asking @ held.T).topk(K),
                "raw faiss": lambda some=some: flat.search(some, K),
                "integers": lambda some=whole[:count]: integers(some, whole),
            }
            repeats = request.repeats if count > 100 else 5 * request.repeats
            times = in_turn(functions, repeats)
            message(f"{count} queries, exact", times)
            work = f"{count:,} queries among {request.count:,} x {SIZE} on disk"
            seen = middle(ratios(times["raw faiss"], times["index"]))
            most = statistics.median(ratios(times["raw faiss"], times["integers"]))
            limit = (
                f"{most:.3g} times: the product of {whole.nbytes / 1e6:.3g} MB of integers alone"
            )
            peer = "faiss IndexFlatIP in memory"
            add_rows(request.rows, Row(work, peer, *seen, goal=1.3, limit=limit))
        if request.approximate:
            approximate(path, queries, request.repeats)


def beside_panorama(features: Path, repeats: int, rows: Path | None) -> None:
    rng = np.random.default_rng(0)
    count, size = FEATURES
    with np.load(features) as file:
        given = file["features"].astype(np.float32)
    turn = np.linalg.qr(rng.normal(size=(size, size)))[0].astype(np.float32)
    drawn = unit(given @ principal(given)[:, :size] @ turn)[rng.integers(0, len(given), count)]
    vectors, queries = noisy(drawn, rng), noisy(drawn[rng.integers(0, count, 3000)], rng)
    back = principal(vectors)
    panorama = faiss.IndexFlatIPPanorama(size, 16)
    panorama.add(vectors @ back)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "index"
        filled(path, vectors)
        opening(path, queries[:1])
        index = Index.open(path)
        for asked, goal in GOALS.items():
            calls = {
                "index": taking_turns(lambda some: index.search(some, K), queries, asked),
                "panorama": taking_turns(
                    lambda some: panorama.search(some @ back, K), queries, asked
                ),
            }
            times = in_turn(calls, {1: 40, 32: 4}.get(asked, 1) * repeats)
            message(f"{asked} queries, exact", times)
            work = f"{asked:,} queries among {count:,} x {size} image features on disk"
            seen = middle(ratios(times["panorama"], times["index"]))
            add_rows(rows, Row(work, "faiss IndexFlatIPPanorama in memory", *seen, goal=goal))


def taking_turns(
    search: Callable[[np.ndarray], object], queries: np.ndarray, count: int
) -> Callable[[], object]:
    """Other queries with every call."""
    parts = itertools.cycle([queries[i : i + count] for i in range(0, len(queries), count)])
    return lambda: search(next(parts))


def unit(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def noisy(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Unit rows with noise of a tenth of their length."""
    noise = rng.normal(size=x.shape, scale=NOISE / x.shape[1] ** 0.5).astype(np.float32)
    return unit(x + noise)


def principal(x: np.ndarray) -> np.ndarray:  # [D, D]
    """Directions by falling mean square."""
    return np.ascontiguousarray(np.linalg.eigh(x.T @ x)[1][:, ::-1])


def approximate(path: Path, queries: np.ndarray, repeats: int) -> None:
    with Writer.open(path) as writer:
        start = time.process_time()
        writer.refresh_backend(approximate_above=1000)
        spent = time.process_time() - start
    index = Index.open(path)
    entry = index.manifest.approximate
    print(f"{entry.kind} made in {spent:.0f} s ({entry.why}); effort {entry.effort}, "
          f"recall@10 {entry.recall:.4f} on {entry.num_queries} queries")  # fmt: skip
    raw = faiss.read_index(str(path / "approximate" / entry.name / "faiss.index"))
    raw.hnsw.efSearch = entry.effort
    for count in (1, 1000):
        some = queries[:count]
        functions = {
            "index": lambda some=some: index.search(some, K),
            "raw faiss": lambda some=some: raw.search(some, K),
        }
        message(f"{count} queries, {entry.kind}", in_turn(functions, repeats))


if __name__ == "__main__":
    main()
