"""Pages of images: labels, paths and file names are texts on them."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from unseen.search.answers import Answer, Hit
from unseen.search.contact_page import write_answer, write_groups
from unseen.search.groups import Groups
from unseen.search.index import IndexedImage

HOSTILE = "<script>'{{ 7*7 }}"
ESCAPED = "&lt;script&gt;&#39;{{ 7*7 }}"


@pytest.fixture
def index() -> Any:
    """Three images of one hostile class."""
    return SimpleNamespace(
        ids=np.arange(3),
        image=lambda id: IndexedImage(id, f"{HOSTILE}/{id}.png", HOSTILE),
        thumbnail=lambda id: b"webp",
    )


def test_an_answer(tmp_path: Path, index: Any) -> None:
    query = tmp_path / f"{HOSTILE}.png"
    Image.new("RGB", (9, 7)).save(query)
    said: Any = SimpleNamespace(threshold=0.5, bound=0.01, confidence=0.95)
    answer = Answer([Hit(id, "", HOSTILE, 0.9, 0.75, True) for id in range(3)])
    write_answer(tmp_path / "new" / "page.html", index, query, answer, said)
    html = (tmp_path / "new" / "page.html").read_text()
    assert f"<h1>{ESCAPED}</h1>" in html
    assert html.count(f'alt="{ESCAPED}"') == html.count("match · 75 % · 0.900") == 3
    assert f"<title>{ESCAPED}.png · unseen</title>" in html
    assert HOSTILE not in html


def test_groups(tmp_path: Path, index: Any) -> None:
    members = [np.array([0, 2]), np.array([1])]
    write_groups(tmp_path / "g", index, Groups(members, np.array([], dtype=int), HOSTILE))
    pages = {path.name: path.read_text() for path in (tmp_path / "g").iterdir()}
    assert set(pages) == {"index.html", "group-001.html", "group-002.html"}
    assert "<h1>2 groups of 3 images</h1>" in pages["index.html"]
    assert '<a href="group-001.html">Group 1: 2 images</a>' in pages["index.html"]
    assert pages["group-001.html"].count(f'title="{ESCAPED}/') == 2
    for html in pages.values():
        assert HOSTILE not in html
        assert ESCAPED in html
