"""A diagnosis for the terminal and for the page: sentences with remedies, numbers, pictures."""

from typing import Any

from rich.console import Group
from rich.table import Column, Table
from rich.text import Text

from unseen.contracts import Dataset, FiledDataset
from unseen.files import shown
from unseen.pages import Part
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


def printed(diagnosis: Json, dataset: Dataset) -> Group:
    """Sentences, numbers, then the pictures they speak of."""
    lines: list[Any] = []
    for finding in diagnosis["findings"]:
        sign, style = SIGNS[finding["level"]]
        lines.append(Text(f"{sign} {finding['text']}", style))
        if finding["remedy"]:
            lines.append(Text(f"  → {finding['remedy']}"))
    table = Table(Column("", overflow="fold"), "training classes", "unseen classes")
    for title, *cells in _rows(diagnosis):
        table.add_row(Text(title), *cells)
    return Group(*lines, table, *_robustness_lines(diagnosis), *_suspect_lines(diagnosis, dataset))


def section(diagnosis: Json, dataset: Dataset) -> Part:
    """For the page; suspects are pictures whose neighbours agree on another class."""
    return Part.of(
        "reports/diagnosis",
        "Diagnosis",
        findings=diagnosis["findings"],
        signs={level: sign for level, (sign, _) in SIGNS.items()},
        robustness=_robustness_lines(diagnosis),
        numbers=_rows(diagnosis),
        suspects=[
            (title, [tile(item, dataset, "suspect", suggested) for item, suggested in some[:SHOWN]])
            for part, title in (("train", "training"), ("test", "unseen"))
            if (some := diagnosis["suspects"].get(part))
        ],
    )


def _rows(diagnosis: Json) -> list[tuple[str, str, str]]:
    """Title, value on training and on unseen classes; of further diagnostics their numbers."""
    rows = [
        (title, _number(diagnosis, "train", name), _number(diagnosis, "test", name))
        for name, title in NUMBERS.items()
    ]
    for name, told in diagnosis.get("more", {}).items():
        seen, unseen = told.get("train", {}), told.get("test", {})
        keys = [key for key in {**seen, **unseen} if not isinstance(seen.get(key), list)]
        rows += [(f"{name}: {key}", _short(seen.get(key)), _short(unseen.get(key))) for key in keys]
    return rows


def _short(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"


def _suspect_lines(diagnosis: Json, dataset: Dataset) -> list[Text]:
    """Which pictures may have wrong labels, by file where there is one."""
    lines = []
    for part, title in (("train", "training"), ("test", "unseen")):
        some = diagnosis["suspects"].get(part, [])
        number = diagnosis["numbers"].get(part, {}).get("suspects") or len(some)
        lines += [Text(f"Neighbours suggest another class, {title} classes:")] if some else []
        for item, suggested in some[:SHOWN]:
            name = f"item {item}"
            if isinstance(dataset, FiledDataset):
                name = shown(dataset.path(item))
            label = dataset.label_names[int(dataset.labels[item])]
            lines.append(Text(f"  {name}: {label}, rather {suggested}"))
        if (more := int(number) - SHOWN) > 0 and some:
            lines.append(Text(f"  and {more:,} more; `unseen report` shows them"))
    return lines


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
