"""Pages: values filled into the HTML templates that stand beside the code which makes them.

    html = render("reports/run", page=..., figures=...)
    section = PageSection.of("reports/curves", "Learning curves", plots=...)  # curves.html.jinja

A value is text and is escaped wherever it stands; a name that nothing fills is an error. Nothing
but the toolkit's own style sheets and scripts enters a page as it is (`own("reports/style.css")`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Self

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup


@dataclass(frozen=True)
class Headline:
    """The result in one sentence with its number in the middle; what must be said before it, with
    its numbers in small."""

    before: str
    value: str = ""
    after: str = ""
    warning: str = ""
    detail: str = ""
    level: str = "warning"


@dataclass(frozen=True)
class PageSection:
    """A section of a page."""

    anchor: str
    title: str
    html: Markup

    @classmethod
    def of(cls, template: str, title: str, anchor: str = "", **values: Any) -> Self:
        """The template with its values; its name is the anchor if nothing else is."""
        html = Markup(render(template, **values))
        return cls(anchor or template.rpartition("/")[2], title, html)


@dataclass(frozen=True)
class Page:
    """What reports/report.html.jinja shows: of a run, of a study."""

    kind: str
    name: str
    headline: Headline
    notices: Sequence[str]
    parts: Sequence[PageSection]


def render(template: str, **values: Any) -> str:
    """A template with its values; "reports/run" is unseen/reports/run.html.jinja."""
    return _environment().get_template(f"{template}.html.jinja").render(values)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("unseen", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["own"] = _own
    environment.filters |= {
        "percent": lambda fraction: f"{100 * fraction:.1f}",
        "thousands": "{:,}".format,
    }
    # data for scripts: `tojson` leaves no "<", which a label's "</script>" would need
    environment.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "separators": (",", ":")}
    return environment


def _own(name: str) -> Markup:
    """A style sheet or script of the package."""
    return Markup(files("unseen").joinpath(name).read_text(encoding="utf-8"))
