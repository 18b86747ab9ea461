"""One round of k-means, items to centres: floats alone beside integers first.

    python benchmarks/k_means.py [--items 60502 --clusters 11316 --size 512 --rounds 2]

Clouds around as many random points as clusters; the first centres are drawn from the items. One
thread, processor time, sides in turn; after each round centres move to the means.
"""

import argparse
import statistics

import torch
from evaluation import clouds
from timing import in_turn, ratios

from unseen.evaluation.clustering import _means
from unseen.neighbors.center_assignment import integers_of, nearest_centers
from unseen.neighbors.certified import ROWS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--items", type=int, default=60_502)
    parser.add_argument("--clusters", type=int, default=11_316)
    parser.add_argument("--size", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(1)
    x, _ = clouds(options.items, options.clusters, options.size)
    draw = torch.Generator().manual_seed(0)
    centers = x[torch.randperm(len(x), generator=draw)[: options.clusters]]
    held, squares = integers_of(x), x.square().sum(dim=1)
    result: dict[str, torch.Tensor] = {}

    def floats() -> None:
        half = centers.square().sum(dim=1) / -2
        blocks = x.split(max(1, 2**21 // len(centers)))
        best = [torch.addmm(half, rows, centers.T).max(dim=1) for rows in blocks]
        result["floats"] = torch.cat([part.indices for part in best])
        (squares - 2 * torch.cat([part.values for part in best])).clamp_(min=0)

    def integers() -> None:
        result["integers"] = nearest_centers(x, centers, held)
        parts = zip(x.split(ROWS), result["integers"].split(ROWS), strict=True)
        result["dist"] = torch.cat([(a - centers[b]).square().sum(dim=1) for a, b in parts])

    gains = []
    for number in range(options.rounds):
        times = in_turn({"floats": floats, "integers": integers}, 1, warm=False)
        gains += ratios(times["floats"], times["integers"])
        other = (result["floats"] != result["integers"]).nonzero()[:, 0]
        near = (x[other, None].double() - centers.double()).square().sum(dim=2).argmin(dim=1)
        wrong = int((near != result["integers"][other]).sum())
        spent = f"floats {times['floats'][0]:.2f} s, integers {times['integers'][0]:.2f} s"
        differ = f"{len(other)} of {len(x):,} differ, by float64 {wrong} of them wrong in integers"
        print(f"round {number + 1}: {spent}, {differ}", flush=True)
        centers = _means(x, centers, result["integers"], result["dist"])
    print(f"{statistics.median(gains):.2f} times as fast")


if __name__ == "__main__":
    main()
