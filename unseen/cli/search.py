"""`unseen search`: the pictures of an index that are like a given one."""

import json
import re
import shlex
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from unseen.cli.terminal import console
from unseen.data.containers.places import seen_from
from unseen.data.pictures.decode import Box
from unseen.evaluation.calibrate import Calibration
from unseen.experiment.calibration import read_calibration, why_impossible
from unseen.experiment.trained import BoxedPicture
from unseen.names import near_path
from unseen.search import sheet
from unseen.search.answers import MATCH, UNJUDGED, UNKNOWN, Answer, ask
from unseen.search.index import Index
from unseen.search.ingest import require_same_model
from unseen.search.maintain import model_of
from unseen.training.run_folder import RunFolder

NUMBERS = ("", "similarity", "same class")  # columns that stand to the right


def search(
    index: Annotated[Path, typer.Argument(help="a folder made by `unseen index build`")],
    picture: Annotated[Path, typer.Argument(help="the picture to ask with")],
    box: Annotated[
        str | None, typer.Option(help="a part of it: x,y,width,height in pixels")
    ] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="how many pictures")] = 10,
    html: Annotated[Path | None, typer.Option(help="also write a page with the pictures")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON instead")] = False,
    run: Annotated[Path | None, typer.Option(help="the run, if it has moved")] = None,
) -> None:
    """Example: unseen search birds.index query.jpg -k 10 --html answer.html

    Prints the nearest pictures, how probable it is that each is of the query's class, and the
    class it decides for: "unknown" when nothing reaches the threshold of `unseen calibrate`.
    """
    opened, model = Index.open(index), model_of(index, run)
    if not picture.exists():
        raise FileNotFoundError(f"no such file: {picture}{near_path(picture)}")
    require_same_model(opened.manifest.model, model, index)
    calibration = read_calibration(model)
    asked = picture if box is None else BoxedPicture(picture, _box(box))
    answer = ask(opened, model.embed([asked]), k, calibration)[0]
    if as_json:
        print(json.dumps({"query": str(picture), **answer.to_dict()}, indent=2))
    else:
        _print(answer, calibration, model.folder)
    if html is not None:
        sheet.write_answer(html, opened, picture, answer, calibration)
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
    marked = ["verdict"] if any(hit.mapped for hit in answer.hits) else []
    _print_hits(answer, ["same class", "verdict"] if calibration else marked)
    if calibration is None:
        reason = why_impossible(run)
        makes = f"`unseen calibrate {shlex.quote(str(run.path))}` makes them"
        console.print(f"no probabilities: {reason or makes}")
    elif answer.decision is None:
        console.print(f"no verdict on the nearest picture. {UNJUDGED}")
    elif answer.decision == UNKNOWN:
        console.print(
            Text.assemble(("unknown", "bold"), f": nothing reaches {calibration.threshold:.4f}")
        )
    else:
        console.print(
            Text.assemble(
                (answer.decision, "bold"),
                f": the nearest picture reaches {calibration.threshold:.4f}, as at most "
                f"{100 * calibration.bound:.3g} % of wrong pairs do "
                f"({calibration.confidence:.0%} confidence)",
            ),
        )


def _print_hits(answer: Answer, judged: list[str]) -> None:
    """A row is a line that ends in the path, from here where it can be, which can be copied."""
    table = Table(box=None)
    for head in ("", "similarity", *judged, "label", "path"):
        table.add_column(head, justify="right" if head in NUMBERS else "left")
    for rank, hit in enumerate(answer.hits, start=1):
        row = [Text(str(rank)), Text(f"{hit.similarity:.4f}")]
        said = "" if hit.probability is None else f"{100 * hit.probability:.1f} %"
        verdict = Text(hit.verdict or "", style="green" if hit.verdict == MATCH else "")
        row += [verdict if head == "verdict" else Text(said) for head in judged]
        table.add_row(*row, Text(hit.label or ""), Text(seen_from(hit.path, Path.cwd())))
    console.print(table)
