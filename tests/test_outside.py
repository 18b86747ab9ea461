"""Parts from outside: found by file, module or announcement, and only where that is safe."""

import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from unseen import catalogue, outside
from unseen import config as configs
from unseen.cli.main import app

LOSS = """
'''Mean length: nothing but the mean squared length of the embeddings.'''
from torch import nn

class MeanLength(nn.Module):
    '''scale: what it is multiplied with.'''
    PRESETS = {"twice": {"scale": 2.0}}

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, embeddings, labels, tuples=None):
        return self.scale * embeddings.square().sum(dim=1).mean()

def spread(embeddings, labels, power=2.0):
    return embeddings.abs().pow(power).mean()
"""


@pytest.fixture(autouse=True)
def _fresh_announcements() -> Iterator[None]:
    outside._entry_points.cache_clear()
    yield
    outside._entry_points.cache_clear()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "my_losses.py").write_text(textwrap.dedent(LOSS))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(outside.TRUST_VARIABLE, raising=False)
    return tmp_path


def test_a_class_of_a_file_is_made_with_presets_and_values(here: Path) -> None:
    ones = torch.ones(4, 3)
    for name in ("./my_losses.py:MeanLength", str(here / "my_losses.py") + ":MeanLength"):
        assert catalogue.create("losses", name, {}, "twice", num_classes=3)(ones, None) == 6.0
        assert catalogue.create("losses", name, {"scale": 3.0})(ones, None) == 9.0


def test_a_function_is_a_loss_with_its_values_bound(here: Path) -> None:
    loss = catalogue.create("losses", "./my_losses.py:spread", {"power": 3.0})
    assert loss(torch.full((2, 2), 2.0), None) == 8.0


def test_wrong_names_and_values_are_answered_as_for_our_own(here: Path) -> None:
    reference = "./my_losses.py:MeanLength"
    for call, told in (
        (lambda: catalogue.find("losses", "./my_losses.py:MeanLenth"), "did you mean MeanLength"),
        (lambda: catalogue.create("losses", reference, {"scal": 1.0}), "did you mean scale"),
        (lambda: catalogue.create("losses", reference, {"scale": "x"}), "must be float, got 'x'"),
        (lambda: catalogue.create("losses", reference, preset="twic"), "did you mean twice"),
        (lambda: catalogue.find("losses", "./my_loses.py:MeanLength"), "no such file"),
        (lambda: catalogue.find("losses", "no_such_thing:Loss"), "no module 'no_such_thing'"),
    ):
        with pytest.raises(ValueError, match=told):
            call()


def test_an_entry_of_a_part_from_outside_tells_what_it_does(here: Path) -> None:
    entry = catalogue.entry("losses", "./my_losses.py:MeanLength")
    assert entry.line.startswith("Mean length")
    assert (entry.defaults, entry.presets) == ({"scale": 1.0}, ("twice",))


def test_code_that_does_not_lie_here_is_not_run(
    here: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "stranger.py").write_text("raise SystemExit('it ran')")
    monkeypatch.syspath_prepend(elsewhere)
    for name in (f"{elsewhere}/stranger.py:Loss", "stranger:Loss", "subprocess:Popen", "os:system"):
        with pytest.raises(ValueError, match="add --trust"):
            catalogue.find("losses", name)
    with outside.trusted(), pytest.raises(SystemExit, match="it ran"):
        catalogue.find("losses", "stranger:Loss")
    with pytest.raises(ValueError, match="add --trust"):
        catalogue.find("losses", "stranger:Loss")


def test_packages_installed_below_here_are_no_files_of_the_user(here: Path) -> None:
    installed = here / ".venv" / "lib" / "site-packages"
    installed.mkdir(parents=True)
    (installed / "part.py").write_text(LOSS)
    with pytest.raises(ValueError, match="add --trust"):
        catalogue.find("losses", f"{installed}/part.py:MeanLength")


