"""`unseen explain`: which places of two pictures make a run call them alike."""

from pathlib import Path
from typing import Annotated

import typer

from unseen.cli.terminal import Size, console
from unseen.experiment.explain import explain as explanation_of
from unseen.experiment.trained import Trained
from unseen.names import near_path
from unseen.reports import why_alike


def explain(
    run: Annotated[Path, typer.Argument(help="a folder made by `unseen train`")],
    first: Annotated[Path, typer.Argument(help="a picture")],
    second: Annotated[Path, typer.Argument(help="another picture")],
    html: Annotated[Path | None, typer.Option(help="write a page with both pictures")] = None,
    size: Size = None,
) -> None:
    """Example: unseen explain runs/birds query.jpg answer.jpg --html why.html

    Takes the similarity of two pictures apart: a heat map on each says which places pull them
    together or push them apart, lines join the pairs of places that pull most. Exact for pooled
    maps with a linear head, by gradient for others; the answer says which.
    """
    for picture in (first, second):
        if not picture.exists():
            raise FileNotFoundError(f"no such file: {picture}{near_path(picture)}")
    why = explanation_of(Trained.open(run).at(size), first, second)
    for sentence in why.sentences:
        console.print(sentence)
    for number, pair in enumerate(why.strongest(why_alike.PAIRS), start=1):
        places = (divmod(pair.first, why.grids[0][1]), divmod(pair.second, why.grids[1][1]))
        one, two = (f"row {row + 1} column {column + 1}" for row, column in places)
        console.print(f"{number}. {one} and {two}: {pair.part:+.4f}")
    if html is not None:
        why_alike.write(html, why, (first.name, second.name))
        console.print(f"page: {html}")
