"""Nested sizes: recall@1 by size, beside what one gets without nesting.

    python benchmarks/nested.py features.npz [key=value ...] [--sizes 16,32,64,128,512] [--seeds 3]

nested      the first values of an embedding that was trained with nested=[...]
truncated   the first values of one that was trained as a whole
reduced     the whole one, on the directions that are longest over the training classes
principal   the features themselves, on as many directions: nothing trained
"""

import argparse
import tempfile
from pathlib import Path

import torch

from unseen.config import find_data
from unseen.config import schema as configs
from unseen.core.contracts import IntArray
from unseen.core.statistics import over_seeds
from unseen.evaluation.evaluate import evaluate
from unseen.models.head import principal_directions
from unseen.neighbors.space import to_sphere
from unseen.runs.prepare import reopen
from unseen.runs.run import run_config
from unseen.runs.trained_run import Trained
from unseen.training.nested import row_at
from unseen.training.result import read_result
from unseen.training.run_folder import RunFolder

Result = dict[tuple[str, int], float]


def recall(embeddings: torch.Tensor, labels: IntArray) -> float:
    result = evaluate(embeddings, labels, metrics=["recall@1"], resamples=0)
    return 100 * result.values["recall@1"].value


def of_seed(data: str, words: list[str], sizes: list[int], seed: int, out: Path) -> Result:
    """Kind and size -> recall@1 on the test classes."""
    shared = configs.override({}, [*words, f"seed={seed}", 'metrics=["recall@1"]'])
    shared["data"] = find_data.data_table(data, shared.get("data"))
    paths = {"nested": {"nested": sizes}, "plain": {"embedding_size": sizes[-1]}}
    for name, keys in paths.items():
        run_config(configs.make(shared | keys), out / f"{name}-{seed}", "benchmark")
    context, _ = reopen(out / f"plain-{seed}")
    trained, split = Trained.open(out / f"plain-{seed}"), context.split

    def embedded(items: IntArray) -> torch.Tensor:
        return to_sphere(context.embed(trained.network, trained.transform, items))

    test, labels = embedded(split.test), context.dataset.labels[split.test]
    reduced = test @ principal_directions(embedded(split.train), sizes[-1]).T.float()
    rows = read_result(RunFolder(out / f"nested-{seed}")).scores
    result = {}
    for size in sizes:
        for kind, row in (("nested", "trained"), ("principal", "principal")):
            name = row if size == sizes[-1] else row_at(row, size)
            result[kind, size] = 100 * rows[name].metrics["recall@1"].value
        result["truncated", size] = recall(test[:, :size], labels)
        result["reduced", size] = recall(reduced[:, :size], labels)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data")
    parser.add_argument("words", nargs="*", help="key=value of both runs")
    parser.add_argument("--sizes", default="16,32,64,128,512")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    out, sizes = given.out or Path(tempfile.mkdtemp()), [int(m) for m in given.sizes.split(",")]
    runs = [of_seed(given.data, given.words, sizes, seed, out) for seed in range(given.seeds)]
    print("| size | " + " | ".join(kinds := ["nested", "truncated", "reduced", "principal"]) + " |")
    print("|---:|" + "---:|" * len(kinds))
    for size in sizes:
        spreads = [over_seeds([run[kind, size] for run in runs]) for kind in kinds]
        cells = [f"{result.mean:.1f} ±{result.high - result.mean:.1f}" for result in spreads]
        print(f"| {size} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
