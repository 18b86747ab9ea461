"""Drawing by rows, and the rho switch on every triplet miner."""

from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from unseen.core import registry
from unseen.core.tuples import Triplets, relations
from unseen.miners.base import Members, TripletMiner, draw_per_row

TRIPLET_MINERS = [
    n for n in registry.names("miners") if issubclass(registry.find("miners", n), TripletMiner)
]
LABELS = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2, 2, 3])  # class 3 has one item


def embeddings(seed: int = 0) -> Tensor:
    return torch.randn(len(LABELS), 6, generator=torch.Generator().manual_seed(seed))


def assert_frequencies(drawn: Tensor, expected: Tensor) -> None:
    """Counts within 5 standard deviations of their binomial expectation."""
    count = torch.bincount(drawn.flatten(), minlength=len(expected)).double()
    number = drawn.numel()
    error = (number * expected * (1 - expected)).sqrt()
    assert ((count - number * expected).abs() <= 5 * error + 1e-9).all(), (count, expected)


def test_uniform_draws() -> None:
    allowed = torch.tensor([[True, False, True, True], [False, True, False, False]])
    drawn = draw_per_row(allowed, torch.Generator().manual_seed(0), draws=6000)
    assert drawn.shape == (2, 6000)
    assert drawn.dtype == torch.int64
    assert_frequencies(drawn[0], torch.tensor([1, 0, 1, 1], dtype=torch.float64) / 3)
    assert (drawn[1] == 1).all()


def test_weighted_draws_over_a_huge_range() -> None:
    probability = torch.tensor([0.5, 0.3, 0.0, 0.15, 0.05], dtype=torch.float64)
    rows = probability.log() + torch.tensor([[0.0], [600.0], [-600.0]])  # exp would overflow
    allowed = torch.ones(3, 5, dtype=torch.bool)
    drawn = draw_per_row(allowed, torch.Generator().manual_seed(1), rows, draws=8000)
    for row in drawn:
        assert_frequencies(row, probability)
    allowed[:, 0] = False
    drawn = draw_per_row(allowed, torch.Generator().manual_seed(1), rows.float(), draws=8000)
    for row in drawn:
        assert_frequencies(row, torch.tensor([0, 0.6, 0, 0.3, 0.1], dtype=torch.float64))


def test_the_last_and_the_first_entry_are_reached_and_never_passed() -> None:

    allowed = torch.tensor([[False, True, True, False]])
    for uniform in (0.0, 1 - 2**-53):
        with pytest.MonkeyPatch.context() as patch:
            value = torch.full((1, 1), uniform, dtype=torch.float64)
            patch.setattr(torch, "rand", lambda *_, value=value, **__: value)
            drawn = draw_per_row(allowed, torch.Generator())
            weighted = draw_per_row(allowed, torch.Generator(), torch.zeros(1, 4))
        assert drawn.item() == weighted.item() == (1 if uniform == 0 else 2)


def test_a_row_with_nothing_allowed_gives_a_valid_column() -> None:
    nothing = torch.zeros(2, 3, dtype=torch.bool)
    for weights in (None, torch.zeros(2, 3)):
        drawn = draw_per_row(nothing, torch.Generator(), weights)
        assert ((drawn >= 0) & (drawn < 3)).all()


def test_members_pick_by_place() -> None:
    members = Members(
        torch.tensor([[False, True, True], [False, False, False], [True, False, False]])
    )
    assert members.count.tolist() == [2, 0, 1]
    row = torch.tensor([0, 0, 0, 2, 2])
    uniform = torch.tensor([0.0, 0.49, 1 - 2**-24, 0.0, 1 - 2**-24])
    assert members.pick(row, uniform).tolist() == [1, 1, 2, 0, 0]


def test_there_are_triplet_miners() -> None:
    assert len(TRIPLET_MINERS) >= 5


@pytest.mark.parametrize("name", TRIPLET_MINERS)
def test_without_switch_nothing_changes_and_with_it_only_the_switched(name: str) -> None:
    plain, rho = (registry.create("miners", name, {"switch": s}, seed=3) for s in (0.0, 0.4))
    never = registry.create("miners", name, {}, seed=3)
    switched_at_all = 0
    for step in range(5):
        x = embeddings(step)
        without, unswitched, mined = never(x, LABELS), plain(x, LABELS), rho(x, LABELS)
        assert all(torch.equal(a, b) for a, b in zip(without, unswitched, strict=True))
        switched = mined.positive == mined.anchor
        switched_at_all += int(switched.sum())
        assert torch.equal(mined.anchor, without.anchor)
        assert torch.equal(mined.positive[~switched], without.positive[~switched])
        assert torch.equal(mined.negative[~switched], without.negative[~switched])
        assert (LABELS[mined.negative[switched]] == LABELS[mined.anchor[switched]]).all()
        assert (mined.negative[switched] != mined.anchor[switched]).all()
    assert switched_at_all > 0


