"""A step that breaks is kept before the weights move, and breaks again when it is repeated."""

import re
from pathlib import Path

import pytest
import torch

from unseen.config import schema as configs
from unseen.runs.prepare import RunContext, prepare
from unseen.runs.replay import replay
from unseen.runs.run import train_and_evaluate
from unseen.training.checkpoint import Checkpoints

pytestmark = pytest.mark.usefixtures("narrow_network")

WORDS = [
    "data.max_classes=16",
    "data.size=16",
    "batch_size=16",
    "embedding_size=16",
    "epochs=2",
    "sampler.steps=2",
    "workers=0",
    'metrics=["recall@1"]',
    "schedule=constant",
]


def setting_of(*words: str) -> RunContext:
    return prepare(configs.make(configs.override({}, [*WORDS, *words])))


@pytest.mark.parametrize(
    "words", [("loss=margin", "miner.switch=0.5"), ("loss=arcface", "loss.sample_rate=0.5")]
)
def test_a_rate_that_is_far_too_high(words: tuple[str, ...], tmp_path: Path) -> None:
    context = setting_of(*words, "lr=1e30")
    with pytest.raises(
        FloatingPointError, match=r"at step \d+: lower lr.*unseen inspect replay"
    ) as caught:
        train_and_evaluate(context, tmp_path, "test")
    result = replay(tmp_path / "broken_step.pt")
    assert result.why is not None
    assert str(caught.value).startswith(f"{result.why} at step {result.step}")
    shown = re.search(r"\((.*?), \.\.\.", str(caught.value))
    assert shown is not None
    assert [int(index) for index in shown[1].split(", ")] == result.indices[:8]


def test_a_gradient_that_is_not_finite_leaves_the_weights_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unseen.runs.callbacks.SECONDS_BETWEEN_CHECKPOINTS", 0.0)

    def endless(norm: float, *, at: int) -> None:
        calls = [0]
        true = torch.nn.utils.get_total_norm

        def measured(tensors: list[torch.Tensor]) -> torch.Tensor:
            calls[0] += 1
            return torch.tensor(norm) if calls[0] == at else true(tensors)

        monkeypatch.setattr(torch.nn.utils, "get_total_norm", measured)

    endless(float("inf"), at=3)
    with pytest.raises(FloatingPointError, match="but its gradient became inf at step 2"):
        train_and_evaluate(setting_of(), tmp_path, "test")
    kept = torch.load(tmp_path / "broken_step.pt", weights_only=True)
    last = Checkpoints(tmp_path / "checkpoint").newest(print)
    assert last is not None
    before = last["trainer"]["network"]
    parameters = [name for name in before if name.endswith(("weight", "bias"))]
    assert all(torch.equal(kept["network"][name], before[name]) for name in parameters)


def test_the_first_layer_that_is_not_finite_is_named(tmp_path: Path) -> None:
    with pytest.raises(FloatingPointError):
        train_and_evaluate(setting_of("loss=margin", "lr=1e30"), tmp_path, "test")
    state = torch.load(tmp_path / "broken_step.pt", weights_only=True)
    torch.save(state | {"network": _infinite(state["network"], "head.fc1.weight")}, tmp_path / "b")
    result = replay(tmp_path / "b")
    assert result.why == "the loss became nan"
    state["batch"]["images"][0] = float("nan")
    torch.save(state, tmp_path / "c")
    assert replay(tmp_path / "c").layer == "the images themselves"


def _infinite(network: dict[str, torch.Tensor], name: str) -> dict[str, torch.Tensor]:
    return network | {name: torch.full_like(network[name], float("inf"))}


def test_another_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.pt").write_text("no archive")
    with pytest.raises(ValueError, match="is no file of a bad step"):
        replay(tmp_path / "text.pt")
