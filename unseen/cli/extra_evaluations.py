"""What `unseen evaluate run` prints of few shots, of other domains and of an open set."""

from unseen.cli.terminal import console
from unseen.evaluation.open_set import OpenSet
from unseen.reports.generalization import domains_table, open_set_tables, shots_table
from unseen.runs.few_shots import FewShots
from unseen.runs.forgetting import Forgetting


def print_shots(result: FewShots) -> None:
    """Before, after and the gain."""
    console.print(shots_table([result]).terminal())
    left = f"; {result.too_small} too small to give any" if result.too_small else ""
    console.print(
        f"means of {result.episodes} episodes, {result.classes} test classes{left}; the shots "
        "neither ask nor answer; in brackets the 95 % interval over episodes and classes"
    )


def print_forgetting(result: Forgetting) -> None:
    """Home first, then the other domains, and what must be said."""
    console.print(domains_table(result).terminal())
    if result.warning:
        console.print(result.warning, style="yellow")


def print_open_set(result: OpenSet) -> None:
    """Scores without a threshold, then what each threshold does."""
    console.print(
        f"{result.how}: {result.known_queries:,} known queries of {result.known_classes} classes, "
        f"{result.unknown_queries:,} unknown of {result.unknown_classes}, {result.gallery:,} "
        "answers"
    )
    for table in open_set_tables(result):
        console.print(table.terminal())
    if result.groups:
        console.print(
            f"{result.groups.items:,} unknown queries fall into {result.groups.number} groups "
            "(they "
            f"have {result.groups.classes} classes): adjusted Rand index {result.groups.ari:.3f}"
        )
