"""Points with numbers for names that would cover each other, and the list of the names."""

from collections.abc import Collection, Mapping
from typing import Any

from matplotlib.figure import Figure

from unseen.studies.study_figures import ACCENT

OTHER = "#d9822b"


def numbered_points(
    ax: Any, points: Mapping[str, tuple[float, float]], others: Collection[str] = ()
) -> None:
    """A dot for each name at its place, a square for those of the other kind."""
    for place, (name, (x, y)) in enumerate(points.items(), start=1):
        mark, color = ("s", OTHER) if name in others else ("o", ACCENT)
        ax.plot(x, y, mark, color=color, ms=5, label=f"{place}  {name}")
        ax.annotate(str(place), (x, y), (4, 3), textcoords="offset points", fontsize=7)


def name_list(figure: Figure, ax: Any) -> None:
    """What the numbers of a panel stand for, beside the figure."""
    figure.legend(
        *ax.get_legend_handles_labels(), loc="outside right upper", fontsize=8, frameon=False,
        handlelength=0.8,
    )  # fmt: skip
