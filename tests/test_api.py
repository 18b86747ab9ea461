"""The public functions take what people have."""

from pathlib import Path

import pytest

import unseen

pytestmark = pytest.mark.usefixtures("narrow_network")


def test_data_are_given_by_name_with_their_values(tmp_path: Path) -> None:
    run = unseen.fit(
        {"name": "glyphs", "max_classes": 20, "size": 16},
        epochs=1,
        metrics=["recall@1"],
        out=tmp_path / "run",
        progress=False,
    )
    assert run.result.data.classes == 20
    assert set(run.scores) == {"recall@1"}
