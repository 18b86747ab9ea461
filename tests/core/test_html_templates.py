"""Templates: values are texts, names are filled, and HTML stands nowhere else."""

import ast
import json
import re
from pathlib import Path

import jinja2
import pytest

from unseen.core import html_templates

PACKAGE = Path(html_templates.__file__).parents[1]
HOSTILE = '<script>alert("{{ 7*7 }}")</script>'


def test_a_value_is_text_in_an_element_and_in_an_attribute() -> None:
    html = html_templates.render(
        "reports/report",
        page=html_templates.Page(
            HOSTILE, HOSTILE, html_templates.Headline(HOSTILE, HOSTILE), [HOSTILE], []
        ),
    )
    escaped = "&lt;script&gt;alert(&#34;{{ 7*7 }}&#34;)&lt;/script&gt;"
    assert html.count(escaped) == 6
    assert "<script" not in html
    assert "49" not in html.partition("</style>")[2]


def test_data_for_a_script_cannot_end_it() -> None:
    page = html_templates.Page("run", "a", html_templates.Headline("b"), [], [])
    values = {"data": None, "bars": [], "plotly": lambda: "", "figures": {"names": [HOSTILE]}}
    html = html_templates.render("reports/run", page=page, **values)
    data = html.split('id="figure-data">')[1].partition("</script>")[0]
    assert json.loads(data) == {"names": [HOSTILE]}


def test_a_name_that_nothing_fills_is_an_error() -> None:
    with pytest.raises(jinja2.UndefinedError, match="page"):
        html_templates.render("reports/report")


def test_no_template_lets_a_value_through_as_it_is() -> None:
    templates = sorted(PACKAGE.rglob("*.jinja"))
    assert len(templates) > 20
    for path in templates:
        assert not re.search(r"\|\s*safe|autoescape", path.read_text()), path.name


def test_html_stands_in_templates_alone() -> None:
    """Markup is made in one place, and no text in the code closes an element."""
    for path in PACKAGE.rglob("*.py"):
        source = path.read_text()
        assert path.name == "html_templates.py" or "Markup" not in source, path.name
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                result = set(re.findall(r"</(\w+)>", node.value)) - {"extra"}  # plotly's own
                assert not result, f"{path.name}, line {node.lineno}: {result}"
