"""Every objective of Roth et al. beside its published scores."""

from collections.abc import Callable
from pathlib import Path

from unseen.studies import kept
from unseen.studies.published import objectives
from unseen.studies.published.named.losses import objectives_plan
from unseen.studies.published.study import Ask, remake, small_files_of


def test_names_are_the_published_ones() -> None:
    ours = set(objectives.objectives()) | set(objectives.switched("cub200"))
    theirs = set(objectives.published("cub200")) - {objectives.UNTRAINED, "untrained"}
    assert ours == theirs


def test_head_starts_as_theirs() -> None:
    """And a user's word goes before it."""
    assert objectives_plan(Ask("glyphs")).config["head"] == {"start": "default"}
    asked = Ask("glyphs", settings=("head.start=principal",))
    assert objectives_plan(asked).config["head"] == {"start": "principal"}


def test_page(features: Path, made: Callable[..., Path], tmp_path: Path) -> None:
    folder = made("losses", features)
    told = (folder / "findings.md").read_text()
    assert "| Multisimilarity |" in told
    assert "62.8" in told  # published
    assert "is highest of 23 objectives" in told
    assert "Features as given: " in told
    assert "failed" not in told
    assert (folder / "figures" / "objectives.pdf").exists()
    before = (folder / "index.html").read_bytes()
    assert remake(folder).read_bytes() == before
    (folder / "published.json").rename(folder / "preset.json")  # its name in version 0.1
    assert remake(folder).read_bytes() == before
    file = tmp_path / "kept.txz"
    kept.write(file, small_files_of(folder))
    page = remake(kept.unpack(file))  # where there are no data, as from a clone
    found = (page.parent / "findings.md").read_text()
    assert found == told.replace(str(features), "data/tiny.npz")
