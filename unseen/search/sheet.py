"""Pictures on a page: one HTML file without scripts that opens anywhere."""

import base64
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from pathlib import Path

from unseen.data.pictures.decode import decode
from unseen.evaluation.calibrate import Calibration
from unseen.files import replace_bytes
from unseen.reports.thumbnails import data_uri, fitted
from unseen.search.answers import UNKNOWN, Answer, Hit
from unseen.search.index import Index

POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
QUERY_SIDE = 256
STYLE = """
.sheet { display: grid; grid-template-columns: repeat(auto-fill, minmax(112px, 1fr)); gap: 16px; }
.query { display: flex; gap: 20px; align-items: center; margin: 16px 0 28px; }
.query img { width: 160px; border: 1px solid var(--line); border-radius: 4px; background: #fff; }
.query p { margin: 0; }
"""


def write_answer(
    out: Path, index: Index, query: Path, answer: Answer, calibration: Calibration | None
) -> None:
    """The query, the decision and what was found."""
    uri = data_uri(fitted(decode(query, QUERY_SIDE), QUERY_SIDE))
    said = _decision(answer, calibration)
    body = (
        f'<div class="query"><img src="{uri}" alt="query"><div><h1>{said[0]}</h1>'
        f"<p>{said[1]}</p></div></div>"
        f'<div class="sheet">{"".join(_hit(index, hit) for hit in answer.hits)}</div>'
    )
    write_page(out, query.name, body)


def write_page(out: Path, title: str, body: str) -> None:
    """A page in the look of the reports; `body` is HTML, `title` is text."""
    look = files("unseen.reports").joinpath("look.css").read_text(encoding="utf-8")
    html = f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<title>{escape(title)} · unseen</title>
<style>
{look}{STYLE}</style>
</head>
<body>
<header class="bar"><span><strong>unseen</strong> · {escape(title)}</span></header>
<main>
{body}
</main>
</body>
</html>
"""
    out.parent.mkdir(parents=True, exist_ok=True)
    replace_bytes(out, html.encode())


def tile(index: Index, id: int, verdict: str = "", word: str = "") -> str:
    """A picture of the index with its label and a line of HTML under it."""
    picture = index.picture(id)
    uri = f"data:image/webp;base64,{base64.b64encode(index.thumbnail(id)).decode()}"
    name = escape(picture.label or Path(picture.path).name)
    return (
        f'<figure class="tile {word}"><img src="{uri}" alt="{name}" '
        f'title="{escape(picture.path)}">'
        f'<span class="verdict">{verdict}</span><bdi class="name">{name}</bdi></figure>'
    )


def tiles(index: Index, ids: Sequence[int]) -> str:
    """A sheet of pictures."""
    return f'<div class="sheet">{"".join(tile(index, id) for id in ids)}</div>'


def _hit(index: Index, hit: Hit) -> str:
    verdict, word = f"{hit.similarity:.3f}", ""
    if hit.probability is not None:
        word = "right" if hit.matched else ""
        verdict = f"{'✓ ' if hit.matched else ''}{100 * hit.probability:.0f} % · {verdict}"
    return tile(index, hit.id, verdict, word)


def _decision(answer: Answer, calibration: Calibration | None) -> tuple[str, str]:
    if calibration is None:
        return "Nearest pictures", "The number is the similarity; the run is not calibrated."
    bound = (
        f"threshold {calibration.threshold:.3f}, reached by at most "
        f"{100 * calibration.bound:.3g}&nbsp;% of pairs of different new classes "
        f"({calibration.confidence:.0%} confidence)"
    )
    key = "Under each picture: probability of the same class, similarity; ✓ reaches the threshold."
    if answer.decision == UNKNOWN:
        return "Unknown", f"No picture reaches the {bound}. {key}"
    return escape(str(answer.decision)), f"The nearest picture reaches the {bound}. {key}"
