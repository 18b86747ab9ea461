"""Fills the tables of docs/findings.md from the studies kept in evidence/, and draws their effects
beside the published ones as docs/figures/evidence/NAME.png.

    python docs/findings_page.py

A table stands between `<!-- table of NAME -->` and `<!-- end -->`; what is around it is written by
hand.
"""

import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from unseen.reports.tables import Table
from unseen.reproductions import published_study as published_studies
from unseen.studies import archive, study_report
from unseen.studies.results import Results, read
from unseen.studies.validity_checks import Compared, MethodRuns, comparisons, effect_text

ROOT = Path(__file__).parents[1]
HEADS = ["claim", "recall@1", "effect", "published", "detectable", "conclusion", "hours"]
MARKED = re.compile(r"(<!-- table of (\w+) -->\n).*?(?=<!-- end -->)", re.DOTALL)
CLAIMS = {
    "+switch": "The rho switch raises recall (Roth)",
    "+density": "The density term raises recall (Li)",
    "+HORDE": "HORDE raises recall (Jacob)",
    " at pooled": "The layer before the loss is the better descriptor (Vo and Hays)",
    "": "ProxyAnchor wins (Psomas)",
}  # by what a method's name contains


def write(evidence: Path, docs: Path) -> list[Path]:
    """The page with its tables, and the figures."""
    page = docs / "findings.md"
    page.write_text(filled(page.read_text("utf-8"), evidence), "utf-8")
    return [page, *figures(evidence, docs / "figures" / "evidence")]


def filled(page: str, evidence: Path) -> str:
    """The text with every table as its study has it."""

    def table(result: re.Match[str]) -> str:
        with unpacked(evidence / f"{result[2]}{archive.SUFFIX}") as place:
            return result[1] + "\n".join(["", *conclusions(read(place)).markdown()])

    return MARKED.sub(table, page)


def conclusions(results: Results) -> Table:
    """A row for every comparison."""
    return Table(HEADS, [_row(results, each) for each in comparisons(results)])


def _row(results: Results, each: Compared) -> list[str]:
    sides = [MethodRuns(results, each.experiment, name) for name in (each.method, each.against)]
    claim = next(message for word, message in CLAIMS.items() if word in each.method)
    experiment = f"{each.experiment}: " if each.experiment else ""
    levels = [
        100 * np.mean([run.score(results.plan.metric) for run in side.runs]) for side in sides
    ]
    runs = {run.folder: run for side in sides for run in [*side.runs, *side.trials]}
    seconds = sum(run.seconds for run in runs.values())
    return [
        f"{claim}: {experiment}{each.method} against {each.against}",
        f"{levels[0]:.1f}, {levels[1]:.1f}",
        effect_text(each.effect),
        "–" if np.isnan(each.published) else f"{each.published:+.1f}",
        "–" if each.effect is None else f"{100 * each.effect.detectable:.1f}",
        each.conclusion,
        f"{seconds / 3600:.1f}",
    ]


def figures(evidence: Path, out: Path) -> list[Path]:
    """The effects of every study that has no page of its own, drawn."""
    drawn = []
    for file in sorted(evidence.glob(f"*{archive.SUFFIX}")):
        if file.stem.startswith("generalization-"):  # they have a page: benchmark_page.py
            continue
        with unpacked(file) as place:
            is_published = published_studies.is_published(place)
            page = (
                published_studies.remake(place) if is_published else study_report.write(read(place))
            )
            for png in sorted(page.parent.glob("figures/effects*.png")):
                out.mkdir(parents=True, exist_ok=True)
                name = file.stem + png.stem.removeprefix("effects")
                drawn.append(Path(shutil.copy(png, out / f"{name}.png")))
    return drawn


@contextmanager
def unpacked(file: Path) -> Iterator[Path]:
    """A kept study as a folder, for a while."""
    with tempfile.TemporaryDirectory() as aside:
        yield archive.unpack(Path(shutil.copy(file, aside)))


if __name__ == "__main__":
    for made in write(ROOT / "evidence", ROOT / "docs"):
        print(made.relative_to(ROOT))
