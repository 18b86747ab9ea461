"""`unseen demo`: the whole way on the built-in characters."""

from pathlib import Path

from unseen.cli.terminal import console
from unseen.cli.train import RunOut, run
from unseen.config import schema as configs


def demo(
    out: RunOut = Path("runs/demo"),
) -> None:
    """Example: unseen demo

    Renders characters, trains a small network on half of them, and measures how well it finds the
    other half, which it has never seen, beside raw pixels and the untrained network.
    """
    result = run(configs.make({"data": "glyphs"}), out)
    recall = {row: matches.metrics["recall@1"].value for row, matches in result.scores.items()}
    console.print(
        f"On {result.split.test_classes} characters it never saw, the nearest image shows "
        f"the same character in {recall['trained']:.1%} of queries (raw pixels "
        f"{recall['pixels']:.1%}). "
        "Next: unseen train path/to/your/images",
    )
