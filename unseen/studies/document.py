"""The frame of a page on studies: one HTML file that needs no network, figures inside it and beside
it as PNG and PDF."""

import base64
import io
from dataclasses import dataclass
from html import escape
from importlib.resources import files

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_pdf import FigureCanvasPdf

from unseen.reports.page import POLICY
from unseen.studies.figures import STYLE, Drawn
from unseen.training.run_folder import RunFolder

DPI = 144


@dataclass(frozen=True)
class Part:
    """A section of a page."""

    anchor: str
    title: str
    html: str


def saved(drawn: Drawn, folder: RunFolder) -> str:
    """Writes PNG and PDF into figures/; the picture as a data URI."""
    png, pdf = io.BytesIO(), io.BytesIO()
    with matplotlib.rc_context(STYLE):  # some ticks are made only now
        drawn.figure.set_dpi(DPI)
        FigureCanvasAgg(drawn.figure).print_png(png, metadata={"Software": None})
        drawn.figure.set_dpi(72)
        FigureCanvasPdf(drawn.figure).print_pdf(pdf, metadata={"CreationDate": None})
    for name, content in (("png", png), ("pdf", pdf)):
        folder.write_bytes(f"figures/{drawn.name}.{name}", content.getvalue())
    return "data:image/png;base64," + base64.b64encode(png.getvalue()).decode()


def figure(drawn: Drawn, picture: str) -> str:
    """A saved figure with its caption and links to its files."""
    return (
        f'<figure class="drawn"><img src="{picture}" '
        f'width="{round(96 * drawn.figure.get_figwidth())}" '
        f'alt="{escape(drawn.caption)}"><figcaption class="small">{escape(drawn.caption)} '
        f'<a href="figures/{drawn.name}.png">PNG</a> '
        f'<a href="figures/{drawn.name}.pdf">PDF</a></figcaption></figure>'
    )


def fact(title: str, text: str) -> str:
    return f"<div><dt>{escape(title)}</dt><dd>{escape(text)}</dd></div>"


def document(title: str, headline: str, notices: list[str], parts: list[Part]) -> str:
    """The page; `headline` is HTML, the rest of the frame is text."""
    style = "\n".join(
        files(package).joinpath(name).read_text(encoding="utf-8")
        for package, name in (("unseen.reports", "look.css"), ("unseen.studies", "study.css"))
    )
    links = "".join(f'<a href="#section-{p.anchor}">{escape(p.title)}</a>' for p in parts)
    body = "".join(
        f'<section aria-labelledby="section-{p.anchor}"><h2 id="section-{p.anchor}">'
        f"{escape(p.title)}</h2>\n{p.html}</section>\n"
        for p in parts
    )
    told = "".join(f'<p class="notice">{escape(text)}</p>' for text in notices)
    name = escape(title)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<title>{name} · unseen</title>
<style>
{style}</style>
</head>
<body>
<header class="bar"><span><strong>unseen</strong> · study <bdi>{name}</bdi></span>
<nav aria-label="Sections">{links}</nav></header>
<main>
<div class="head"><h1>{headline}</h1></div>
{told}{body}</main>
</body>
</html>
"""
