"""`unseen search`: the pictures of an index that are like a given one."""

import json
import shlex
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from unseen.cli.terminal import console
from unseen.evaluation.calibrate import Calibration
from unseen.experiment.calibration import read_calibration
from unseen.search import sheet
from unseen.search.answers import UNKNOWN, Answer, ask
from unseen.search.index import Index
from unseen.search.ingest import require_same_model
from unseen.search.maintain import model_of


def search(
    index: Annotated[Path, typer.Argument(help="a folder made by `unseen index build`")],
    picture: Annotated[Path, typer.Argument(help="the picture to ask with")],
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
    require_same_model(opened.manifest.model, model, index)
    calibration = read_calibration(model)
    answer = ask(opened, model.embed([picture]), k, calibration)[0]
    if as_json:
        console.print_json(json.dumps({"query": str(picture), **answer.to_dict()}))
    else:
        _print(answer, calibration, model.folder.path)
    if html is not None:
        sheet.write_answer(html, opened, picture, answer, calibration)
        if not as_json:
            console.print(f"page: {html}", soft_wrap=True)


def _print(answer: Answer, calibration: Calibration | None, run: Path) -> None:
    table = Table(box=None, pad_edge=False)
    columns = ["", "similarity", *(["same class", "match"] if calibration else []), "label", "path"]
    for title in columns:
        is_number = title in ("", "similarity", "same class")
        table.add_column(title, justify="right" if is_number else "left", overflow="fold")
    for rank, hit in enumerate(answer.hits, start=1):
        said = []
        if hit.probability is not None:
            match = Text("yes", style="green") if hit.matched else Text("no")
            said = [Text(f"{100 * hit.probability:.1f} %"), match]
        label = hit.label if hit.label is not None else Text("-", style="dim")
        table.add_row(str(rank), f"{hit.similarity:.4f}", *said, label, hit.path)
    console.print(table)
    if calibration is None:
        console.print(
            f"no probabilities: `unseen calibrate {shlex.quote(str(run))}` makes them",
            soft_wrap=True,
        )
    elif answer.decision == UNKNOWN:
        console.print(
            Text.assemble(("unknown", "bold"), f": nothing reaches {calibration.threshold:.4f}")
        )
    else:
        console.print(
            Text.assemble(
                (answer.decision or "", "bold"),
                f": the nearest picture reaches {calibration.threshold:.4f}, as at most "
                f"{100 * calibration.bound:.3g} % of wrong pairs do "
                f"({calibration.confidence:.0%} confidence)",
            ),
            soft_wrap=True,
        )
