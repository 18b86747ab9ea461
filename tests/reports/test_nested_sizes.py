"""The page draws recall against size, and the bars at its head show whole descriptors only."""

import copy
import json
from pathlib import Path
from typing import Any

from unseen.reports import figures, run_page, sections, stored_run
from unseen.training.result import read_result
from unseen.training.run_folder import RunFolder


def test_the_page_draws_recall_against_size(run: Path, result: Any, dataset: Any) -> None:
    assert figures.sizes_figure(stored_run.read(run)) is None
    for place, row in enumerate(("trained at 2", "principal at 2", "trained at 4")):
        result["scores"][row] = copy.deepcopy(result["scores"]["pixels"])
        result["scores"][row]["metrics"]["recall@1"]["value"] = 0.5 + place / 10
    result["scores"]["principal"] = result["scores"]["untrained"]
    (run / "result.json").write_text(json.dumps(result))
    config = run / "config.toml"
    config.write_text("embedding_size = 8\n" + config.read_text())
    drawn = figures.sizes_figure(stored_run.read(run))
    assert drawn is not None
    lines = {trace["name"]: (trace["x"], trace["y"]) for trace in drawn["data"]}
    assert lines["nested embedding, its first numbers"] == (["2", "4", "8"], [50, 70, 81.23])
    assert lines["PCA baseline"] == (["2", "8"], [60, 34.56])
    assert len(sections.head_bars(read_result(RunFolder(run)))) == 4
    html = run_page.write(run, dataset).read_text()
    assert 'id="sizes"' in html
    assert "--size 2 --out small.index" in html
    assert "trained network, 4 numbers" in html
