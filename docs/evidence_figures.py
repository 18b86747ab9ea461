"""Draws the picture of every claim whose study is kept in evidence/: effects with their intervals
beside the published ones, as docs/figures/evidence/NAME.png.

    python docs/evidence_figures.py
"""

import shutil
import tempfile
from pathlib import Path

from unseen.studies import kept, report
from unseen.studies.published import study as published_studies
from unseen.studies.results import read

ROOT = Path(__file__).parents[1]


def write(evidence: Path, figures: Path) -> list[Path]:
    """The figures that were drawn."""
    drawn = []
    for file in sorted(evidence.glob(f"*{kept.SUFFIX}")):
        if file.stem.startswith("generalisation-"):  # they have a page: benchmark_page.py
            continue
        with tempfile.TemporaryDirectory() as aside:
            place = kept.unpack(Path(shutil.copy(file, aside)))
            is_published = published_studies.is_published(place)
            page = published_studies.remake(place) if is_published else report.write(read(place))
            for png in sorted(page.parent.glob("figures/effects*.png")):
                figures.mkdir(parents=True, exist_ok=True)
                name = file.stem + png.stem.removeprefix("effects")
                drawn.append(Path(shutil.copy(png, figures / f"{name}.png")))
    return drawn


if __name__ == "__main__":
    for made in write(ROOT / "evidence", ROOT / "docs" / "figures" / "evidence"):
        print(made.relative_to(ROOT))
