"""What local re-ranking brings, and costs, with a network that was not trained on the classes.

    python benchmarks/rerank.py cub/train cub/test --classes 101 120
    python benchmarks/rerank.py groceries/dataset/test --most 15

Images in class folders (all folders that hold images, by name); every image asks all others.
efficientnet_lite0 with ImageNet's weights, average pool, 224 pixels, one thread. Printed: R@1 and
mAP@R (within the first 100) as they are and re-ranked, the difference with its 95 % interval over
classes, and processor seconds of a query's 100 comparisons.
"""

import argparse
import time
from collections import defaultdict
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from unseen.models.backbone import create_backbone
from unseen.search.rerank import FIRST, WEIGHT, local_scores

SIDE = 224


def files_of(roots: list[Path], classes: list[int] | None, most: int) -> list[tuple[Path, int]]:
    by_class: dict[str, list[Path]] = defaultdict(list)
    for root in roots:
        for file in sorted(root.rglob("*.jpg")):
            by_class[str(file.parent.relative_to(root))].append(file)
    first, last = classes or (1, len(by_class))
    names = sorted(by_class)[first - 1 : last]
    return [(file, place) for place, name in enumerate(names) for file in by_class[name][:most]]


def embedded(files: list[tuple[Path, int]]) -> tuple[Tensor, Tensor]:
    """Unit descriptors [n, D], and those of the places [n, P, C]."""
    body = create_backbone("efficientnet_lite0", weights="imagenet", pooling="avg").eval()
    spec = body.input_spec
    mean, std = (torch.tensor(each)[:, None, None] for each in (spec.mean, spec.std))
    pooled, places = [], []
    with torch.inference_mode():
        for file, _ in files:
            image = Image.open(file).convert("RGB")
            scale = 256 / min(image.size)
            size = (round(image.width * scale), round(image.height * scale))
            left, top = (size[0] - SIDE) // 2, (size[1] - SIDE) // 2
            image = image.resize(size, Image.Resampling.BILINEAR)
            pixels = np.array(image.crop((left, top, left + SIDE, top + SIDE)))
            x = torch.from_numpy(pixels).permute(2, 0, 1).float() / 255
            vector, maps = body(((x - mean) / std)[None])
            pooled.append(vector)
            places.append(torch.nn.functional.normalize(maps.flatten(2).mT, dim=2).half())
    unit = torch.nn.functional.normalize(torch.cat(pooled), dim=1)
    return unit, torch.cat(places)


def scores(order: Tensor, labels: Tensor) -> dict[str, Tensor]:  # [n, k] -> [n] each
    hit = (labels[order] == labels[:, None]).float()
    relevant = (labels.bincount()[labels] - 1)[:, None]
    rank = torch.arange(1, order.shape[1] + 1)
    precision = hit.cumsum(dim=1) / rank * hit * (rank <= relevant)
    return {"R@1": hit[:, 0], "mAP@R": precision.sum(dim=1) / relevant[:, 0]}


def interval(difference: Tensor, labels: Tensor) -> np.ndarray:
    """Whole classes are drawn."""
    count = labels.bincount()
    total = torch.zeros(len(count)).index_add(0, labels, difference)
    drawn = torch.randint(
        len(count), (5000, len(count)), generator=torch.Generator().manual_seed(0)
    )
    return np.percentile((total[drawn].sum(1) / count[drawn].sum(1)).numpy(), [2.5, 97.5])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("roots", nargs="+", type=Path)
    parser.add_argument("--classes", nargs=2, type=int, help="the first and the last, from 1")
    parser.add_argument("--most", type=int, default=10**9, help="images of a class")
    request = parser.parse_args()
    torch.set_num_threads(1)
    files = files_of(request.roots, request.classes, request.most)
    labels = torch.tensor([place for _, place in files])
    unit, places = embedded(files)
    sim = unit @ unit.T
    near, order = sim.fill_diagonal_(-torch.inf).topk(min(FIRST, len(files) - 1), dim=1)
    start = time.process_time()
    local = torch.stack(
        [local_scores(places[q].float(), places[order[q]].float()) for q in range(len(files))]
    )
    seconds = (time.process_time() - start) / len(files)
    again = (near + WEIGHT * local).argsort(dim=1, descending=True, stable=True)
    print(f"{len(files)} images of {len(labels.unique())} classes, {seconds:.3f} s a query")
    after = scores(order.gather(1, again), labels)
    for name, before in scores(order, labels).items():
        gain = after[name] - before
        low, high = 100 * interval(gain, labels)
        print(f"{name} {100 * before.mean():.1f} -> {100 * after[name].mean():.1f} "
              f"({100 * gain.mean():+.1f}, {low:+.1f} to {high:+.1f})")  # fmt: skip


if __name__ == "__main__":
    main()
