"""A diagnosis for the terminal and for the page: sentences with remedies, numbers, images."""

from typing import Any

from rich.console import Group
from rich.text import Text

from unseen.core.contracts import Dataset, FiledDataset
from unseen.core.files import shown
from unseen.core.html_templates import PageSection
from unseen.evaluation.findings import Finding
from unseen.reports.tables import Table
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
    "orphans": "share of images nobody's neighbour",
    "label_issues": "suspected wrong labels",
}


def printed(diagnosis: Json, dataset: Dataset) -> Group:
    """Sentences, numbers, then the images they speak of."""
    lines: list[Any] = []
    for finding in (Finding(**stored) for stored in diagnosis["findings"]):
        sign, style = SIGNS[finding.level]
        lines.append(Text(f"{sign} {finding.text}", style))
        if finding.remedy:
            lines.append(Text(f"  → {finding.remedy}"))
    numbers, robustness = numbers_table(diagnosis).terminal(), _robustness_lines(diagnosis)
    return Group(*lines, numbers, *robustness, *_label_issue_lines(diagnosis, dataset))


def section(diagnosis: Json, dataset: Dataset) -> PageSection:
    """For the page; label issues are images whose neighbours agree on another class."""
    return PageSection.of(
        "reports/diagnosis",
        "Diagnosis",
        findings=[Finding(**stored) for stored in diagnosis["findings"]],
        signs={level: sign for level, (sign, _) in SIGNS.items()},
        robustness=_robustness_lines(diagnosis),
        numbers=numbers_table(diagnosis),
        label_issues=[
            (
                title,
                [tile(item, dataset, "label issue", suggested) for item, suggested in some[:SHOWN]],
            )
            for split, title in (("train", "training"), ("test", "unseen"))
            if (some := diagnosis["label_issues"].get(split))
        ],
    )


def numbers_table(diagnosis: Json) -> Table:
    """Values on training and on unseen classes; of further diagnostics their numbers."""
    rows = [
        [title, _number(diagnosis, "train", name), _number(diagnosis, "test", name)]
        for name, title in NUMBERS.items()
    ]
    for name, message in diagnosis.get("more", {}).items():
        seen, unseen = message.get("train", {}), message.get("test", {})
        keys = [key for key in {**seen, **unseen} if not isinstance(seen.get(key), list)]
        rows += [[f"{name}: {key}", _short(seen.get(key)), _short(unseen.get(key))] for key in keys]
    return Table(["", "training classes", "unseen classes"], rows)


def _short(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"


def _label_issue_lines(diagnosis: Json, dataset: Dataset) -> list[Text]:
    """Which images may have wrong labels, by file where there is one."""
    lines = []
    for split, title in (("train", "training"), ("test", "unseen")):
        some = diagnosis["label_issues"].get(split, [])
        number = diagnosis["numbers"].get(split, {}).get("label_issues") or len(some)
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
    if not (result := diagnosis.get("robustness")):
        return []
    parts = [
        f"{fraction:.0%} of the places {100 * mean:.1f} ± {100 * std:.1f}"
        for fraction, mean, std in result["recall"]
    ]
    ratio = result["scatter_ratio"]
    scatter = f" Scatter ratio {ratio:.2f}." if ratio is not None else ""
    return [f"Recall@1 with a split of the local features: {', '.join(parts)}.{scatter}"]


def _number(diagnosis: Json, split: str, name: str) -> str:
    value = diagnosis["numbers"].get(split, {}).get(name)
    if value is None:
        return "–"
    if name in ("recall@1", "orphans"):
        return f"{100 * value:.1f} %"
    return f"{value:,.0f}" if name == "label_issues" else f"{value:.3g}"
