"""Every objective of Roth et al. beside its published scores."""

from collections.abc import Callable
from pathlib import Path

from unseen.reproductions.published_study import remake, small_files_of
from unseen.reproductions.request import Ask
from unseen.reproductions.roth import objectives
from unseen.reproductions.roth.losses import objectives_plan
from unseen.studies import archive


def test_names_are_the_published_ones() -> None:
    ours = set(objectives.objectives()) | set(objectives.switched("cub200"))
    theirs = set(objectives.published("cub200")) - {objectives.UNTRAINED, "untrained"}
    assert ours == theirs


def test_head_starts_as_theirs() -> None:
    """And a user's word goes before it."""
    assert objectives_plan(Ask("glyphs")).config["head"] == {"start": "default"}
    request = Ask("glyphs", settings=("head.start=principal",))
    assert objectives_plan(request).config["head"] == {"start": "principal"}


def test_page(features: Path, made: Callable[..., Path], tmp_path: Path) -> None:
    folder = made("losses", features)
    message = (folder / "findings.md").read_text()
    assert "| Multisimilarity |" in message
    assert "| 62.80 ±0.70 |" in message  # published, with its deviation
    assert "methods are above their own untrained network by R@1" in message
    assert "others) " in message  # whose distance the untrained network is evaluated by
    assert "tables 4 to 6 and tables 7 to 9 print other values" in message
    assert "failed" not in message
    assert (folder / "figures" / "objectives.pdf").exists()
    before = (folder / "index.html").read_bytes()
    assert remake(folder).read_bytes() == before
    file = tmp_path / "kept.txz"
    archive.write(file, small_files_of(folder))
    page = remake(archive.unpack(file))  # where there are no data, as from a clone
    result = (page.parent / "findings.md").read_text()
    assert result == message.replace(str(features), "data/tiny.npz")
