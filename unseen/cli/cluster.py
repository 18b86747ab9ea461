"""`unseen cluster`: the pictures of an index in groups of their kind."""

from pathlib import Path
from typing import Annotated, Any

import typer

from unseen.cli.terminal import console, display
from unseen.data.pictures import table_file
from unseen.experiment.calibration import read_calibration
from unseen.search import sheet
from unseen.search.groups import Groups, by_density, by_k_means
from unseen.search.index import Index
from unseen.search.maintain import model_of

NAMED = 10  # groups on the terminal


def cluster(
    index: Annotated[Path, typer.Argument(help="a folder made by `unseen index build`")],
    groups: Annotated[
        int | None, typer.Option(min=1, help="how many", show_default="chosen by the silhouette")
    ] = None,
    density: Annotated[
        bool, typer.Option(help="link pictures above a similarity instead of k-means")
    ] = False,
    similarity: Annotated[
        float | None,
        typer.Option(help="for --density", show_default="the run's calibrated threshold"),
    ] = None,
    out: Annotated[Path, typer.Option(help="folder of the pages")] = Path("groups"),
    seed: Annotated[int, typer.Option(help="of k-means")] = 0,
) -> None:
    """Example: unseen cluster birds.index --groups 20 --out groups

    Groups pictures by looks alone; labels are not used. Writes a contact sheet per group
    (out/group-001.html, ...), an overview (out/index.html) and the list (out/groups.csv).
    """
    opened = Index.open(index)
    if len(opened) < 2:
        raise ValueError(f"{index} holds {len(opened)} pictures: nothing to group")
    vectors, normalise = opened.vectors(), opened.manifest.model.normalise
    with display() as (_, watch):
        if density:
            found = by_density(vectors, _similarity(index, similarity), normalise=normalise)
        else:
            progress = watch.of("k-means")
            found = by_k_means(vectors, groups, normalise=normalise, seed=seed, progress=progress)
    _write(opened, found, out)
    console.print(
        f"{len(found.members):,} groups ({found.why}), {len(found.alone):,} pictures alone",
    )
    for number, members in enumerate(found.members[:NAMED], start=1):
        console.print(f"  {number:>3}  {len(members):,} pictures")
    if (more := len(found.members) - NAMED) > 0:
        console.print(f"  ... and {more:,} more groups, all in {out / 'groups.csv'}")
    console.print(f"contact sheets: {out / 'index.html'}")


def _similarity(index: Path, given: float | None) -> float:
    if given is not None:
        return given
    calibration = read_calibration(model_of(index))
    if calibration is None:
        raise ValueError("--density needs --similarity, or `unseen calibrate RUN` before")
    return calibration.threshold


def _write(index: Index, found: Groups, out: Path) -> None:
    sheet.write_groups(out, index, found)
    ids = index.ids
    columns: dict[str, list[Any]] = {"group": [], "id": [], "path": []}
    for number, members in enumerate([found.alone, *found.members]):
        columns["group"] += [number or ""] * len(members)
        columns["id"] += ids[members].tolist()
        columns["path"] += [index.picture(id).path for id in ids[members]]
    table_file.write(out / "groups.csv", columns)
