"""A page on studies: one HTML file that needs no network, figures inside it and beside it as PNG
and PDF."""

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_pdf import FigureCanvasPdf

from unseen.core.html_templates import Headline, Page, PageSection, render
from unseen.studies.study_figures import STYLE, Drawn
from unseen.training.run_folder import RunFolder

DPI = 144


@dataclass(frozen=True)
class Saved:
    """A figure whose files are written. image: a data URI."""

    name: str
    caption: str
    image: str
    width: int


def saved(drawn: Drawn, folder: RunFolder) -> Saved:
    """Writes PNG and PDF into figures/."""
    png, pdf = io.BytesIO(), io.BytesIO()
    with matplotlib.rc_context(STYLE):  # some ticks are made only now
        drawn.figure.set_dpi(DPI)
        FigureCanvasAgg(drawn.figure).print_png(png, metadata={"Software": None})
        drawn.figure.set_dpi(72)
        FigureCanvasPdf(drawn.figure).print_pdf(pdf, metadata={"CreationDate": None})
    for name, content in (("png", png), ("pdf", pdf)):
        folder.write_bytes(f"figures/{drawn.name}.{name}", content.getvalue())
    uri = "data:image/png;base64," + base64.b64encode(png.getvalue()).decode()
    return Saved(drawn.name, drawn.caption, uri, round(96 * drawn.figure.get_figwidth()))


def document(
    name: str, headline: Headline, notices: Sequence[str], parts: Sequence[PageSection]
) -> str:
    """The page as text."""
    page = Page("study", name, headline, notices, parts)
    return render("studies/study", page=page)
