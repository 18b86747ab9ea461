"""Images of 32 pixels to vectors: one process, two Ray workers, and a plain Ray Data script.

    python benchmarks/cluster.py --images 200000 --rounds 5 --compared 20000

Makes the images and an untrained run of small_conv in --folder, once. Prints images/s of each
round and the median ratio of our two workers to the plain script; sides take turns, so that a busy
machine is as busy for one as for the other. The whole of --images then goes through two workers
once. Each side is a process of its own; starting Ray and Python counts for both.
"""

import argparse
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from PIL import Image

PLAIN = Path(__file__).parent / "plain_ray.py"
CLASSES = 50


def make_images(root: Path, number: int) -> Path:
    """Coloured noise, shifted from image to image: JPEGs of about a kilobyte."""
    if (root / "done").exists():
        return root
    noise = np.random.default_rng(0).integers(0, 255, (64, 8, 8, 3), dtype=np.uint8)
    for c in range(CLASSES):
        (root / f"{c:02d}").mkdir(parents=True, exist_ok=True)
    for i in range(number):
        image = Image.fromarray(np.roll(noise[i % 64], i // 64, axis=1)).resize((32, 32))
        image.save(root / f"{i % CLASSES:02d}" / f"{i:06d}.jpg", quality=80)
    (root / "done").touch()
    return root


def make_run(folder: Path) -> Path:
    """A run of small_conv at 32 pixels, as good as untrained."""
    if not (folder / "weights.safetensors").exists():
        words = [
            "glyphs",
            "data.max_classes=40",
            "backbone=small_conv",
            "epochs=1",
            "image_size=32",
        ]
        words += ["sampler.steps=2", "embedding_size=64", "workers=2", 'metrics=["recall@1"]']
        command = [sys.executable, "-m", "unseen", "train", *words, "--out", str(folder)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return folder


def seconds(command: list[str], out: Path) -> float:
    shutil.rmtree(out, ignore_errors=True)
    before = time.perf_counter()
    subprocess.run([*command, str(out)], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("cluster_benchmark"))
    parser.add_argument("--images", type=int, default=200_000)
    parser.add_argument("--compared", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    request = parser.parse_args()
    run = make_run(request.folder / "run")
    some = make_images(request.folder / f"{request.compared}", request.compared)
    ours = [sys.executable, "-m", "unseen", "embed", str(run)]
    on_ray = ["--ray", "start", "--workers", "2", "--shard", "1024", "--out"]
    sides = {
        "one process": [*ours, str(some), "--shard", "1024", "--out"],
        "two Ray workers": [*ours, str(some), *on_ray],
        "plain Ray Data": [sys.executable, str(PLAIN), str(run), str(some)],
    }
    rates: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(request.rounds):
        for name, command in sides.items():
            rates[name].append(request.compared / seconds(command, request.folder / "vectors"))
            print(f"round {number + 1}, {name}: {rates[name][-1]:,.0f} images/s", flush=True)
    for name, result in rates.items():
        print(f"{name}: median {statistics.median(result):,.0f} images/s")
    pairs = zip(rates["two Ray workers"], rates["plain Ray Data"], strict=True)
    ratio = statistics.median(one / two for one, two in pairs)
    print(f"two Ray workers over plain Ray Data, median of {request.rounds}: {ratio:.2f}")
    every = make_images(request.folder / f"{request.images}", request.images)
    took = seconds([*ours, str(every), *on_ray], request.folder / "vectors")
    print(f"{request.images:,} images, two workers: {request.images / took:,.0f} images/s")


if __name__ == "__main__":
    main()
