"""Every example runs from its beginning to its end."""

import os
import runpy
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 7


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_runs(
    path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv(
        "UNSEEN_CACHE", os.environ.get("UNSEEN_CACHE", str(tmp_path_factory.mktemp("cache")))
    )
    runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out.strip()
