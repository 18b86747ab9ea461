"""`unseen search`: the images of an index that are like a given one."""

import json
import re
import shlex
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from unseen.cli.options import AsJson, Html, IndexPath, MovedRun
from unseen.cli.terminal import console
from unseen.core.names import near_path
from unseen.data.containers.locations import seen_from
from unseen.data.images.decode import Box
from unseen.evaluation.calibration import Calibration
from unseen.runs.calibrate_run import read_calibration, why_impossible
from unseen.runs.trained_run import BoxedImage
from unseen.search import contact_page
from unseen.search.answers import MATCH, NO_CONCLUSION, SEVERAL, UNKNOWN, Answer, ask
from unseen.search.index import Index
from unseen.search.ingest import require_same_model
from unseen.search.maintain import model_of
from unseen.search.rerank import Kind, reranker
from unseen.training.run_folder import RunFolder

NUMBERS = ("", "similarity", "same class")  # columns that stand to the right


def search(
    index: IndexPath,
    image: Annotated[Path, typer.Argument(help="the image to ask with")],
    box: Annotated[
        str | None, typer.Option(help="a part of it: x,y,width,height in pixels")
    ] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="how many images")] = 10,
    where: Annotated[
        str | None, typer.Option(help='only images of which this is true: "price < 20"')
    ] = None,
    rerank: Annotated[
        Kind | None, typer.Option(help="another order of the first 100", show_default="none")
    ] = None,
    html: Html = None,
    as_json: AsJson = False,
    run: MovedRun = None,
) -> None:
    """Example: unseen search birds.index query.jpg -k 10 --html answer.html

    Prints the nearest images, how probable it is that each is of the query's class, and the
    class it decides for: "unknown" when nothing reaches the threshold of `unseen calibrate`,
    "several labels" when images of more than one do.
    """
    opened, model = Index.open(index), model_of(index, run)
    if not image.exists():
        raise FileNotFoundError(f"no such file: {image}{near_path(image)}")
    require_same_model(opened.manifest.model, model, index)
    calibration = read_calibration(model)
    request = image if box is None else BoxedImage(image, _box(box))
    only = None if where is None else opened.where(where)  # before the network computes
    places = model.prepared(request) if rerank == "local" else None
    by = None if rerank is None else reranker(opened, model, places, rerank)
    answer = ask(opened, model.embed([request]), k, calibration, only, search=by)[0]
    if as_json:
        print(json.dumps({"query": str(image), **answer.to_dict()}, indent=2))
    else:
        _print(answer, calibration, model.folder)
    if html is not None:
        contact_page.write_answer(html, opened, image, answer, calibration)
        if not as_json:
            console.print(f"page: {html}")


def _box(words: str) -> Box:
    """Left, top, right, bottom."""
    numbers = re.fullmatch(r"(\d+),(\d+),([1-9]\d*),([1-9]\d*)", words)
    if numbers is None:
        raise ValueError(
            f"--box must be x,y,width,height in pixels, such as 10,20,200,150: {words}"
        )
    x, y, width, height = map(int, numbers.groups())
    return x, y, x + width, y + height


def _print(answer: Answer, calibration: Calibration | None, run: RunFolder) -> None:
    marked = ["conclusion"] if any(hit.compatible for hit in answer.hits) else []
    _print_hits(answer, ["same class", "conclusion"] if calibration else marked)
    if calibration is None:
        reason = why_impossible(run)
        makes = f"`unseen calibrate {shlex.quote(str(run.path))}` makes them"
        console.print(f"no probabilities: {reason or makes}")
    elif answer.decision is None:
        console.print(f"no conclusion on the nearest image. {NO_CONCLUSION}")
    elif answer.decision == UNKNOWN:
        console.print(
            Text.assemble(("unknown", "bold"), f": nothing reaches {calibration.threshold:.4f}")
        )
    elif answer.decision == SEVERAL:
        console.print(
            Text.assemble(
                (SEVERAL, "bold"),
                f": images of {', '.join(answer.labels)} reach {calibration.threshold:.4f}",
            )
        )
    else:
        console.print(
            Text.assemble(
                (answer.decision, "bold"),
                f": the nearest image reaches {calibration.threshold:.4f}, as at most "
                f"{100 * calibration.bound:.3g} % of wrong pairs do "
                f"({calibration.confidence:.0%} confidence)",
            ),
        )


def _print_hits(answer: Answer, evaluated: list[str]) -> None:
    """A row is a line that ends in the path, from here where it can be, which can be copied."""
    table = Table(box=None)
    for head in ("", "similarity", *evaluated, "label", "path"):
        table.add_column(head, justify="right" if head in NUMBERS else "left")
    for rank, hit in enumerate(answer.hits, start=1):
        row = [Text(str(rank)), Text(f"{hit.similarity:.4f}")]
        chance = "" if hit.probability is None else f"{100 * hit.probability:.1f} %"
        conclusion = Text(hit.conclusion or "", style="green" if hit.conclusion == MATCH else "")
        row += [conclusion if head == "conclusion" else Text(chance) for head in evaluated]
        table.add_row(*row, Text(hit.label or ""), Text(seen_from(hit.path, Path.cwd())))
    console.print(table)
