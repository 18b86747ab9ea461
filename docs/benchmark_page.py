"""Writes docs/benchmark.md and its figures from the studies kept as evidence/generalisation-*.txz.

python docs/benchmark_page.py
"""

import re
import shutil
import tempfile
from pathlib import Path

from unseen.studies import kept
from unseen.studies.generalisation import run as generalisation

ROOT = Path(__file__).parents[1]
FIGURES = "figures/benchmark"
HEAD = """# The benchmark of generalisation

How do methods hold up as the unseen becomes stranger? Each section is one study of one data set,
made by `unseen study preset generalisation` ([studies](studies.md); what it measures
is in [How far does it generalise?](generalisation.md)): heads on frozen features, or, in sections
named `-layers`, networks trained on the pictures; the learning rate of each method tuned for each
step on validation classes, on steps of a ladder of shifts. A method that fails a gate of a verdict
says so in its row, and is left out of the answer. For your pictures:

    unseen study preset generalisation --data my_photos/ --minutes 60
    unseen study preset generalisation --data my_photos/ --minutes 600 --layers depth=last

This page is written by `python docs/benchmark_page.py` from what `unseen study keep` kept in
`evidence/generalisation-*.txz`.
"""


def write(evidence: Path, docs: Path) -> Path:
    """The page: a section for each kept study."""
    parts = [HEAD]
    for file in sorted(evidence.glob(f"generalisation-*{kept.SUFFIX}")):
        name = file.stem.removeprefix("generalisation-")
        with tempfile.TemporaryDirectory() as aside:
            page = generalisation.remake(kept.unpack(Path(shutil.copy(file, aside))))
            text = (page.parent / "findings.md").read_text()
            for png in sorted(page.parent.glob("figures/*.png")):
                (docs / FIGURES).mkdir(parents=True, exist_ok=True)
                shutil.copy(png, docs / FIGURES / f"{name}-{png.name}")
        parts.append(_section(name, text))
    out = docs / "benchmark.md"
    out.write_text("\n".join(parts), encoding="utf-8")
    return out


def _section(name: str, findings: str) -> str:
    """A study's findings under its name."""
    text = re.sub(r"\A## .*", f"## {name}", findings)
    text = text.replace("](figures/", f"]({FIGURES}/{name}-")
    return text.replace("### ", f"### {name}: ")  # headings of a page must differ


if __name__ == "__main__":
    print(write(ROOT / "evidence", ROOT / "docs").relative_to(ROOT))
