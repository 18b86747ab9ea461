"""What training keeps of an image, counted by hand for two layers."""

from pathlib import Path

import pytest

from unseen.core import custom_components
from unseen.models.activation_size import bytes_per_image

BODY = """
from torch import nn

class Body(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.Conv2d(8, 4, 1))
"""


def test_inputs_of_convolutions_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_body.py").write_text(BODY)
    monkeypatch.chdir(tmp_path)
    custom_components.trust("./my_body.py:Body")
    image, hidden = 3 * 16 * 16, 8 * 7 * 7  # the ReLU keeps its output, which is the next input
    assert bytes_per_image("./my_body.py:Body", 16, "full") == 4 * (image + hidden)
