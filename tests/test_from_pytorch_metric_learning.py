"""What the page says of pytorch-metric-learning holds: the programs run, counts and names are
true."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import unseen
from unseen import catalogue, losses
from unseen.evaluation.metric_names import parse_metric

pml = pytest.importorskip("pytorch_metric_learning")
PAGE = (Path(__file__).parents[1] / "docs" / "from_pytorch_metric_learning.md").read_text()
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
ROWS = re.findall(r"^\| `(\w+?)(\(.*?\))?` \| `([^`]+)`", PAGE, re.MULTILINE)
EQUAL = [(theirs + call, ours) for theirs, call, ours in ROWS if ours[0].isupper()]


def test_their_program_does_the_job(capsys: pytest.CaptureFixture[str]) -> None:
    """Ours is the README's, which has a test of its own."""
    pytest.importorskip("faiss")
    exec(compile(PROGRAMS[1], "theirs", "exec"), {})
    before, after = re.findall(r"'precision_at_1': ([\d.]+)", capsys.readouterr().out)
    assert float(after) > float(before) + 0.4


def test_our_loop_does_the_job(capsys: pytest.CaptureFixture[str]) -> None:
    """On the features that ours begins with."""
    features = PROGRAMS[0].partition("\n\nloss, miner")[0]
    exec(compile(f"{features}\n{PROGRAMS[2]}", "loop", "exec"), {})
    assert float(capsys.readouterr().out.split()[-1]) > 0.6


def test_their_samplers_are_refused_with_what_to_do(tmp_path: Path) -> None:
    from pytorch_metric_learning.samplers import MPerClassSampler

    labels = torch.arange(20).repeat_interleave(4)
    theirs = MPerClassSampler(labels, m=4, batch_size=16)
    with pytest.raises(ValueError, match=r'MPerClassSampler is no sampler of.*"per_class": m'):
        unseen.fit((torch.randn(80, 4), labels), sampler=theirs, out=tmp_path, progress=False)


def test_the_counts_of_lines_are_true() -> None:
    told = [int(number) for number in re.findall(r"(\d+) lines", PAGE)]
    assert told == [len([line for line in p.splitlines() if line.strip()]) for p in PROGRAMS]


def made(call: str, package: Any) -> Any:
    """The loss that a call makes; classes and size are given where they are asked for."""
    name, values = re.fullmatch(r"(\w+)\((.*)\)", call).groups()  # type: ignore[union-attr]
    asked = {p.name for p in catalogue.parameters(getattr(package, name))}
    context = {"num_classes": 6, "embedding_size": 16}
    if name == "MarginLoss":  # there the number of classes is another loss
        context = {}
    given = {key: value for key, value in context.items() if key in asked}
    return getattr(package, name)(**given, **eval(f"dict({values})"))


@pytest.mark.filterwarnings("ignore:Using a non-tuple sequence:UserWarning")  # in theirs
@pytest.mark.parametrize(("theirs", "ours"), EQUAL)
def test_losses_that_are_called_equal_are(theirs: str, ours: str) -> None:
    from pytorch_metric_learning import losses as their_losses

    generator = torch.Generator().manual_seed(0)
    embeddings = torch.randn(24, 16, generator=generator)
    labels = torch.arange(6).repeat_interleave(4)
    one, two = made(theirs, their_losses), made(ours, losses)
    for mine, other in zip(two.parameters(), one.parameters(), strict=False):
        mine.data = _like(other, mine.shape)
    assert one(embeddings, labels).item() == pytest.approx(two(embeddings, labels).item(), rel=1e-4)


def _like(other: nn.Parameter, shape: torch.Size) -> torch.Tensor:
    """Class vectors stand in columns there and in rows here."""
    value = other.detach().clone()
    return value if value.shape == shape else value.T.reshape(shape)


def test_the_tables_name_what_exists() -> None:
    from pytorch_metric_learning import losses as their_losses
    from pytorch_metric_learning import miners, regularizers, samplers

    homes = {"Loss": "losses", "Miner": "miners", "Sampler": "samplers"}
    packages = (their_losses, miners, samplers, regularizers)
    assert len(EQUAL) > 10
    for theirs, _, ours in ROWS:
        known = [kind for end, kind in homes.items() if theirs.endswith(end)]
        if known and ours[0].islower():
            assert ours in catalogue.names(known[0])
        if theirs[0].isupper() and theirs not in ("AccuracyCalculator", "NMI"):
            assert any(hasattr(package, theirs) for package in packages), theirs
        if theirs[0].islower():
            parse_metric(ours)
