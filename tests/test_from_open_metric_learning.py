"""The page for users of OpenMetricLearning: its program runs on such a table, its names exist."""

import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from unseen.core import registry

PAGE = (Path(__file__).parents[1] / "docs" / "from_open_metric_learning.md").read_text()


@pytest.mark.usefixtures("narrow_network")
def test_the_program_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = ["path,label,split,is_query,is_gallery"]
    for c in range(8):
        for i in range(4):
            noise = np.random.default_rng(10 * c + i).integers(0, 256, (16, 16, 3), dtype=np.uint8)
            Image.fromarray(noise).save(tmp_path / f"{c}_{i}.png")
            part = "train,," if c < 4 else "validation,True,True"
            rows.append(f"{c}_{i}.png,{c},{part}")
    (tmp_path / "table.csv").write_text("\n".join(rows))
    exec(PAGE.split("```python\n")[1].split("```")[0], {})
    assert "trained network" in capsys.readouterr().out


def test_the_names_exist() -> None:
    named = re.findall(r"\b(loss|miner|sampler)=([a-z_]+)[ `\n]", PAGE)
    assert len(named) > 8
    for kind, name in named:
        plural = {"loss": "losses", "miner": "miners", "sampler": "samplers"}[kind]
        assert name in registry.names(plural), name
