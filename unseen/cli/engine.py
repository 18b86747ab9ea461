"""What computes embeddings: options of `embed`, `data features` and `index build`."""

from typing import Annotated

import typer

from unseen.runs.job_engines import Engine, Local, Ray

RayCluster = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="CLUSTER",
        help="embed on Ray: `start` one here, `auto` for this machine's, or HOST:PORT",
    ),
]
RayWorkers = Annotated[
    int | None,
    typer.Option("--workers", help="that Ray uses", show_default="all processors or GPUs", min=1),
]


def chosen_engine(ray: str | None, workers: int | None, device: str) -> Engine:
    """What computes the embeddings: this process, or the workers of a Ray cluster."""
    if ray is not None:
        cluster = None if ray == "start" else ray
        return Ray(cluster, workers, "cuda" if device.startswith("cuda") else "cpu")
    if workers is not None:
        raise ValueError("--workers goes with --ray")
    return Local()
