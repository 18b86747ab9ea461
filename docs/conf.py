"""Sphinx: the guides of this folder, a page for each kind of method, written from docstrings, and
the reference of what is public."""

import sys
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import method_pages  # noqa: E402  (beside this file)

project = "Unseen"
copyright = "the Unseen authors"
extensions = ["myst_parser", "sphinx.ext.autodoc"]
autodoc_typehints = "signature"
default_role = "code"  # what docstrings put between single backticks
html_theme = "furo"
html_title = "Unseen"
html_static_path: list[str] = []
exclude_patterns = ["_build"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
suppress_warnings: list[str] = []

method_pages.write(HERE / "methods")


def setup(app: Sphinx) -> None:
    """Docstrings are plain text: their indented lines are shown as they are."""
    app.connect("autodoc-process-docstring", keep_indented)


def keep_indented(
    app: Sphinx, what: str, name: str, documented: Any, options: Any, lines: list[str]
) -> None:
    shown: list[str] = []
    is_inside = False
    for line in lines:
        is_indented = line.startswith("  ")
        if is_indented and not is_inside:
            shown += ["", "::", ""]
        elif line and is_inside and not is_indented:
            shown.append("")
        is_inside = is_indented or (is_inside and not line)
        shown.append(line)
    lines[:] = shown
