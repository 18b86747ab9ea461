"""What `unseen evaluate run` prints of few shots, of other domains and of an open set."""

from rich.table import Table

from unseen.cli.terminal import console
from unseen.evaluation.open_set import OpenSet
from unseen.evaluation.training_gain import Gain
from unseen.reports.generalization import open_set_title
from unseen.reports.score_tables import metric_title
from unseen.runs.few_shot_layers import noted
from unseen.runs.few_shots import FewShots
from unseen.runs.forgetting import Forgetting


def print_shots(result: FewShots) -> None:
    """Before, after and the gain."""
    images = "image" if result.shots == 1 else "images"
    of = f"{result.shots} {images} of a class{noted(result.adapt)}"
    table = Table(of, "before", "after", "gain")
    for metric, gain in result.gain.items():
        table.add_row(metric_title(metric), *_cells(gain))
    console.print(table)
    left = f"; {result.too_small} too small to give any" if result.too_small else ""
    console.print(
        f"means of {result.episodes} episodes, {result.classes} test classes{left}; the shots "
        "neither ask nor answer; 95 % interval over episodes and classes"
    )


def print_forgetting(result: Forgetting) -> None:
    """Home first, then the other domains, and what must be said."""
    table = Table("recall@1", "classes", "before", "after", "change")
    for place, domain in enumerate([result.home, *result.elsewhere]):
        name = f"{domain.data} (home)" if place == 0 else domain.data
        table.add_row(name, f"{domain.classes:,}", *_cells(domain.gain["recall@1"]))
    console.print(table)
    if result.warning:
        console.print(result.warning, style="yellow")


def print_open_set(result: OpenSet) -> None:
    """Scores without a threshold, then what each threshold does."""
    console.print(
        f"{result.how}: {result.known_queries:,} known queries of {result.known_classes} classes, "
        f"{result.unknown_queries:,} unknown of {result.unknown_classes}, {result.gallery:,} "
        "answers"
    )
    table = Table("open set", "%", "95 % interval over classes")
    for name, score in result.scores.items():
        interval = f"{100 * score.low:.1f} … {100 * score.high:.1f}"
        table.add_row(open_set_title(name), f"{100 * score.value:.1f}", interval)
    console.print(table)
    if result.at:
        at = Table("threshold", "similarity", "FAR", "DIR", "BAKS", "BAUS", "geometric mean")
        for name, point in result.at.items():
            fractions = (point.far, point.dir, point.baks, point.baus, point.balance)
            at.add_row(name, f"{point.threshold:.4f}", *(f"{100 * v:.1f}" for v in fractions))
        console.print(at)
    if result.groups:
        console.print(
            f"{result.groups.items:,} unknown queries fall into {result.groups.number} groups "
            "(they "
            f"have {result.groups.classes} classes): adjusted Rand index {result.groups.ari:.3f}"
        )


def _cells(gain: Gain) -> tuple[str, str, str]:
    change = f"{100 * (gain.after - gain.before):+.1f}"
    ends = f"{100 * gain.low:+.1f} … {100 * gain.high:+.1f}"
    return f"{100 * gain.before:.1f}", f"{100 * gain.after:.1f}", f"{change} ({ends})"
