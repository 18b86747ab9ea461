"""Pages: values filled into the HTML templates that stand beside the code which makes them.

    html = render("reports/run.html.jinja", page=..., figures=...)

A value is text and is escaped wherever it stands; a name that nothing fills is an error. Nothing
but the toolkit's own style sheets and scripts enters a page as it is (`own("reports/look.css")`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup


@dataclass(frozen=True)
class Headline:
    """The result in one sentence with its number in the middle, and what must be said before it."""

    before: str
    value: str = ""
    after: str = ""
    warning: str = ""
    level: str = "warning"


@dataclass(frozen=True)
class Part:
    """A section of a page: `template` shows `content`."""

    anchor: str
    title: str
    template: str
    content: Any


@dataclass(frozen=True)
class Page:
    """What `reports/sections.html.jinja` shows: of a run, of a study."""

    kind: str
    name: str
    headline: Headline
    notices: Sequence[str]
    parts: Sequence[Part]


def render(template: str, **values: Any) -> str:
    """The template, named by its place in the package, with its values."""
    return _environment().get_template(template).render(values)


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("unseen", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals["own"] = _own
    made.filters |= {"percent": lambda share: f"{100 * share:.1f}", "thousands": "{:,}".format}
    # data for scripts: `tojson` leaves no "<", which a label's "</script>" would need
    made.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "separators": (",", ":")}
    return made


def _own(name: str) -> Markup:
    """A style sheet or script of the package."""
    return Markup(files("unseen").joinpath(name).read_text(encoding="utf-8"))
