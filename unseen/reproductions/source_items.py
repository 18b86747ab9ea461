"""Every table and figure of the five sources that shows a measurement, the command that makes it
again, the section of its page, and what of it is missing here.

    unseen study published                    the list
    filled(page)                              docs/sources.md with its tables

How the set-up differs is not written here: it is read off the plans (`source_values.py`). A test
holds the sections against pages that were made.
"""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from unseen.reports.tables import Table
from unseen.reproductions.numbers import table
from unseen.reproductions.published_study import find
from unseen.reproductions.request import Ask

NONE = "–"


@dataclass(frozen=True)
class Item:
    """A table or figure. study, section: where it is shown; none: it is not. data: where it is not
    CUB-200. missing: what of it is not made, and why."""

    source: str
    item: str
    shows: str
    study: str
    section: str
    missing: str
    data: str

    @property
    def command(self) -> str:
        if not self.study:
            return NONE
        words = ["unseen", "study", "published", self.study]
        words += [] if self.study == "toy" else ["--data", self.data]
        return shlex.join([*words, "--budget", "full"])


ITEMS = tuple(
    Item(**{key: str(value or "") for key, value in row.items()}) for row in table("items")
)


def of(study: str) -> list[Item]:
    """The tables and figures that a published study shows."""
    return [item for item in ITEMS if item.study == study]


def item_table(items: Sequence[Item] = ITEMS) -> Table:
    """Item, command, what differs."""
    rows = [
        [i.source, i.item, i.shows, i.command, i.section or NONE, i.missing or NONE] for i in items
    ]
    heads = ["source", "item", "what it shows", "command", "section of the page"]
    return Table([*heads, "what is missing, and why"], rows)


def claim_table() -> Table:
    """Every measurable claim of the sources, with the study that answers it."""
    rows = []
    for row in table("claims"):
        cells = [str(row[key]) for key in ("name", "source", "where", "claim", "published")]
        study = str(row["study"] or "")
        command = f"unseen study published {shlex.quote(study)}" if study else NONE
        rows.append([*cells, command])
    return Table(["claim", "source", "where", "what it says", "published", "command"], rows)


def set_up_table() -> Table:
    """Where the runs of every study differ from its source's, by budget: read off its plans, run by
    run."""
    rows = []
    for name in dict.fromkeys(item.study for item in ITEMS if item.study):
        study = find(name)
        for data, budget in (("cub200", "full"), ("cars196", "full"), ("cub200", "quick")):
            ask = Ask(data, budget, seeds=1)  # type: ignore[arg-type]
            if study.origin is not None:
                result = study.setting_differences(ask, None)
                rows.append([name, data, budget, " ".join(result) or "nothing"])
    return Table(["study", "data", "budget", "what differs from the source"], rows)


def filled(page: str) -> str:
    """docs/sources.md with its tables as the code says: each stands between
    `<!-- table of NAME -->` and `<!-- end -->`."""
    made = {"items": item_table, "claims": claim_table, "set-up": set_up_table}

    def table_of(outcome: re.Match[str]) -> str:
        return outcome[1] + "\n".join(["", *made[outcome[2]]().markdown()])

    return re.sub(r"(<!-- table of ([\w-]+) -->\n).*?(?=<!-- end -->)", table_of, page, flags=re.S)
