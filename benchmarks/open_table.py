"""Would an index as a Lance table do? python benchmarks/open_table.py [--count 100000 --size 128]

The index of this package beside a Lance table of the same rows (id, URI, label, metadata, vector,
thumbnail), in one process, in turn, one thread. Bytes, rows a second, opening and a first answer,
exact queries (of the table through the same certified search, over a memory-mapped cache of its
vector column), approximate queries against faiss at equal recall, writers killed in the middle
(`--kills 100`), and single bits that turn (`--flips 100`).
"""

import argparse
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import faiss
import lancedb
import numpy as np
import pyarrow as pa
import torch
from lancedb.index import HnswSq, IvfFlat, IvfPq
from search import filled
from timing import in_turn

from unseen.search.backends.exact import Exact
from unseen.search.index import Index

K, THUMBNAIL, BATCH, NAME = 10, 1500, 1024, "images"


def schema(size: int) -> pa.Schema:
    text = {"uri": pa.string(), "label": pa.string(), "metadata": pa.string()}
    return pa.schema(
        [("id", pa.int64()), *text.items(), ("vector", pa.list_(pa.float32(), size)),
         ("thumbnail", pa.binary())]
    )  # fmt: skip


def rows(ids: np.ndarray, vectors: np.ndarray) -> pa.Table:
    flat = pa.array(np.ascontiguousarray(vectors).ravel())
    columns = [
        pa.array(ids),
        pa.array([f"/{id}.jpg" for id in ids]),
        pa.nulls(len(ids), pa.string()),
        pa.array(["{}"] * len(ids)),
        pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1]),
        pa.array([os.urandom(THUMBNAIL) for _ in ids], pa.binary()),
    ]
    return pa.table(columns, schema=schema(vectors.shape[1]))


