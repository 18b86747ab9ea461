"""`unseen serve`: the search page of an index."""

import json
import os
import secrets
from pathlib import Path
from typing import Annotated

import typer

from unseen.cli.terminal import console
from unseen.search.service import start


def serve(
    index: Annotated[Path, typer.Argument(help="a folder made by `unseen index build`")],
    host: Annotated[str, typer.Option(help="the address to listen at")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535)] = 8000,
    token: Annotated[str | None, typer.Option(help="ask for this word; `new` makes one up")] = None,
    compare: Annotated[
        Path | None, typer.Option(help="another index of the same pictures: shows what changed")
    ] = None,
    run: Annotated[Path | None, typer.Option(help="the run, if it has moved")] = None,
    workers: Annotated[int, typer.Option(min=1, help="processes; they share the index")] = 1,
    per_minute: Annotated[int, typer.Option(min=0, help="requests of one client, 0: any")] = 1200,
) -> None:
    """Example: unseen serve birds.index

    Opens a page on http://127.0.0.1:8000 that finds pictures like the one you drop on it. Only this
    machine can reach it; `--host 0.0.0.0 --token new` lets others in who know the word.
    """
    word = secrets.token_urlsafe(16) if token == "new" else token
    if not start.is_loopback(host) and word is None:
        raise ValueError(
            f"--host {host} lets every machine that reaches this one look at the pictures: "
            "add --token new"
        )
    settings = start.Settings(
        index=str(index.resolve()),
        other=None if compare is None else str(compare.resolve()),
        run=None if run is None else str(run.resolve()),
        host=host,
        token=word,
        per_minute=per_minute,
    )
    library, other = start.libraries(settings)  # what cannot be opened stops here, in one line
    told = f"{len(library.shelf.index):,} pictures"
    asked = "" if word is None else f"/?token={word}"
    console.print(f"{told}; open http://{_shown(host)}:{port}{asked}", soft_wrap=True)
    if workers == 1:
        start.run(start.application(settings, library, other), host, port)
        return
    os.environ[start.VARIABLE] = json.dumps(vars(settings))
    start.run_many(host, port, workers)


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host
