"""Layers as descriptors, on glyphs."""

from collections.abc import Callable
from pathlib import Path

import pytest

from unseen.reproductions import published_study as published_studies
from unseen.reproductions import request

pytestmark = pytest.mark.usefixtures("narrow_network")


@pytest.mark.slow
def test_page(
    made: Callable[..., Path],
    unpublished: Callable[[Path], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("UNSEEN_CACHE", str(tmp_path / "cache"))
    folder = made("layers", "glyphs", "data.max_classes=16", "data.size=32", of="cub200")
    message = (folder / "findings.md").read_text()
    assert "failed" not in message
    assert "| test: NetA pool5.3 over NetA fc6, points | +4.70 |" in message
    assert "| test: NetA pool5.3 over NetA fc6, before training, points |" in message
    assert "| train: NetA fc6 over NetA pool5.3, points | +2.00 |" in message
    assert "| NetE | fc6 | 512 |" in message
    assert "published: lifted-64 | penultimate | 1024 | 67.2 | 49.3 |" in message
    assert "NetB and NetC differ from NetA in what starts pretrained" in message
    assert "49.3" not in unpublished(folder)
    assert "| published | 66.4 | 77.5 | 85.4 | 91.3 | 95.2 | 97.1 |" in message  # table 1
    curves = [f"over_time_{net}" for net in ("neta", "nete", "neta_classification")]
    for name in ("layers_neta", *curves):
        assert (folder / "figures" / f"{name}.png").exists()


def test_features_have_no_layers(features: Path) -> None:
    with pytest.raises(ValueError, match="give images"):
        published_studies.find("layers").plans(request.Ask(str(features)))


@pytest.mark.parametrize(
    ("ask", "all_six"),
    [
        (request.Ask("glyphs"), False),
        (request.Ask("cub200"), True),  # the usual network for photographs
        (request.Ask("cub200", settings=("weights=none",)), False),
        (request.Ask("cub200", "full"), True),
        (request.Ask("glyphs", settings=("backbone=vgg16_bn", "weights=a.pth")), True),
    ],
)
def test_nets_b_and_c_are_run_where_there_are_weights(ask: request.Ask, all_six: bool) -> None:
    nets = published_studies.find("layers").plans(ask)[0].factors["net"]
    assert ({"NetB", "NetC"} <= set(nets)) == all_six
