"""A diagnosis for the terminal and for the page: sentences with remedies, numbers, pictures."""

from html import escape
from typing import Any

from rich.console import Group
from rich.table import Column, Table
from rich.text import Text

from unseen.contracts import Dataset
from unseen.reports.thumbnails import tile

Json = dict[str, Any]

SIGNS = {"good": ("✓", "green"), "note": ("•", "yellow"), "warning": ("!", "bold red")}
SHOWN = 12
NUMBERS = {
    "recall@1": "R@1",
    "intra": "distance within classes (cosine)",
    "inter": "distance between classes",
    "ratio": "their ratio",
    "alignment": "alignment",
    "uniformity": "uniformity",
    "density": "density (mean squared distance from the class mean)",
    "rho": "spectral decay rho",
    "effective_rank": "effective rank, centred",
    "skewness": "hubness (skewness)",
    "orphans": "share of pictures nobody's neighbour",
    "suspects": "suspected wrong labels",
}


def printed(diagnosis: Json) -> Group:
    """Sentences, then numbers."""
    lines: list[Any] = []
    for finding in diagnosis["findings"]:
        sign, style = SIGNS[finding["level"]]
        lines.append(Text(f"{sign} {finding['text']}", style))
        if finding["remedy"]:
            lines.append(Text(f"  → {finding['remedy']}"))
    table = Table(Column("", overflow="fold"), "training classes", "unseen classes")
    for name, title in NUMBERS.items():
        table.add_row(Text(title), *[_number(diagnosis, part, name) for part in ("train", "test")])
    return Group(*lines, table, *_robustness_lines(diagnosis))


def section(diagnosis: Json, dataset: Dataset) -> str:
    """For the page."""
    items = ""
    for finding in diagnosis["findings"]:
        sign, _ = SIGNS[finding["level"]]
        remedy = f"<br><small>{escape(finding['remedy'])}</small>" if finding["remedy"] else ""
        items += f'<li class="{finding["level"]}">{sign} {escape(finding["text"])}{remedy}</li>'
    rows = "".join(
        f'<tr><th scope="row">{title}</th>'
        + "".join(f"<td>{_number(diagnosis, part, name)}</td>" for part in ("train", "test"))
        + "</tr>"
        for name, title in NUMBERS.items()
    )
    robust = "".join(f"<p>{escape(str(line))}</p>" for line in _robustness_lines(diagnosis))
    return (
        f'<ul class="findings">{items}</ul>{robust}'
        '<details><summary>The numbers</summary><div class="scroll" tabindex="0" role="region" '
        'aria-label="Diagnostics"><table><thead><tr><th></th><th scope="col">training classes</th>'
        f'<th scope="col">unseen classes</th></tr></thead><tbody>{rows}</tbody></table></div>'
        f"</details>{_suspects(diagnosis, dataset)}"
    )


def _suspects(diagnosis: Json, dataset: Dataset) -> str:
    """Pictures whose neighbours agree on another class."""
    text = ""
    for part, title in (("train", "training"), ("test", "unseen")):
        listed = diagnosis["suspects"].get(part, [])[:SHOWN]
        tiles = "".join(
            f'<li class="tile wrong">{tile(index, dataset, "suspect", _verdict(suggested))}</li>'
            for index, suggested in listed
        )
        if tiles:
            text += f"<h3>Suspected wrong labels, {title} classes</h3>"
            text += f'<ol class="suspects">{tiles}</ol>'
    return text


def _verdict(suggested: str) -> str:
    return f'<span class="verdict">rather <bdi>{escape(suggested)}</bdi>?</span>'


def _robustness_lines(diagnosis: Json) -> list[str]:
    found = diagnosis.get("robustness")
    if not found:
        return []
    parts = [
        f"{fraction:.0%} of the places {100 * mean:.1f} ± {100 * std:.1f}"
        for fraction, mean, std in found["recall"]
    ]
    ratio = found["scatter_ratio"]
    scatter = f" Scatter ratio {ratio:.2f}." if ratio is not None else ""
    return [f"Recall@1 with a part of the local features: {', '.join(parts)}.{scatter}"]


def _number(diagnosis: Json, part: str, name: str) -> str:
    value = diagnosis["numbers"].get(part, {}).get(name)
    if value is None:
        return "–"
    if name in ("recall@1", "orphans"):
        return f"{100 * value:.1f} %"
    return f"{value:,.0f}" if name == "suspects" else f"{value:.3g}"