@pytest.mark.parametrize("name", TRIPLET_MINERS)
def test_fraction_switched_is_the_probability(name: str) -> None:
    miner = registry.create("miners", name, {"switch": 0.35}, seed=0)
    switched = number = 0
    for step in range(150):
        mined = miner(embeddings(step), LABELS)
        switched += int((mined.positive == mined.anchor).sum())
        number += len(mined.anchor)
    error = (number * 0.35 * 0.65) ** 0.5
    assert number > 500
    assert abs(switched - 0.35 * number) < 5 * error


def test_the_item_pushed_away_is_uniform_in_the_class() -> None:
    miner = registry.create("miners", "batch_hard", {"switch": 1.0}, seed=0)
    drawn = torch.stack([miner(embeddings(), LABELS).negative for _ in range(1500)])
    anchors = miner(embeddings(), LABELS).anchor
    positive, _ = relations(LABELS)
    for place, anchor in enumerate(anchors):
        fraction = positive[anchor].double()
        assert_frequencies(drawn[:, place], fraction / fraction.sum())


@pytest.mark.parametrize("name", TRIPLET_MINERS)
def test_published_numbers_with_every_triplet_switched(spec: SimpleNamespace, name: str) -> None:
    values = {"definition": "facenet"} if name == "semi_hard" else {}
    if name == "random":
        values = {"per_anchor": 1}  # one triplet for each anchor, as the numbers presume
    miner = registry.create("miners", name, values | {"switch": 1.0}, seed=0)
    mined = miner(spec.T, spec.labels)
    partner = torch.tensor([1, 0, 3, 2, 5, 4])
    assert [t.tolist() for t in mined] == [list(range(6)), list(range(6)), partner.tolist()]
    dist = (spec.T[mined.anchor] - spec.T[mined.negative]).norm(dim=1)
    assert (1 - dist).clamp(min=0).mean().item() == pytest.approx(0.189040, abs=1e-6)
    assert (0.2 - dist**2).clamp(min=0).mean().item() == pytest.approx(0.0042, abs=5e-5)
    contrastive = registry.create("losses", "contrastive", preset="revisit")
    assert contrastive(spec.T, spec.labels, mined).item() == pytest.approx(0.189040, abs=1e-5)
    triplet = registry.create("losses", "triplet", preset="revisit_code")
    assert triplet(spec.T, spec.labels, mined).item() == pytest.approx(0.0042, abs=5e-5)


def test_margin_loss_of_switched_triplets_has_negatives_only(spec: SimpleNamespace) -> None:
    miner = registry.create("miners", "distance_weighted", {"switch": 1.0}, "revisit_code", seed=0)
    mined = miner(spec.T, spec.labels)
    loss = registry.create("losses", "margin", {"beta": 0.6}, num_classes=3).double()
    dist = (spec.T[mined.anchor] - spec.T[mined.negative]).norm(dim=1)
    price = (0.6 - dist + 0.2).clamp(min=0)
    expected = price.sum() / (price > 0).sum()
    value = loss(spec.T, spec.labels, mined)
    assert value.item() == pytest.approx(expected.item(), abs=1e-6)
    value.backward()
    assert loss.beta.grad.tolist() == pytest.approx([1.0, 0.0, 0.0])


@pytest.mark.parametrize("name", TRIPLET_MINERS)
def test_a_saved_switch_goes_on_where_it_was(name: str) -> None:
    miner = registry.create("miners", name, {"switch": 0.5}, seed=0)
    miner(embeddings(), LABELS)
    state = miner.state_dict()
    expected = [miner(embeddings(s), LABELS) for s in range(3)]
    other = registry.create("miners", name, {"switch": 0.5}, seed=9)
    other.load_state_dict(state)
    for step, mined in enumerate(expected):
        again = other(embeddings(step), LABELS)
        assert all(torch.equal(a, b) for a, b in zip(mined, again, strict=True))


@pytest.mark.parametrize("name", TRIPLET_MINERS)
def test_the_switch_refuses_references_instead_of_being_ignored(name: str) -> None:
    miner = registry.create("miners", name, {"switch": 0.5})
    with pytest.raises(ValueError, match="switch"):
        miner(embeddings(), LABELS, embeddings(1), LABELS)


@pytest.mark.parametrize("switch", [-0.1, 1.1])
def test_a_switch_is_a_probability(switch: float) -> None:
    with pytest.raises(ValueError, match="switch"):
        registry.create("miners", "random", {"switch": switch})


def test_many_triplets_are_switched_without_a_matrix_per_triplet() -> None:
    labels = torch.arange(60) // 15
    x = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
    values = {"definition": "window", "margin": 3.0, "switch": 0.5}
    mined: Triplets = registry.create("miners", "semi_hard", values)(x, labels)
    switched = mined.anchor == mined.positive
    assert len(switched) > 10000
    assert abs(switched.double().mean().item() - 0.5) < 0.05
