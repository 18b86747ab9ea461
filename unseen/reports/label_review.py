"""The page on which suspected labels are decided: one HTML file that needs no network.

    write(Path("review/index.html"), review)

Every label issue stands with images of its own class and of those it could belong to. Decisions are
made by key, stay in the browser, and are downloaded as a table: all images with their labels as
decided, without the dropped ones, as the data set `table` reads it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from unseen.core.contracts import Dataset, Progress
from unseen.core.files import replace_bytes
from unseen.core.html_templates import render
from unseen.reports.thumbnails import TILE, data_uri, fitted, image_of
from unseen.runs.label_issue_scores import LabelIssue

SIDE = 320  # of the image one decides on


@dataclass(frozen=True)
class Review:
    """names: of all items. columns: the whole table, a row for each item; None: the images are no
    files. key: changes with the data, so that decisions are found again. summary: how many look
    wrong."""

    dataset: Dataset
    names: Sequence[str]
    label_issues: Sequence[LabelIssue]
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
    label_issues = []
    small: dict[int, str] = {}
    for place, label_issue in enumerate(review.label_issues):
        progress(place, len(review.label_issues))
        for item in (
            label_issue.item,
            *label_issue.own,
            *(i for some in label_issue.near for i in some),
        ):
            if item not in small:
                small[item] = data_uri(fitted(image_of(review.dataset, item), TILE), quality=70)
        image = data_uri(fitted(image_of(review.dataset, label_issue.item), SIDE))
        metadata = {"image": image, "name": review.names[label_issue.item]}
        label_issues.append(asdict(label_issue) | metadata)
    progress(len(label_issues), len(label_issues))
    table = None
    if review.columns is not None:
        rows = [list(row) for row in zip(*review.columns.values(), strict=True)]
        table = {"names": list(review.columns), "rows": rows}
    return {
        "key": review.key,
        "file": review.file,
        "classes": [str(name) for name in review.dataset.label_names],
        "label_issues": label_issues,
        "small": small,
        "table": table,
    }
