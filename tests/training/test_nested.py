"""Nested embeddings: each prefix has its loss, and a run is evaluated and used at each size."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from typer.testing import CliRunner

import unseen
from unseen.cli.main import app
from unseen.config import build
from unseen.config import schema as configs
from unseen.core import registry
from unseen.core.contracts import Output
from unseen.core.tuples import Triplets
from unseen.export.bundle import card
from unseen.export.inference import as_input
from unseen.export.torch_program import write_program
from unseen.losses.proxy_anchor import ProxyAnchorLoss
from unseen.losses.triplet import TripletLoss
from unseen.reports import score_tables
from unseen.runs.prepare import RunContext, prepare
from unseen.runs.run import train_and_evaluate
from unseen.runs.trained_run import Trained
from unseen.search.index import Index
from unseen.search.manifest import read
from unseen.search.service.index_registry import Snapshot
from unseen.training.cross_batch_memory import CrossBatchMemory
from unseen.training.nested import Nested
from unseen.training.objective import MinedObjective
from unseen.training.result import read_result
from unseen.training.run_folder import RunFolder

pytestmark = pytest.mark.usefixtures("narrow_network")

SIZES, CLASSES = [2, 3, 6], 4
LABELS = torch.arange(12) % CLASSES
TINY = [
    "data.max_classes=16",
    "data.size=16",
    "batch_size=16",
    "nested=[4,8,16]",
    "epochs=1",
    "sampler.steps=2",
    "workers=0",
    'metrics=["recall@1"]',
]


def context_of(*words: str) -> RunContext:
    return prepare(configs.make(configs.override({}, [*TINY, *words])))


def embeddings() -> Tensor:
    rows = torch.randn(12, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    return rows.requires_grad_()


@pytest.mark.parametrize("weights", [[], [3.0, 1.0, 4.0]])
def test_it_is_the_weighted_mean_of_a_loss_of_its_own_for_each_prefix(weights: list[float]) -> None:
    losses = {size: ProxyAnchorLoss(CLASSES, size).double() for size in SIZES}
    rows, again = embeddings(), embeddings()
    terms = MinedObjective(Nested(losses, weights))(Output(rows, rows), LABELS)
    total = torch.zeros((), dtype=torch.float64)
    for place, size in enumerate(SIZES):
        fraction = weights[place] / 8 if weights else 1 / 3
        prefix = torch.stack([again[:, column] for column in range(size)], dim=1)
        length = sum(prefix[:, column] ** 2 for column in range(size)) ** 0.5
        total = total + fraction * losses[size](prefix / length[:, None], LABELS)
    assert torch.allclose(terms["loss"], total, atol=1e-12)
    (result,) = torch.autograd.grad(terms["total"], [rows], retain_graph=True)
    (expected,) = torch.autograd.grad(total, [again], retain_graph=True)
    assert torch.allclose(result, expected, atol=1e-12)
    groups = MinedObjective(Nested(losses, weights)).parameter_groups(0.1)
    assert [p.shape for group in groups for p in group["params"]] == [
        (CLASSES, size) for size in SIZES
    ]


class Noted:
    """A miner of every triplet whose negative follows its positive; notes what it is shown."""

    def __init__(self) -> None:
        self.shown: list[list[tuple[int, ...]]] = []

    def __call__(self, embeddings: Tensor, labels: Tensor, *references: Tensor) -> Triplets:
        self.shown.append([tuple(x.shape) for x in (embeddings, *references[:1])])
        return Triplets(torch.tensor([0, 1]), torch.tensor([4, 5]), torch.tensor([1, 2]))


def test_tuples_are_mined_in_each_prefix_and_references_are_cut_alike() -> None:
    miner, memory = Noted(), CrossBatchMemory(12, 6)
    nested = Nested({size: TripletLoss() for size in SIZES})
    objective = MinedObjective(nested, miner, (), memory).double()
    earlier, rows = embeddings().detach().flip(0), embeddings()
    assert objective(Output(earlier, earlier), LABELS.flip(0))["memory"] == 0
    terms = objective(Output(rows, rows), LABELS)
    assert terms["triplets"] == 2 * len(SIZES)
    batch, against = miner.shown[3:6], miner.shown[6:]
    assert batch == [[(12, size)] for size in SIZES]
    assert against == [[(12, size), (12, size)] for size in SIZES]
    tuples = Triplets(torch.tensor([0, 1]), torch.tensor([4, 5]), torch.tensor([1, 2]))
    prices = [
        TripletLoss()(rows[:, :m], LABELS, tuples, earlier[:, :m], LABELS.flip(0)) for m in SIZES
    ]
    assert torch.allclose(terms["memory"], sum(prices) / 3)


@pytest.mark.parametrize("name", registry.names("losses"))
def test_any_loss_can_be_nested(name: str) -> None:
    context = {"num_classes": CLASSES, "seed": 0}
    made = {m: registry.create("losses", name, embedding_size=m, **context) for m in SIZES}
    rows = embeddings()
    total = MinedObjective(Nested(made)).double()(Output(rows, rows), LABELS)["total"]
    total.backward()
    assert bool(total.isfinite())
    assert rows.grad is not None
    assert bool(rows.grad[:, :2].abs().sum() > 0)


class Fixed(nn.Module):
    """A loss of somebody's that knows one size."""

    def __init__(self) -> None:
        super().__init__()
        self.center = nn.Parameter(torch.zeros(6))

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        return (embeddings - self.center).square().mean()


