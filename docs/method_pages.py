"""Writes one page for each kind of method, from the docstrings: docs/methods/<kind>.md.

Nothing here is kept by hand: a file put into a folder of methods is on its page at the next build.
"""

from pathlib import Path

from unseen.cli.catalogue import COMPARING, kinds_of
from unseen.core import registry

TITLES = {
    "losses": "Losses",
    "miners": "Miners",
    "samplers": "Batch samplers",
    "regularizers": "Regularizers",
    "metrics": "Metrics",
    "diagnostics": "Diagnostics",
    "classical": "Classical metrics",
    "protocols": "Protocols",
    "data": "Data sets",
}


def write(folder: Path) -> None:
    """All pages and their index."""
    folder.mkdir(exist_ok=True)
    for kind, title in TITLES.items():
        sections = [section(kind, name) for name in registry.names(kind)]
        (folder / f"{kind}.md").write_text("\n".join([f"# {title}\n", *sections]))
    listed = "\n".join(TITLES)
    (folder / "index.md").write_text(
        "# Methods\n\nEvery method in its own words: paper, formula, values, use. The same text is "
        f"what `unseen catalogue losses margin` prints.\n\n```{{toctree}}\n{listed}\n```\n"
    )


def section(kind: str, name: str) -> str:
    """One method: its docstring as it is, for its columns and formulas are laid out by hand."""
    entry = registry.entry(kind, name)
    values = ", ".join(f"`{key}={value!r}`" for key, value in entry.defaults.items()) or "none"
    lines = [f"## {name}\n", "```text", registry.text(kind, name).replace("```", "'''"), "```\n"]
    lines.append(f"Values and their defaults: {values}.\n")
    if kind in COMPARING:
        kinds = ", ".join(f"`{each}`" for each in kinds_of(kind, name))
        lines.append(f"Takes `relevance.kind` = {kinds}.\n")
    if entry.presets:
        lines.append("Presets: " + ", ".join(f"`{preset}`" for preset in entry.presets) + ".\n")
    return "\n".join(lines)
