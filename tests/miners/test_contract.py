"""What holds for every miner of the catalogue: a new file in unseen/miners needs no edit here."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from pytorch_metric_learning import losses as pml_losses
from pytorch_metric_learning import miners as pml_miners
from torch import Tensor

from unseen.core import registry
from unseen.core.contracts import Output
from unseen.core.relevance import Levels, Relevance
from unseen.core.tuples import Pairs, Triplets
from unseen.training.cross_batch_memory import CrossBatchMemory
from unseen.training.objective import MinedObjective

NAMES = registry.names("miners")
LABELS = torch.tensor([5, 0, 0, 1, 0, 5, 1, 4, 0, 0, 1, 5])  # unbalanced, unordered, 4 is alone


def build(name: str, seed: int = 0, preset: str | None = None) -> Any:
    return registry.create("miners", name, preset=preset, seed=seed)


def embeddings(seed: int = 0, number: int = 12, dtype: torch.dtype = torch.float32) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(number, 6, generator=generator, dtype=torch.float64).to(dtype)


def check(mined: Pairs | Triplets, labels: Tensor, ref_labels: Tensor | None = None) -> None:
    """Index tensors whose labels agree for positives and differ for negatives."""
    columns = labels if ref_labels is None else ref_labels
    assert isinstance(mined, Pairs | Triplets)
    for indices in mined:
        assert indices.dtype == torch.int64
        assert indices.ndim == 1
        assert not indices.requires_grad
        assert indices.device == labels.device
    anchor_of_negative = mined.anchor if isinstance(mined, Triplets) else mined.anchor_of_negative
    assert len(mined.anchor) == len(mined.positive)
    assert len(anchor_of_negative) == len(mined.negative)
    assert (labels[mined.anchor] == columns[mined.positive]).all()
    assert (labels[anchor_of_negative] != columns[mined.negative]).all()
    if ref_labels is None:
        assert (mined.anchor != mined.positive).all()


def same(first: Any, second: Any) -> bool:
    pairs = zip(first, second, strict=True)
    return type(first) is type(second) and all(torch.equal(a, b) for a, b in pairs)


def test_there_are_miners() -> None:
    assert len(NAMES) >= 8


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", range(3))
def test_tuples_are_valid(name: str, seed: int) -> None:
    x = embeddings(seed).requires_grad_()
    mined = build(name, seed)(x, LABELS)
    check(mined, LABELS)
    assert len(mined.anchor) > 0


@pytest.mark.parametrize("name", NAMES)
def test_every_preset_mines(name: str) -> None:
    for preset in registry.find("miners", name).PRESETS:  # type: ignore[attr-defined]
        check(build(name, preset=preset)(embeddings(), LABELS), LABELS)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_precisions(name: str, dtype: torch.dtype) -> None:
    mined = build(name)(embeddings(dtype=dtype), LABELS)
    check(mined, LABELS)
    again = build(name)(
        embeddings(dtype=dtype).to(torch.promote_types(dtype, torch.float32)), LABELS
    )
    assert same(mined, again)


@pytest.mark.parametrize("name", NAMES)
def test_under_autocast_nothing_changes(name: str) -> None:
    expected = build(name)(embeddings(), LABELS)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert same(build(name)(embeddings(), LABELS), expected)


@pytest.mark.parametrize("name", NAMES)
def test_references(name: str) -> None:
    ref_labels = torch.tensor([0, 0, 1, 1, 1, 3, 5])
    mined = build(name)(embeddings(), LABELS, embeddings(1, 7), ref_labels)
    check(mined, LABELS, ref_labels)
    assert len(mined.anchor) > 0
    # references may share no class with the batch, or nothing but classes
    for lonely in (torch.full((7,), 9), torch.full((7,), 5)):
        check(build(name)(embeddings(), LABELS, embeddings(1, 7), lonely), LABELS, lonely)


@pytest.mark.parametrize("name", NAMES)
def test_an_item_equal_to_the_anchor_among_references_is_a_positive(name: str) -> None:
    """References are other items, even when they stand at the same place of the list."""
    x, labels = embeddings(number=2), torch.tensor([0, 1])
    mined = build(name)(x, labels, torch.flip(x, (0,)), labels)
    check(mined, labels, labels)
    if len(mined.anchor):
        assert torch.equal(mined.positive, mined.anchor)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "labels",
    [torch.zeros(6, dtype=torch.int64), torch.arange(6), torch.tensor([3])],
    ids=["one class", "singletons", "one item"],
)
def test_batches_without_triplets(name: str, labels: Tensor) -> None:
    mined = build(name)(embeddings(number=len(labels)), labels)
    check(mined, labels)
    if isinstance(mined, Triplets):
        assert len(mined.anchor) == 0


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("empty", ["batch", "references"])
def test_nothing_to_mine_from(name: str, empty: str) -> None:
    x, labels = embeddings(), torch.arange(6).repeat_interleave(2)
    if empty == "batch":
        mined = build(name)(x[:0], labels[:0])
    else:
        mined = build(name)(x, labels, x[:0], labels[:0])
    assert [len(part) for part in mined] == [0] * len(mined)


@pytest.mark.parametrize("name", NAMES)
def test_collapsed_embeddings(name: str) -> None:
    check(build(name)(torch.ones(12, 6), LABELS), LABELS)
    check(build(name)(torch.zeros(12, 6), LABELS), LABELS)


@pytest.mark.parametrize("name", NAMES)
def test_labels_beyond_what_float32_counts(name: str) -> None:
    labels = LABELS + 2**25
    assert same(build(name)(embeddings(), labels), build(name)(embeddings(), LABELS))


@pytest.mark.parametrize("name", NAMES)
def test_the_same_seed_mines_the_same_and_leaves_the_global_generator_alone(name: str) -> None:
    first, second = build(name, 7), build(name, 7)
    before = torch.random.get_rng_state()
    for step in range(3):
        mined = first(embeddings(step), LABELS)
        torch.rand(1)
        assert same(mined, second(embeddings(step), LABELS))
        torch.random.set_rng_state(before)
    first(embeddings(), LABELS)
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize("name", NAMES)
def test_a_saved_miner_goes_on_where_it_was(name: str) -> None:
    miner = build(name)
    miner(embeddings(), LABELS)
    state = miner.state_dict()
    expected = [miner(embeddings(s), LABELS) for s in range(3)]
    other = build(name, 99)
    other.load_state_dict(state)
    assert all(same(other(embeddings(s), LABELS), expected[s]) for s in range(3))


@pytest.mark.parametrize("name", NAMES)
def test_feeds_losses_of_pytorch_metric_learning(name: str) -> None:
    x = embeddings().requires_grad_()
    mined = build(name)(x, LABELS)
    for loss in (pml_losses.TripletMarginLoss(margin=2.0), pml_losses.ContrastiveLoss(0.0, 1.9)):
        value = loss(x, LABELS, mined)
        (gradient,) = torch.autograd.grad(value, x)
        assert gradient.abs().sum() > 0


@pytest.mark.parametrize(
    "miner",
    [
        pml_miners.TripletMarginMiner(margin=0.5),
        pml_miners.MultiSimilarityMiner(0.3),
        pml_miners.BatchHardMiner(),
        pml_miners.DistanceWeightedMiner(),
    ],
    ids=lambda miner: type(miner).__name__,
)
@pytest.mark.parametrize("loss", ["margin", "multi_similarity", "supcon", "circle"])
def test_miners_of_pytorch_metric_learning_feed_our_losses(miner: Any, loss: str) -> None:
    x = embeddings().requires_grad_()
    price = registry.create("losses", loss, num_classes=6, embedding_size=6)
    value = price(x, LABELS, miner(x, LABELS))
    assert torch.isfinite(value)
    (gradient,) = torch.autograd.grad(value, x)
    assert gradient.abs().sum() > 0


def test_a_miner_of_pytorch_metric_learning_by_name() -> None:
    miner = registry.create("miners", "pml:BatchHardMiner")
    theirs = miner(embeddings(), LABELS)
    ours = build("batch_hard")(embeddings(), LABELS)
    assert same(ours, Triplets(*theirs))


@pytest.mark.parametrize("name", NAMES)
def test_every_kind_of_relevance_stands_where_labels_do(
    name: str, kinds: Callable[[Tensor], dict[str, Relevance]]
) -> None:
    """Positives are the same, negatives known to be different, among references, too."""
    x, rows = embeddings(), torch.arange(12)
    for kind, relevance in kinds(LABELS).items():
        for references in ((), (embeddings(1)[:7], relevance.of(rows[5:]))):
            mined = build(name)(x, relevance.of(rows), *references)
            relation = relevance.of(rows).to(*references[1:])
            pushed = mined.anchor if isinstance(mined, Triplets) else mined.anchor_of_negative
            assert relation.same[mined.anchor, mined.positive].all()
            assert relation.different[pushed, mined.negative].all()
            assert len(mined.anchor)
            if kind in ("labels", "levels") and not references:
                assert same(mined, build(name)(x, LABELS))


def test_a_miner_that_hears_of_classes_alone_hears_of_them(
    kinds: Callable[[Tensor], dict[str, Relevance]],
) -> None:
    """One from outside, beside a loss that reads levels, with a memory of items."""
    heard: list[list[int]] = []

    def miner(x: Tensor, labels: Tensor, *references: Tensor) -> Pairs:
        heard.extend([labels.tolist(), *(r.tolist() for r in references[1:])])
        return build("all")(x, labels, *references)  # type: ignore[no-any-return]

    levels, items = kinds(LABELS)["levels"], torch.tensor([3, 5, 8, 0])
    loss = registry.create("losses", "graded_supcon")
    objective = MinedObjective(loss, miner, memory=CrossBatchMemory(8, 6), relevance=levels)  # type: ignore[arg-type]
    for _ in range(2):
        objective(Output(embeddings(), embeddings()), LABELS, torch.arange(12))
        x = embeddings(1)[items]
    objective(Output(x, x), LABELS[items], items)
    assert heard[-2] == LABELS[items].tolist()
    assert sorted(heard[-1]) == sorted(LABELS[-8:].tolist())
    with pytest.raises(ValueError, match=r"miner hears of classes alone: relevance.sharded"):
        MinedObjective(loss, miner, relevance=Levels(np.stack([LABELS, LABELS], axis=1), 2))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"relevance.kind=pairs; the miners that can: all, "):
        MinedObjective(loss, miner, relevance=kinds(LABELS)["pairs"])  # type: ignore[arg-type]


@pytest.mark.parametrize("name", NAMES)
def test_a_list_is_no_tensor_of_labels(name: str) -> None:
    with pytest.raises(ValueError, match=r"labels must be a tensor .* got list"):
        build(name)(embeddings(), LABELS.tolist())
