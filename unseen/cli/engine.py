"""Who embeds: the options that `embed`, `features` and `index build` share."""

from typing import Annotated

import typer

from unseen.experiment.engines import Engine, EngineName, Local, Ray

EngineOption = Annotated[EngineName, typer.Option("--engine", help="ray: workers of a cluster")]
Address = Annotated[
    str | None,
    typer.Option(
        "--address",
        help="of a Ray cluster; auto: the one of this machine",
        show_default="start one",
    ),
]
EngineWorkers = Annotated[
    int | None,
    typer.Option("--workers", help="that Ray uses", show_default="all processors or GPUs", min=1),
]


def chosen_engine(
    name: EngineName, address: str | None, workers: int | None, device: str
) -> Engine:
    if name == "ray":
        return Ray(address, workers, "cuda" if device.startswith("cuda") else "cpu")
    if address is not None or workers is not None:
        raise ValueError("--address and --workers go with --engine ray")
    return Local()
