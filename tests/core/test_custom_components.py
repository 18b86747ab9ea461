"""Parts from outside: found by file, module or announcement, and only where that is safe."""

import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from unseen.cli.main import app
from unseen.config import schema as configs
from unseen.core import custom_components, registry

LOSS = """
from torch import nn

class MeanLength(nn.Module):
    '''Mean length: nothing but the mean squared length of the embeddings.

    Args:
        scale: what it is multiplied with.
    '''
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
    custom_components._entry_points.cache_clear()
    yield
    custom_components._entry_points.cache_clear()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "my_losses.py").write_text(textwrap.dedent(LOSS))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(custom_components.TRUST_VARIABLE, "")
    custom_components.trust(
        [f"./my_losses.py:{name}" for name in ("MeanLength", "MeanLenth", "spread")]
    )
    return tmp_path


def test_a_class_of_a_file_is_made_with_presets_and_values(here: Path) -> None:
    ones = torch.ones(4, 3)
    for name in ("./my_losses.py:MeanLength", str(here / "my_losses.py") + ":MeanLength"):
        assert registry.create("losses", name, {}, "twice", num_classes=3)(ones, None) == 6.0
        assert registry.create("losses", name, {"scale": 3.0})(ones, None) == 9.0


def test_a_function_is_a_loss_with_its_values_bound(here: Path) -> None:
    loss = registry.create("losses", "./my_losses.py:spread", {"power": 3.0})
    assert loss(torch.full((2, 2), 2.0), None) == 8.0


def test_wrong_names_and_values_are_answered_as_for_our_own(here: Path) -> None:
    reference = "./my_losses.py:MeanLength"
    for call, message in (
        (lambda: registry.find("losses", "./my_losses.py:MeanLenth"), "did you mean MeanLength"),
        (lambda: registry.create("losses", reference, {"scal": 1.0}), "did you mean scale"),
        (lambda: registry.create("losses", reference, {"scale": "x"}), "must be float, got 'x'"),
        (lambda: registry.create("losses", reference, preset="twic"), "did you mean twice"),
        (lambda: registry.find("losses", "./my_loses.py:MeanLength"), "no such file"),
        (lambda: registry.find("losses", "no_such_thing:Loss"), "no module 'no_such_thing'"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_an_entry_of_a_part_from_outside_tells_what_it_does(here: Path) -> None:
    entry = registry.entry("losses", "./my_losses.py:MeanLength")
    assert entry.line.startswith("Mean length")
    assert (entry.defaults, entry.presets) == ({"scale": 1.0}, ("twice",))


def test_code_that_does_not_lie_here_is_not_run(
    here: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "stranger.py").write_text("raise SystemExit('it ran')")
    monkeypatch.syspath_prepend(elsewhere)
    for name in (f"{elsewhere}/stranger.py:Loss", "stranger:Loss", "subprocess:Popen", "os:system"):
        with pytest.raises(ValueError, match=r"Read it, then call unseen\.trust"):
            registry.find("losses", name)
    with custom_components.trusted(), pytest.raises(SystemExit, match="it ran"):
        registry.find("losses", "stranger:Loss")
    with pytest.raises(ValueError, match=r"Read it, then call unseen\.trust"):
        registry.find("losses", "stranger:Loss")


@pytest.mark.parametrize("folder", ["below", ".venv/lib/site-packages"])
def test_what_lies_below_here_is_no_file_of_the_user_for_that(here: Path, folder: str) -> None:
    (here / folder).mkdir(parents=True)
    (here / folder / "part.py").write_text(LOSS)
    with pytest.raises(ValueError, match=r"Read it, then call unseen\.trust"):
        registry.find("losses", f"{folder}/part.py:MeanLength")


def test_what_ran_in_a_trusting_block_is_trusted_from_then_on(here: Path) -> None:
    (here / "other.py").write_text(LOSS)
    with custom_components.trusted():
        result = registry.find("losses", "./other.py:MeanLength")
    assert custom_components.EVERYTHING not in custom_components._marks()
    custom_components._components.clear()  # as in the next process
    assert registry.find("losses", "other.py:MeanLength") is result
    with pytest.raises(ValueError, match=r"Read it, then call unseen\.trust"):
        registry.find("losses", "./other.py:spread")


def install(here: Path, monkeypatch: pytest.MonkeyPatch, code: str, parts: dict[str, str]) -> None:
    """As an installed package does."""
    site = here / "site-packages"
    (site / "installed-1.0.dist-info").mkdir(parents=True)
    (site / "installed.py").write_text(code)
    (site / "installed-1.0.dist-info" / "METADATA").write_text("Name: installed\nVersion: 1.0\n")
    lines = [f"{name} = installed:{part}" for name, part in parts.items()]
    message = "\n".join(["[unseen.components]", *lines, ""])
    (site / "installed-1.0.dist-info" / "entry_points.txt").write_text(message)
    monkeypatch.syspath_prepend(site)
    monkeypatch.delitem(sys.modules, "installed", raising=False)


def test_the_catalogue_shows_entry_points_of_every_kind(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kinds = [*registry.KINDS, *registry.OTHER_KINDS]
    code = """
