"""What a source claims, what was measured of it, and whether it holds: the first section of a page.

    Claim("D01", [finding_of(each)])    # The density term raises recall with the contrastive loss.

A claim is a sentence of a source; each of its findings is one effect with its interval, and the
published effect where the source prints one. The conclusion compares intervals, never signs.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from unseen.core.statistics import over_seeds
from unseen.reports.tables import Cell, Table
from unseen.reproductions.numbers import table
from unseen.studies.effect_figure import effects_drawn
from unseen.studies.findings import Section
from unseen.studies.results import Results
from unseen.studies.study_tables import validity_table
from unseen.studies.validity_checks import INCONCLUSIVE, MIN_SEEDS, Compared, MethodRuns, compared

HEADS = ["claim", "of", "published", "ours", "conclusion"]
SAME = "no significant difference"


@dataclass(frozen=True)
class Finding:
    """One effect that a claim speaks of.

    Args:
        of: what it is the effect on, in words of the claim.
        value: ours, in the unit of the claim; NaN where nothing was measured.
        low, high: its 95 % interval.
        published: the source's effect; NaN where it prints none.
        expected: the sign that the claim asks for, where nothing is printed.
        why: what forbids a conclusion.
        compared: the comparison behind it, with its validity checks.
        metric: that is compared.
    """

    of: str
    value: float = math.nan
    low: float = math.nan
    high: float = math.nan
    published: float = math.nan
    expected: int = 1
    why: str = ""
    compared: Compared | None = None
    metric: str = "recall@1"

    @property
    def word(self) -> str:
        """holds, smaller, larger, opposite, no significant difference, inconclusive."""
        known = not math.isnan(self.low + self.high)
        if self.why or not known:
            return INCONCLUSIVE
        if self.low <= 0 <= self.high:
            return SAME
        wanted = self.expected if math.isnan(self.published) else self.published
        if wanted * self.value < 0:
            return "opposite"
        if math.isnan(self.published) or self.low <= self.published <= self.high:
            return "holds"
        return "larger" if abs(self.value) > abs(self.published) else "smaller"

    @property
    def conclusion(self) -> str:
        """The word with its reasons."""
        if self.word != INCONCLUSIVE:
            return self.word
        return f"{INCONCLUSIVE}: {self.why or 'no interval'}"

    @property
    def text(self) -> str:
        """+1.2 (+0.4 … +1.9)"""
        if math.isnan(self.value):
            return "–"
        ends = "" if math.isnan(self.low) else f" ({self.low:+.2f} … {self.high:+.2f})"
        return f"{self.value:+.2f}{ends}"


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


def finding_of(
    each: Compared, of: str = "", expected: int = 1, metric: str = "recall@1"
) -> Finding:
    """Of two methods' comparison, in points."""
    effect = each.effect
    ends = [math.nan] * 3 if effect is None else [effect.value, effect.low, effect.high]
    value, low, high = (100 * end for end in ends)
    title = of or each.experiment or each.method
    return Finding(title, value, low, high, each.published, expected, each.why, each, metric)


def mean_finding(
    of: str, values: Sequence[float], published: float = math.nan, expected: int = 1, why: str = ""
) -> Finding:
    """The mean of several numbers of the same kind with its interval by Student's t."""
    known = [value for value in values if not math.isnan(value)]
    if not known:
        return Finding(of, published=published, expected=expected, why=why or "not measured")
    spread = over_seeds(known)
    few = "" if len(known) >= MIN_SEEDS else f"{len(known)} of {MIN_SEEDS} numbers"
    return Finding(of, spread.mean, spread.low, spread.high, published, expected, why or few)


def claims_section(claims: Sequence[Claim], data: str) -> Section:
    """The headline, then every claim; the validity checks go to the end of the page."""
    shown = [claim for claim in claims if claim.findings]
    findings = [finding for claim in shown for finding in claim.findings]
    rows: list[list[Cell | str]] = []
    for claim in shown:
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
        figures += effects_drawn(known, metric, f"effects_{metric.partition('@')[0]}")
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


def against(
    results: Results,
    other: str,
    method: str,
    published: float = math.nan,
    of: str = "",
    experiment: str = "",
    metric: str = "recall@1",
    expected: int = 1,
) -> Finding:
    """What a method of a study adds to another one."""
    sides = [MethodRuns(results, experiment, name) for name in (other, method)]
    if not all(side.runs for side in sides):
        return Finding(of or method, published=published, expected=expected, why="not run")
    each = compared(sides[0], sides[1], published, metric)
    return finding_of(each, of or f"{method} against {other}", expected, metric)


def gap(
    published: Mapping[str, Mapping[str, float]], other: str, method: str, metric: str = "recall@1"
) -> float:
    """The published difference of two methods; NaN where one of them has no value."""
    values = [published.get(name, {}).get(metric) for name in (method, other)]
    known = [value for value in values if value is not None]
    return float(known[0]) - float(known[1]) if len(known) == 2 else math.nan
