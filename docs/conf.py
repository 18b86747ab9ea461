"""Sphinx: the guides of this folder, and a page for each method, written from its docstring."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import method_pages  # noqa: E402  (beside this file)

project = "Unseen"
copyright = "the Unseen authors"
extensions = ["myst_parser"]
html_theme = "furo"
html_title = "Unseen"
html_static_path: list[str] = []
exclude_patterns = ["_build"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
suppress_warnings: list[str] = []

method_pages.write(HERE / "methods")
