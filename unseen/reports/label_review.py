"""The page on which suspected labels are decided: one HTML file that needs no network.

Every label issue stands with images of its own class and of those it could belong to. Decisions are
made by key, stay in the browser, and are downloaded as a table: all images with their labels as
decided, without the dropped ones, as the data set `table` reads it.
"""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from unseen.core.contracts import Progress
from unseen.core.files import replace_bytes
from unseen.core.html_templates import render
from unseen.reports.thumbnails import TILE, data_uri, fitted, image_of
from unseen.runs.label_issues import LabelIssues

SIDE = 320  # of the image one decides on


def write(out: Path, issues: LabelIssues, places: Sequence[int], progress: Progress) -> None:
    """Those that were looked at, at some places; the whole file or none."""
    dataset, names, columns = issues.dataset, issues.names(), issues.columns()

    @cache
    def small(item: int) -> str:
        return data_uri(fitted(image_of(dataset, item), TILE), quality=70)

    listed, images = [], dict[int, str]()
    for number, place in enumerate(places):
        progress(number, len(places))
        item, label = int(issues.items[place]), int(dataset.labels[issues.items[place]])
        suggested = issues.scores.suggested[place].tolist()
        own, *near = (issues.nearest(place, each) for each in (label, *suggested))
        images |= {example: small(example) for some in ([item], own, *near) for example in some}
        listed.append(
            {
                "item": item,
                "label": label,
                "suggested": suggested,
                "issue_score": float(issues.scores.issue_score[place]),
                "own": own,
                "near": near,
                "image": data_uri(fitted(image_of(dataset, item), SIDE)),
                "name": names[item],
            }
        )
    progress(len(places), len(places))
    rows = list(zip(*(columns or {}).values(), strict=True))
    data: dict[str, Any] = {
        "key": issues.key,
        "file": f"{dataset.name}-{'decisions' if columns is None else 'reviewed'}.csv",
        "classes": [str(name) for name in dataset.label_names],
        "label_issues": listed,
        "small": images,
        "table": columns and {"names": list(columns), "rows": rows},
    }
    replace_bytes(out, render("reports/review", issues=issues, data=data).encode())
