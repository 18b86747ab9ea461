"""Images per second on one core: open, random resized crop to 224, mirror, normalise.

    python benchmarks/images.py path/to/images           class folders of JPEGs, at any depth
    python benchmarks/images.py path/to/images --images 1000 --repeats 15
    python benchmarks/images.py path/to/images --bounds  what the bounds on parts of files cost

    plain      Pillow and torchvision v2, as in most training scripts
    files      the same files through `unseen`: crop first, 8-bit resize by torch, one normalisation
    raw pack   the same images from a packed copy at short side 256, raw pixels
    JPEG pack  likewise, as JPEGs of quality 90
    camera     plain and files on the same images enlarged to a short side of 1,536: what DCT
               scaling saves on photographs as cameras make them

All sides run in one process on one thread and take turns, 10 images at a time; the files are in
the page cache. Seconds are of processor time: others on the machine do not count. A rate comes from
all turns, a ratio is the median over turns of `plain` against the side.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from PIL import Image

import unseen.core.torchvision_operators  # noqa: F401  (before torchvision)

# isort: split
from torchvision.transforms import v2

from unseen.data.images import decode as decode_module
from unseen.data.images import transforms
from unseen.data.images.decode import SafeImageFile, decode
from unseen.data.images.header_limits import Walked
from unseen.data.packed import Packed, Packing, write

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
TURN = 10  # images
CAMERA_SIDE, CAMERA_IMAGES = 1536, 40

PLAIN = v2.Compose(
    [
        v2.RandomResizedCrop(224),
        v2.RandomHorizontalFlip(),
        v2.ToImage(),
        v2.ToDtype(torch.float32, scale=True),
        v2.Normalize(MEAN, STD),
    ]
)
OURS, _ = transforms.named("base", 224, MEAN, STD)


class Files:
    """As much of a data set as packing needs."""

    name, official_test_classes, label_names = "benchmark", None, ("all",)

    def __init__(self, paths: Sequence[Path]) -> None:
        self.paths, self.labels = paths, np.zeros(len(paths), dtype=np.int64)

    def __len__(self) -> int:
        return len(self.paths)

    def opened(self, index: int) -> SafeImageFile:
        return SafeImageFile(self.paths[index])

    def path(self, index: int) -> Path:
        return self.paths[index]

    def fingerprint(self) -> str:
        return str(len(self))


def plain(path: Path) -> torch.Tensor:
    with Image.open(path) as image:
        return PLAIN(image.convert("RGB"))


def ours(dataset: "Files | Packed", index: int, seed: int) -> torch.Tensor:
    with dataset.opened(index) as image:
        return OURS(image, np.random.default_rng((0, seed, index)))


def rates(
    sides: dict[str, Callable[[int, int], object]], count: int, repeats: int
) -> dict[str, list[float]]:
    """Seconds an image of every turn, side by side."""
    taken: dict[str, list[float]] = {name: [] for name in sides}
    for repeat in range(repeats + 1):
        for start in range(0, count, TURN):
            some = range(start, min(count, start + TURN))
            for name, side in sides.items():
                began = time.process_time()
                for index in some:
                    side(index, repeat)
                if repeat:  # the first round warms the caches up
                    taken[name].append((time.process_time() - began) / len(some))
    return taken


def show(taken: dict[str, list[float]], reference: str) -> None:
    for name, seconds in taken.items():
        pairs = zip(taken[reference], seconds, strict=True)
        ratio = statistics.median(theirs / mine for theirs, mine in pairs)
        rate = 1 / statistics.mean(seconds)
        print(f"{name:<12} {rate:8,.0f} images/s   {ratio:5.2f} x {reference}", flush=True)


def measure(paths: Sequence[Path], folder: Path, repeats: int) -> None:
    files = Files(paths)
    packs = {}
    for name, quality in (("raw pack", None), ("JPEG pack", 90)):
        done = write(Packing(files, 256, quality), folder / name.replace(" ", "."))
        packs[name] = Packed(done.path)
        print(f"{name}: {done.num_bytes / done.items / 1000:,.0f} kB an image")
    source = sum(path.stat().st_size for path in paths) / len(paths)
    print(f"source: {source / 1000:,.0f} kB an image")
    sides: dict[str, Callable[[int, int], object]] = {
        "plain": lambda index, seed: plain(paths[index]),
        "files": lambda index, seed: ours(files, index, seed),
        "raw pack": lambda index, seed: ours(packs["raw pack"], index, seed),
        "JPEG pack": lambda index, seed: ours(packs["JPEG pack"], index, seed),
    }
    show(rates(sides, len(paths), repeats), "plain")


def measure_camera(paths: Sequence[Path], folder: Path, repeats: int) -> None:
    large = []
    for number, path in enumerate(paths):
        image = decode(path)
        scale = CAMERA_SIDE / min(image.size)
        size = round(image.width * scale), round(image.height * scale)
        large.append(folder / f"{number}.jpg")
        image.resize(size, Image.Resampling.BICUBIC).save(large[-1], quality=90)
    files = Files(large)
    sides: dict[str, Callable[[int, int], object]] = {
        "plain": lambda index, seed: plain(large[index]),
        "camera": lambda index, seed: ours(files, index, seed),
    }
    show(rates(sides, len(large), repeats), "plain")


def measure_bounds(paths: Sequence[Path], repeats: int) -> None:
    """Whole images decoded, with and without the walk through the parts of their files."""
    walk = decode_module.check_bounds

    def decoded(index: int, check: Callable[[BinaryIO, int], Walked]) -> None:
        decode_module.check_bounds = check
        decode(paths[index])

    sides: dict[str, Callable[[int, int], object]] = {
        "without": lambda index, _: decoded(index, lambda stream, _: Walked(stream.read())),
        "with bounds": lambda index, _: decoded(index, walk),
    }
    show(rates(sides, len(paths), repeats), "without")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("root", type=Path)
    parser.add_argument("--images", type=int, default=500)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--bounds", action="store_true", help="decode with and without bounds")
    request = parser.parse_args()
    torch.set_num_threads(1)
    result = sorted(request.root.rglob("*.jpg"))
    if not result:
        parser.error(f"no .jpg files under {request.root}")
    chosen = np.random.default_rng(0).permutation(len(result))[: request.images]
    paths = [result[i] for i in chosen]
    if request.bounds:
        measure_bounds(paths, request.repeats)
        return
    with tempfile.TemporaryDirectory() as folder:
        measure(paths, Path(folder), request.repeats)
        measure_camera(paths[:CAMERA_IMAGES], Path(folder), max(1, request.repeats // 2))


if __name__ == "__main__":
    main()
