"""`unseen index cluster`: the images of an index in groups of their kind."""

from pathlib import Path
from typing import Annotated, Any

import typer

from unseen.cli.options import IndexPath, OutFolder
from unseen.cli.terminal import console, display
from unseen.data.images import table_file
from unseen.runs.calibrate_run import read_calibration
from unseen.search import contact_page
from unseen.search.groups import Groups, by_density, by_k_means
from unseen.search.index import Index
from unseen.search.maintain import model_of

NAMED = 10  # groups on the terminal


def cluster(
    index: IndexPath,
    groups: Annotated[
        int | None, typer.Option(min=1, help="how many", show_default="chosen by the silhouette")
    ] = None,
    link: Annotated[
        str | None,
        typer.Option(
            metavar="SIMILARITY",
            help="link images above it instead of k-means; `calibrated`: the run's threshold",
        ),
    ] = None,
    out: OutFolder = Path("groups"),
) -> None:
    """Example: unseen index cluster birds.index --groups 20 --out groups

    Groups images by looks alone; labels are not used. Writes a contact sheet per group
    (out/group-001.html, ...), an overview (out/index.html) and the list (out/groups.csv).
    """
    opened = Index.open(index)
    if len(opened) < 2:
        raise ValueError(f"{index} holds {len(opened)} images: nothing to group")
    vectors, normalize = opened.vectors(), opened.manifest.model.normalize
    with display() as (_, callbacks):
        if link is not None:
            result = by_density(vectors, _similarity(index, link), normalize=normalize)
        else:
            progress = callbacks.of("k-means")
            result = by_k_means(vectors, groups, normalize=normalize, progress=progress)
    _write(opened, result, out)
    console.print(
        f"{len(result.members):,} groups ({result.why}), {len(result.alone):,} images alone",
    )
    for number, members in enumerate(result.members[:NAMED], start=1):
        console.print(f"  {number:>3}  {len(members):,} images")
    if (more := len(result.members) - NAMED) > 0:
        console.print(f"  ... and {more:,} more groups, all in {out / 'groups.csv'}")
    console.print(f"contact sheets: {out / 'index.html'}")


def _similarity(index: Path, link: str) -> float:
    if link != "calibrated":
        return float(link)
    calibration = read_calibration(model_of(index))
    if calibration is None:
        raise ValueError("--link calibrated needs `unseen calibrate RUN` before")
    return calibration.threshold


def _write(index: Index, result: Groups, out: Path) -> None:
    contact_page.write_groups(out, index, result)
    ids = index.ids
    columns: dict[str, list[Any]] = {"group": [], "id": [], "path": []}
    for number, members in enumerate([result.alone, *result.members]):
        columns["group"] += [number or ""] * len(members)
        columns["id"] += ids[members].tolist()
        columns["path"] += [index.image(id).path for id in ids[members]]
    table_file.write(out / "groups.csv", columns)
