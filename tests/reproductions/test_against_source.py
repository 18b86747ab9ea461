"""Published values beside ours."""

import math
from pathlib import Path

import numpy as np
import pytest

from unseen.reproductions.request import Ask
from unseen.reproductions.roth import objectives
from unseen.reproductions.roth.losses import objectives_plan

DATA = ["cub200", "cars196", "online_products"]
CHANCES = {"cub200": {0.3, 0.35, 0.4}, "cars196": {0.35}, "online_products": {0.15}}


@pytest.mark.parametrize("data", DATA)
def test_every_switched_objective_has_its_published_gain(data: str) -> None:
    theirs, result = objectives.published(data), objectives.switched(data)
    assert len(result) == 5
    for name, (plain, settings) in result.items():
        gain = theirs[name]["recall@1"] - theirs[plain]["recall@1"]
        assert not math.isnan(gain)
        assert f"p = {settings['miner']['switch']:g})" in name
    assert {s["miner"]["switch"] for _, s in result.values()} == CHANCES[data]


def test_runs_on_cars_take_the_chances_of_cars(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ask, "published_data", "cars196")
    configurations = objectives_plan(Ask("glyphs")).configurations()
    miners = {
        v.labels["objective"]: v.values["miner"] for v in configurations if "miner" in v.values
    }
    assert miners["R-Margin (D, beta = 0.6, p = 0.35)"]["switch"] == 0.35


@pytest.mark.parametrize(
    ("file", "known"), [({}, ""), ({"of": "cars196"}, "cars196"), ({"of": "glyphs"}, "")]
)
def test_published_values_are_those_of_the_data_set_the_features_are_of(
    file: dict[str, str], known: str, tmp_path: Path
) -> None:
    np.savez(tmp_path / "x.npz", features=np.eye(4), labels=np.arange(4) // 2, **file)
    ask = Ask(str(tmp_path / "x.npz"))
    assert ask.published_data == known
    assert ask.set_up_data == (known or "cub200")
    assert Ask(str(tmp_path / "x.npz"), of="cub200").published_data == "cub200"


@pytest.mark.parametrize("data", ["glyphs", "mnist_like", "omniglot"])
def test_nothing_is_published_of_other_data(data: str) -> None:
    assert Ask(data).published_data == ""
    assert objectives.published("inshop") == {"untrained": {}}  # which HORDE alone has tables of
    assert Ask("cars196").published_data == "cars196"
