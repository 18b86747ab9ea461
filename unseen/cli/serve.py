"""`unseen serve`: the search page of an index."""

import os
import secrets
from pathlib import Path
from typing import Annotated

import typer

from unseen.cli.options import IndexPath, MovedRun
from unseen.cli.terminal import console
from unseen.search.service import start_service


def serve(
    index: IndexPath,
    host: Annotated[str, typer.Option(help="the address to listen at")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535)] = 8000,
    token: Annotated[str | None, typer.Option(help="ask for this word; `new` makes one up")] = None,
    token_file: Annotated[
        Path | None, typer.Option(help="ask for the word in this file; or set UNSEEN_TOKEN")
    ] = None,
    no_token: Annotated[bool, typer.Option("--no-token", help="let everybody in")] = False,
    proxy: Annotated[
        list[str] | None,
        typer.Option(help="address of a proxy before this, whose X-Forwarded-For is believed"),
    ] = None,
    compare: Annotated[
        Path | None, typer.Option(help="another index of the same images: shows what changed")
    ] = None,
    run: MovedRun = None,
    workers: Annotated[int, typer.Option(min=1, help="processes; they share the index")] = 1,
    per_minute: Annotated[int, typer.Option(min=0, help="requests of one client, 0: any")] = 1200,
) -> None:
    """Example: unseen serve birds.index

    Opens a page on http://127.0.0.1:8000 that finds images like the one you drop on it. Only this
    machine can reach it; `--host 0.0.0.0 --token new` lets others in who know the word.
    """
    settings = start_service.Settings(
        index=str(index.resolve()),
        other=None if compare is None else str(compare.resolve()),
        run=None if run is None else str(run.resolve()),
        host=host,
        token=_word(token, token_file, no_token),
        per_minute=per_minute,
        proxies=proxy or [],
    )
    start_service.check(settings, everybody=no_token)
    with console.status(f"opening {index} and its model"):
        registry, other = start_service.open_registries(
            settings
        )  # what cannot be opened stops here, in one line
    message = f"{len(registry.snapshot.index):,} images"
    # a word that is kept in a file or a variable is not for the terminal
    request = "" if token is None else f"/?token={settings.token}"
    console.print(f"{message}; open http://{_shown(host)}:{port}{request}")
    if workers == 1:
        start_service.run(start_service.application(settings, registry, other), settings, port)
    else:
        start_service.run_many(settings, port, workers)


def _word(token: str | None, file: Path | None, no_token: bool) -> str | None:
    """The word to ask for; one of three ways to say it, before the environment's."""
    if (token is not None) + (file is not None) + no_token > 1:
        raise ValueError("give one of --token, --token-file and --no-token")
    if no_token:
        return None
    if file is not None:
        return file.read_text(encoding="utf-8").strip()
    if token is not None:
        return secrets.token_urlsafe(16) if token == "new" else token
    return os.environ.get("UNSEEN_TOKEN")


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host