def test_a_loss_of_one_size_is_refused_when_it_is_made() -> None:
    with pytest.raises(
        ValueError, match="ProxyAnchorLoss cannot be computed on the first 2 values"
    ):
        Nested({size: ProxyAnchorLoss(CLASSES, 6) for size in SIZES})
    with pytest.raises(ValueError, match="Fixed cannot be computed on the first 2 values of an"):
        Nested({size: build.as_module(Fixed(), 3) for size in SIZES})


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nested=[8,4,16]"], "nested.sizes: sizes must rise"),
        (["nested=[16]"], "nested.sizes: sizes must rise"),
        (["embedding_size=32"], "the last of nested must be embedding_size = 32"),
        (["descriptor=pooled"], "use descriptor=embedding"),
        (["nested.weights=[1.0]", "loss=contrastive"], "3 nested sizes need as many weights"),
    ],
)
def test_what_cannot_be_is_said_in_a_line(words: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build.objective(context_of(*words).config, 4)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "nested"
    train_and_evaluate(context_of("loss=proxy_anchor"), folder, "test")
    return folder


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root, dataset = tmp_path_factory.mktemp("images"), context_of().dataset
    for item in range(0, 120, 10):
        folder = root / f"class {dataset.labels[item]}"
        folder.mkdir(exist_ok=True)
        dataset.image(item).save(folder / f"{item}.png")
    return root


def test_each_size_is_evaluated_beside_principal_directions(run: Path) -> None:
    result = read_result(RunFolder(run))
    rows = [f"{name} at {size}" for size in (4, 8) for name in ("trained", "principal")]
    assert set(rows) <= set(result.scores)
    assert score_tables.row_names(result)[-4:] == rows
    assert score_tables.sizes(result) == [4, 8]
    assert "| trained network, 8 numbers |" in score_tables.markdown_table(result)
    with np.load(run / "embeddings" / "test.npz") as kept:
        labels, stored = kept["labels"], torch.from_numpy(kept["embeddings"])
    again = unseen.evaluate(stored[:, :4], labels, metrics=["recall@1"], missing="count")
    wanted = result.scores["trained at 4"].metrics["recall@1"].value
    assert again.values["recall@1"].value == pytest.approx(wanted, abs=1e-6)


def test_a_smaller_descriptor_is_the_prefix_as_a_unit_vector(run: Path, images: Path) -> None:
    whole = Trained.open(run)
    small, files = whole.at(4), sorted(images.rglob("*.png"))
    expected = whole.embed(files)[:, :4]
    expected = expected / expected.norm(dim=1, keepdim=True)
    assert torch.allclose(small.embed(files), expected, atol=1e-6)
    assert small.fingerprint != whole.fingerprint
    assert whole.at(None) is whole.at(16) is whole
    with pytest.raises(ValueError, match="descriptors of 4, 8, 16 numbers, not of 5"):
        whole.at(5)
    assert "first 4 (recall@1" in card(whole, None, "")
    assert "These are the first 4 of 16." in card(small, None, "")


def request(*words: str) -> str:
    done = CliRunner().invoke(app, list(words))
    assert done.exit_code == 0, done.output
    return done.output


def test_an_index_keeps_and_searches_a_size(run: Path, images: Path, tmp_path: Path) -> None:
    index = tmp_path / "small.index"
    first, *others = sorted(images.iterdir())
    request("index", "build", str(run), *map(str, others), "--size", "4", "--out", str(index))
    request("index", "add", str(index), str(first))
    assert read(index).model.size == 4
    assert len(Index.open(index)) == 12
    assert Snapshot.open(index, run).model.network.embedding_size == 4  # what `unseen serve` asks
    assert "1.00" in request("search", str(index), str(next(first.iterdir())))
    request("index", "rebuild", str(index), "--size", "8")
    request("index", "rebuild", str(index))
    assert read(index).model.size == 8


@pytest.mark.slow
def test_an_exported_size_is_that_of_the_run(run: Path, images: Path, tmp_path: Path) -> None:
    small = Trained.open(run).at(4)
    shown = as_input(small, sorted(images.rglob("*.png")))
    assert write_program(small, tmp_path / "small.pt2", shown) < 1e-5
    made = torch.export.load(tmp_path / "small.pt2").module()(shown)
    assert made.shape == (12, 4)
    assert torch.allclose(made.norm(dim=1), torch.ones(12), atol=1e-5)


def test_vectors_are_written_at_a_size(run: Path, images: Path, tmp_path: Path) -> None:
    out = tmp_path / "vectors.npz"
    request("embed", str(run), str(images), "--size", "8", "--out", str(out))
    with np.load(out) as arrays:
        assert arrays["vectors"].shape == (12, 8)
        assert np.allclose(np.linalg.norm(arrays["vectors"], axis=1), 1, atol=1e-5)
