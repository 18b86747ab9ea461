"""The page on which suspected labels are decided: one HTML file that needs no network.

    write(Path("review/index.html"), review)

Every suspect stands with pictures of its own class and of those it could belong to. Decisions are
made by key, stay in the browser, and are downloaded as a table: all pictures with their labels as
decided, without the dropped ones, as the data set `table` reads it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from unseen.contracts import Dataset, Progress
from unseen.experiment.suspicion import Suspect
from unseen.files import replace_bytes
from unseen.pages import render
from unseen.reports.thumbnails import TILE, data_uri, fitted, picture_of

SIDE = 320  # of the picture one decides on


@dataclass(frozen=True)
class Review:
    """names: of all items. columns: the whole table, a row for each item; None: the pictures are no
    files. key: changes with the data, so that decisions are found again. summary: how many look
    wrong."""

    dataset: Dataset
    names: Sequence[str]
    suspects: Sequence[Suspect]
    columns: Mapping[str, Sequence[str]] | None
    key: str
    summary: str

    @property
    def name(self) -> str:
        return self.dataset.name

    @property
    def items(self) -> int:
        return len(self.dataset)

    @property
    def table(self) -> bool:
        return self.columns is not None

    @property
    def file(self) -> str:
        """What the browser calls the download."""
        return f"{self.name}-reviewed.csv" if self.table else f"{self.name}-decisions.csv"


def write(out: Path, review: Review, progress: Progress | None = None) -> None:
    """The whole file or none."""
    data = _data(review, progress or (lambda done, total: None))
    replace_bytes(out, render("reports/review", review=review, data=data).encode())


def _data(review: Review, progress: Progress) -> dict[str, Any]:
    """What the script reads."""
    suspects = []
    small: dict[int, str] = {}
    for place, suspect in enumerate(review.suspects):
        progress(place, len(review.suspects))
        for item in (suspect.item, *suspect.own, *(i for some in suspect.near for i in some)):
            if item not in small:
                small[item] = data_uri(fitted(picture_of(review.dataset, item), TILE), quality=70)
        picture = data_uri(fitted(picture_of(review.dataset, suspect.item), SIDE))
        facts = {"picture": picture, "name": review.names[suspect.item]}
        suspects.append(asdict(suspect) | facts)
    progress(len(suspects), len(suspects))
    table = None
    if review.columns is not None:
        rows = [list(row) for row in zip(*review.columns.values(), strict=True)]
        table = {"names": list(review.columns), "rows": rows}
    return {
        "key": review.key,
        "file": review.file,
        "classes": [str(name) for name in review.dataset.label_names],
        "suspects": suspects,
        "small": small,
        "table": table,
    }