def size_of(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def timed(call: Callable[[], Any]) -> tuple[Any, float, float]:
    """What it gives, seconds of the processor and of the clock."""
    cpu, wall = time.process_time(), time.perf_counter()
    result = call()
    return result, time.process_time() - cpu, time.perf_counter() - wall


def built(folder: Path, vectors: np.ndarray) -> Any:
    table = lancedb.connect(folder).create_table(NAME, schema=schema(vectors.shape[1]))
    for first in range(0, len(vectors), BATCH):
        some = vectors[first : first + BATCH]
        table.add(rows(np.arange(first, first + len(some)), some))
    return table


def cached(table: Any, file: Path) -> np.ndarray:
    """The vector column beside the table, made where it is not there."""
    if not file.exists():
        column = table.search().select(["vector"]).to_arrow()["vector"].combine_chunks()
        size = column.type.list_size
        np.save(file, column.flatten().to_numpy(zero_copy_only=False).reshape(-1, size))
    return np.load(file, mmap_mode="c")


def first_answer(folder: Path, file: Path, query: np.ndarray) -> None:
    table = lancedb.connect(folder).open_table(NAME)
    ids = table.search().select(["id"]).to_arrow()["id"].to_numpy()
    _, found = Exact([cached(table, file)], True).search(torch.from_numpy(query), K)
    assert ids[found[0, 0]] >= 0


def compare(count: int, size: int, repeats: int) -> None:
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(count // 20, size)).astype(np.float32)
    vectors = np.repeat(centers, 20, axis=0)
    vectors += 0.7 * rng.normal(size=vectors.shape).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    queries = vectors[rng.integers(0, len(vectors), 1000)]
    with tempfile.TemporaryDirectory() as made:
        ours, theirs, file = Path(made) / "index", Path(made) / "table", Path(made) / "vectors.npy"
        _, cpu, wall = timed(lambda: filled(ours, vectors))
        print(f"index: {count / cpu:,.0f} rows a CPU second, {count / wall:,.0f} a second, "
              f"{size_of(ours):,} bytes")  # fmt: skip
        table, cpu, wall = timed(lambda: built(theirs, vectors))
        print(f"Lance: {count / cpu:,.0f} rows a CPU second, {count / wall:,.0f} a second, "
              f"{size_of(theirs):,} bytes")  # fmt: skip
        _, cpu, wall = timed(lambda: table.optimize(cleanup_older_than=timedelta(0)))
        print(
            f"Lance: compacted in {cpu:.1f} CPU seconds ({wall:.1f} s), {size_of(theirs):,} bytes"
        )
        _, cpu, wall = timed(lambda: first_answer(theirs, file, queries[:1]))
        print(f"Lance: open and first answer, no cache: {1000 * wall:.0f} ms; cache "
              f"{file.stat().st_size:,} bytes")  # fmt: skip
        openings = {
            "index": lambda: Index.open(ours).search(queries[:1], K),
            "Lance": lambda: first_answer(theirs, file, queries[:1]),
        }
        for name, times in in_turn(openings, 5, time.perf_counter).items():
            print(f"{name}: open and first answer {1000 * statistics.median(times):.0f} ms")
        index, exact = Index.open(ours), Exact([cached(table, file)], True)
        ids = table.search().select(["id"]).to_arrow()["id"].to_numpy()
        for number in (1, 32, 1000):
            some = queries[:number]
            asking = torch.from_numpy(some)
            both = {
                "index": lambda some=some: index.search(some, K),
                "Lance": lambda asking=asking: ids[exact.search(asking, K)[1].numpy()],
            }
            times = in_turn(both, repeats if number > 100 else 5 * repeats)
            mine, other = (1000 * statistics.median(each) for each in times.values())
            print(f"{number} exact queries: index {mine:.2f} ms, Lance {other:.2f} ms, "
                  f"{mine / other:.2f} of the speed")  # fmt: skip
        approximate(table, vectors, queries[:256])


def approximate(table: Any, vectors: np.ndarray, queries: np.ndarray) -> None:
    """One query at a time at the first effort that finds 98 %, or at the last."""
    flat = faiss.IndexFlatIP(vectors.shape[1])
    flat.add(vectors)
    _, true = flat.search(queries, K)
    cells = round(4 * len(vectors) ** 0.5)
    graph = faiss.IndexHNSWFlat(vectors.shape[1], 32, faiss.METRIC_INNER_PRODUCT)
    graph.hnsw.efConstruction = 80
    lists = faiss.index_factory(vectors.shape[1], f"IVF{cells},Flat", faiss.METRIC_INNER_PRODUCT)
    lists.train(vectors)

    def hnsw(query: np.ndarray, effort: int) -> np.ndarray:
        graph.hnsw.efSearch = effort
        return graph.search(query, K)[1][0]

    def ivf(query: np.ndarray, effort: int) -> np.ndarray:
        lists.nprobe = effort
        return lists.search(query, K)[1][0]

    for name, made, search in (("faiss HNSW", graph, hnsw), ("faiss IVF", lists, ivf)):
        _, cpu, _ = timed(lambda made=made: made.add(vectors))
        measured(name, cpu, search, queries, true)
    partitions = max(1, len(vectors) // 2**20)
    for name, config in (
        ("Lance HNSW", HnswSq("dot", num_partitions=partitions, m=32, ef_construction=80)),
        ("Lance IVF", IvfFlat("dot", num_partitions=cells)),
        ("Lance IVF-PQ", IvfPq("dot", num_partitions=cells)),
    ):
        _, cpu, _ = timed(lambda config=config: table.create_index("vector", config=config))

        def search(query: np.ndarray, effort: int, name: str = name) -> np.ndarray:
            request = table.search(query[0], vector_column_name="vector").distance_type("dot")
            if name == "Lance HNSW":
                request = request.nprobes(partitions).ef(effort).refine_factor(2)
            else:
                request = request.nprobes(effort)
            if name == "Lance IVF-PQ":
                request = request.refine_factor(8)
            return request.select(["id", "_distance"]).limit(K).to_arrow()["id"].to_numpy()

        measured(name, cpu, search, queries, true)


def measured(
    name: str,
    made: float,
    search: Callable[[np.ndarray, int], np.ndarray],
    queries: np.ndarray,
    true: np.ndarray,
) -> None:
    for effort in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512):
        if "HNSW" in name and effort < 32:
            continue
        times, hits = [], 0
        for row, best in enumerate(true):
            start = time.process_time()
            answer = search(queries[row : row + 1], effort)
            times.append(time.process_time() - start)
            hits += len(set(answer.tolist()) & set(best.tolist()))
        recall = hits / true.size
        if recall >= 0.98:
            break
    print(f"{name}: made in {made:.1f} CPU s; effort {effort}, recall {recall:.3f}, "
          f"{1000 * statistics.median(times):.2f} CPU ms a query")  # fmt: skip


def vector_of(id: int) -> np.ndarray:
    return np.random.default_rng(id).normal(size=16).astype(np.float32)


def write_on(folder: Path, seed: int) -> None:
    """Adds, removes and compacts until it is killed; says what it is about to do and what is
    done."""
    table, draw = lancedb.connect(folder).open_table(NAME), random.Random(seed)
    ids = table.search().select(["id"]).to_arrow()["id"].to_pylist()
    number = 1 + max(ids, default=0) + 1000
    print(json.dumps(["ready", []]), flush=True)
    while True:
        what = draw.choice(("add", "add", "remove", "compact"))
        some = list(range(number, number + 20)) if what == "add" else []
        if what == "remove":
            some = draw.sample(ids, min(10, len(ids)))
        print(json.dumps([what, some]), flush=True)
        if what == "add":
            table.add(rows(np.array(some), np.stack([vector_of(id) for id in some])))
            ids, number = ids + some, number + 20
        elif what == "remove" and some:
            table.delete(f"id IN ({', '.join(map(str, some))})")
            ids = [id for id in ids if id not in some]
        elif what == "compact":
            table.optimize(cleanup_older_than=timedelta(0), delete_unverified=True)
        print(json.dumps(["done", some]), flush=True)


def kills(times: int) -> None:
    """After each kill: what was done is there, with its vectors; the last step whole or not."""
    seen, draw = Counter[str](), random.Random(0)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        lancedb.connect(folder).create_table(NAME, schema=schema(16))
        known: set[int] = set()
        for number in range(times):
            command = [sys.executable, __file__, "--write", str(folder), "--seed", str(number)]
            writer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            assert writer.stdout is not None
            assert json.loads(writer.stdout.readline())[0] == "ready"
            time.sleep(draw.uniform(0, 0.5))
            writer.send_signal(signal.SIGKILL)
            lines = [line for line in writer.stdout.read().splitlines(keepends=True) if line]
            writer.wait()
            step: tuple[str, list[int]] | None = None
            for line in lines:
                what, some = json.loads(line)
                if what != "done":
                    step = what, some
                    continue
                assert step is not None
                known = known | set(some) if step[0] == "add" else known - set(some)
                step = None
            allowed = [known]
            if step is not None:
                seen[f"killed in {step[0]}"] += 1
                change = set(step[1])
                allowed.append(
                    {"add": known | change, "remove": known - change}.get(step[0], known)
                )
            try:
                table = lancedb.connect(folder).open_table(NAME).to_arrow()
            except Exception as error:
                seen[f"cannot be read: {str(error)[:80]}"] += 1
                break
            ids = table["id"].to_pylist()
            vectors = np.stack(table["vector"].to_pylist()) if ids else np.zeros((0, 16))
            whole = all((vector_of(id) == v).all() for id, v in zip(ids, vectors, strict=True))
            right = set(ids) in allowed and len(set(ids)) == len(ids) and whole
            seen["whole" if right else "lost"] += 1
            known = set(ids)
    print(f"kills: {dict(seen)}; {len(known)} rows at the end")


def flips(times: int) -> None:
    """One bit of one file of the table turned; each answer in a process of its own."""
    seen: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as made:
        whole, damaged = Path(made) / "whole", Path(made) / "damaged"
        vectors = np.stack([vector_of(id) for id in range(2000)])
        table = built(whole, vectors)
        table.delete("id < 100")
        del table
        files = sorted(file for file in whole.rglob("*") if file.is_file())
        read = (
            "import sys, hashlib, lancedb; t = lancedb.connect(sys.argv[1]).open_table('images')"
            ".to_arrow(); print(hashlib.sha256(repr(t.to_pydict()).encode()).hexdigest())"
        )

        def ask(folder: Path) -> subprocess.CompletedProcess[str]:
            command = [sys.executable, "-c", read, str(folder)]
            return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

        right = ask(whole).stdout
        draw = random.Random(0)
        for number in range(times):
            shutil.rmtree(damaged, ignore_errors=True)
            shutil.copytree(whole, damaged)
            file = damaged / files[number % len(files)].relative_to(whole)
            content = bytearray(file.read_bytes())
            content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
            file.write_bytes(content)
            result = ask(damaged)
            if result.returncode < 0:
                seen[f"died of signal {-result.returncode}"] += 1
            elif result.returncode:
                seen["panic" if "Panic" in result.stderr else "error"] += 1
            else:
                seen["identical" if result.stdout == right else "another answer in silence"] += 1
    print(f"flips: {dict(seen)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--flips", type=int, default=0)
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=0, help=argparse.SUPPRESS)
    request = parser.parse_args()
    os.sched_setaffinity(0, {0})  # Lance has threads of its own, and with one waits for itself
    torch.set_num_threads(1)
    faiss.omp_set_num_threads(1)
    if request.write is not None:
        write_on(request.write, request.seed)
    elif request.kills or request.flips:
        kills(request.kills)
        flips(request.flips)
    else:
        compare(request.count, request.size, request.repeats)


if __name__ == "__main__":
    main()
