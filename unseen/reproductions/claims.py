"""What a source claims, what was measured of it, and whether it holds: the first section of a page.

    Claim("D01", [against(results, "none", "density")])

A claim is a sentence of a source; each of its findings is one effect with its interval, and the
published effect where the source prints one (`effects.py`).
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from unseen.reports.tables import Cell, Table
from unseen.reproductions.effects import Finding
from unseen.reproductions.numbers import table
from unseen.studies.effect_figure import effects_drawn
from unseen.studies.findings import Section
from unseen.studies.study_tables import validity_table
from unseen.studies.validity_checks import INCONCLUSIVE

HEADS = ["claim", "of", "published", "ours", "conclusion"]


@dataclass(frozen=True)
class Claim:
    """A sentence of a source, by its name in numbers/claims.csv, and what was measured of it. unit:
    of its findings."""

    name: str
    findings: Sequence[Finding] = field(default=())
    unit: str = "points"

    @property
    def text(self) -> str:
        return claim_texts()[self.name]


@cache
def claim_texts() -> dict[str, str]:
    """Name -> sentence, of all claims of the sources."""
    return {str(row["name"]): str(row["claim"]) for row in table("claims")}


def claims_section(claims: Sequence[Claim], data: str) -> Section:
    """The headline, then every claim; the validity checks go to the end of the page."""
    answered = [claim for claim in claims if claim.findings]
    findings = [finding for claim in answered for finding in claim.findings]
    rows: list[list[Cell | str]] = []
    for claim in answered:
        for place, each in enumerate(claim.findings):
            title = f"{claim.name}: {claim.text}" if place == 0 else ""
            published = "–" if math.isnan(each.published) else f"{each.published:+.2f}"
            status: Any = "bad" if each.word == INCONCLUSIVE else ""
            of = f"{each.of}, {claim.unit}"
            rows.append([title, of, published, each.text, Cell(each.conclusion, status=status)])
    caption = (
        "Ours: the effect with its 95 % interval. Published: as the source prints it, or computed "
        "from its tables. A claim holds where the interval leaves 0 out on the claim's side."
    )
    figures, folded = [], []
    for metric in dict.fromkeys(each.metric for each in findings):
        known = [f.compared for f in findings if f.metric == metric and f.compared is not None]
        shown = [each for each in known if each.effect is not None]
        figures += effects_drawn(shown, metric, f"effects_{metric.partition('@')[0]}")
        folded += [validity_table(known)] if known else []
    return Section("Claims", [headline(findings, data)], [Table(HEADS, rows, caption)], figures,
                   folded)  # fmt: skip


def headline(findings: Sequence[Finding], data: str) -> str:
    """How many effects are conclusive, and how; why none is, where none is."""
    words = Counter(each.word for each in findings)
    conclusive = len(findings) - words[INCONCLUSIVE]
    if not conclusive:
        reasons = Counter(
            component for each in findings for component in each.why.split("; ") if component
        )
        why = "; ".join(reason for reason, _ in reasons.most_common(3)) or "no run has finished"
        return f"Every claim is inconclusive on {data}: {why}."
    counts = ", ".join(f"{words[w]} {w}" for w in words if w != INCONCLUSIVE)
    return f"{conclusive} of {len(findings)} claimed effects have a conclusion: {counts}."


def plain_rows(claims: Sequence[Claim]) -> list[dict[str, Any]]:
    """What is stored of the claims, for pages that join data sets."""
    return [
        {"claim": claim.name, "text": claim.text, "of": f"{each.of}, {claim.unit}",
         "published": each.published, "ours": each.text, "conclusion": each.word}
        for claim in claims for each in claim.findings
    ]  # fmt: skip


def joined_section(by_data: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[Section]:
    """The claims of the same study on several data sets, side by side; none of one alone."""
    if len(by_data) < 2:
        return []
    heads = ["claim", "of"]
    for data in by_data:
        heads += [f"{data}: published", "ours", "conclusion"]
    keys = dict.fromkeys((r["claim"], r["of"]) for rows in by_data.values() for r in rows)
    rows = []
    for key in keys:
        cells = list(key)
        for known in by_data.values():
            row = next((r for r in known if (r["claim"], r["of"]) == key), None)
            published = math.nan if row is None else row["published"]
            published_text = (
                "–" if published is None or math.isnan(published) else f"{published:+.2f}"
            )
            cells += ["–"] * 3 if row is None else [published_text, row["ours"], row["conclusion"]]
        rows.append(cells)
    message = f"The same claims on {len(by_data)} data sets: {', '.join(by_data)}."
    return [Section("All data sets", [message], [Table(heads, rows)])]