def announce(here: Path, monkeypatch: pytest.MonkeyPatch, code: str, parts: dict[str, str]) -> None:
    """As an installed package does."""
    site = here / "site-packages"
    (site / "announcing-1.0.dist-info").mkdir(parents=True)
    (site / "announcing.py").write_text(code)
    (site / "announcing-1.0.dist-info" / "METADATA").write_text("Name: announcing\nVersion: 1.0\n")
    lines = [f"{name} = announcing:{part}" for name, part in parts.items()]
    told = "\n".join(["[unseen.parts]", *lines, ""])
    (site / "announcing-1.0.dist-info" / "entry_points.txt").write_text(told)
    monkeypatch.syspath_prepend(site)
    monkeypatch.delitem(sys.modules, "announcing", raising=False)


def test_the_catalogue_shows_announced_parts_of_every_kind(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kinds = [*catalogue.KINDS, *catalogue.OTHER_KINDS]
    code = """
class {kind}:
    '''My {kind}: does nothing.'''
    PRESETS = {{"old": {{"size": 3}}}}
    def __init__(self, size: int = 7) -> None: ...
"""
    written = "".join(code.format(kind=kind) for kind in kinds)
    announce(here, monkeypatch, written, {f"{kind}.my_{kind}": kind for kind in kinds})
    app(["catalogue"], standalone_mode=False)
    names = " ".join(capsys.readouterr().out.split())
    for kind in kinds:
        assert f"my_{kind}" in names
        app(["catalogue", kind, f"my_{kind}"], standalone_mode=False)
        shown = capsys.readouterr().out
        assert shown.startswith(f"My {kind}: does nothing.")
        assert "size=7" in shown
        assert "Preset   old: size=3" in shown
        with pytest.raises(ValueError, match=f"did you mean my_{kind}"):
            catalogue.find(kind, f"my_{kind}s")


def test_an_announced_network_stands_for_where_it_lies(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    announce(here, monkeypatch, "class Net: ...", {"networks.my_net": "Net"})
    assert configs.make({"network": "my_net"}).network == "announcing:Net"
    with pytest.raises(ValueError, match="did you mean my_net"):
        configs.make({"network": "my_nett"})


def test_an_installed_package_announces_parts(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    announce(here, monkeypatch, LOSS, {"losses.mean_length": "MeanLength"})
    assert "mean_length" in catalogue.names("losses")
    assert catalogue.create("losses", "mean_length", {"scale": 2.0}).scale == 2.0
    assert catalogue.create("losses", "announcing:MeanLength").scale == 1.0
    with pytest.raises(ValueError, match="did you mean mean_length"):
        catalogue.find("losses", "mean_lenght")


def test_the_origin_of_a_part_changes_with_its_source(here: Path) -> None:
    part = catalogue.find("losses", "./my_losses.py:MeanLength")
    before = outside.origin_of(part)
    assert before is not None
    assert before.file == str(here / "my_losses.py")
    (here / "my_losses.py").write_text(LOSS + "\n# changed\n")
    after = outside.origin_of(part)
    assert after is not None
    assert after.sha256 != before.sha256
    assert outside.origin_of(catalogue.find("losses", "margin")) is None


def test_references_are_told_from_other_names() -> None:
    assert outside.is_reference("package.module:Loss")
    assert outside.is_reference("./a b/file.py:Loss")
    for name in (
        "margin",
        "pml:CircleLoss",
        "timm:resnet18",
        "features:512",
        "a/b.py",
        "postgresql://me@server/db",
        "C:/x",
    ):
        assert not outside.is_reference(name)
    values = {"loss": {"name": "a.b:Loss"}, "regularizers": [{"name": "./x.py:R"}], "seed": 0}
    assert outside.references_in(values) == {"a.b:Loss", "./x.py:R"}
    assert outside.references_in(["./x.py:FirstK@3", "recall@1"]) == {"./x.py:FirstK"}


def test_objects_are_known_while_they_are_held(here: Path) -> None:
    given = catalogue.create("losses", "./my_losses.py:MeanLength", {"scale": 4.0})
    name = outside.object_name(given)
    assert outside.short_name(name) == "MeanLength"
    with outside.holding({name: given}):
        made = catalogue.create("losses", name, num_classes=3)
        assert made.scale == 4.0
        assert made is not given
        with pytest.raises(ValueError, match="is an object with its own values"):
            catalogue.create("losses", name, {"scale": 1.0})
    told = r"MeanLength was an object given from Python.* unseen\.load\(RUN, network=\.\.\.\)"
    with pytest.raises(ValueError, match=told):
        catalogue.create("losses", name)