class {kind}:
    '''My {kind}: does nothing.'''
    PRESETS = {{"old": {{"size": 3}}}}
    def __init__(self, size: int = 7) -> None: ...
"""
    written = "".join(code.format(kind=kind) for kind in kinds)
    install(here, monkeypatch, written, {f"{kind}.my_{kind}": kind for kind in kinds})
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
            registry.find(kind, f"my_{kind}s")


def test_a_network_of_an_entry_point_stands_for_where_it_lies(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(here, monkeypatch, "class Net: ...", {"networks.my_net": "Net"})
    assert configs.make({"network": "my_net"}).model.network == "installed:Net"
    with pytest.raises(ValueError, match="did you mean my_net"):
        configs.make({"network": "my_nett"})


def test_an_installed_package_has_entry_points(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(here, monkeypatch, LOSS, {"losses.mean_length": "MeanLength"})
    assert "mean_length" in registry.names("losses")
    assert registry.create("losses", "mean_length", {"scale": 2.0}).scale == 2.0
    assert registry.create("losses", "installed:MeanLength").scale == 1.0
    with pytest.raises(ValueError, match="did you mean mean_length"):
        registry.find("losses", "mean_lenght")


def test_the_origin_of_a_component_changes_with_its_source(here: Path) -> None:
    part = registry.find("losses", "./my_losses.py:MeanLength")
    before = custom_components.origin_of(part)
    assert before is not None
    assert before.file == str(here / "my_losses.py")
    (here / "my_losses.py").write_text(LOSS + "\n# changed\n")
    after = custom_components.origin_of(part)
    assert after is not None
    assert after.sha256 != before.sha256
    assert custom_components.origin_of(registry.find("losses", "margin")) is None


def test_references_differ_from_other_names() -> None:
    assert custom_components.is_reference("package.module:Loss")
    assert custom_components.is_reference("./a b/file.py:Loss")
    for name in (
        "margin",
        "pml:CircleLoss",
        "timm:resnet18",
        "features:512",
        "a/b.py",
        "postgresql://me@server/db",
        "C:/x",
    ):
        assert not custom_components.is_reference(name)
    values = {"loss": {"name": "a.b:Loss"}, "regularizers": [{"name": "./x.py:R"}], "seed": 0}
    assert custom_components.references_in(values) == {"a.b:Loss", "./x.py:R"}
    assert custom_components.references_in(["./x.py:FirstK@3", "recall@1"]) == {"./x.py:FirstK"}


def test_objects_are_known_while_the_block_runs(here: Path) -> None:
    given = registry.create("losses", "./my_losses.py:MeanLength", {"scale": 4.0})
    name = custom_components.object_name(given)
    assert custom_components.short_name(name) == "MeanLength"
    with custom_components.known_objects({name: given}):
        made = registry.create("losses", name, num_classes=3)
        assert made.scale == 4.0
        assert made is not given
        with pytest.raises(ValueError, match="is an object with its own values"):
            registry.create("losses", name, {"scale": 1.0})
    message = r"MeanLength was an object passed from Python.* unseen\.load\(RUN, network=\.\.\.\)"
    with pytest.raises(ValueError, match=message):
        registry.create("losses", name)
