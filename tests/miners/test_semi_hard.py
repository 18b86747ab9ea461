from types import SimpleNamespace
from typing import Any

import pytest
import torch
from pytorch_metric_learning.miners import TripletMarginMiner
from torch import Tensor

from unseen.miners import semi_hard
from unseen.miners.semi_hard import SemiHardMiner

UNBALANCED = torch.tensor([2, 0, 0, 1, 0, 2, 1, 4, 0, 0, 1, 2])
Triple = tuple[int, int, int]


def distances(x: Tensor, power: int, refs: Tensor | None = None) -> Tensor:
    unit = x / x.norm(dim=1, keepdim=True)
    columns = unit if refs is None else refs / refs.norm(dim=1, keepdim=True)
    dist = torch.empty(len(unit), len(columns), dtype=x.dtype)
    for i in range(len(unit)):
        for j in range(len(columns)):
            dist[i, j] = (unit[i] - columns[j]).norm() ** power
    return dist


def slow(dist: Tensor, y: Tensor, definition: str, margin: float, ry: Tensor | None) -> set[Triple]:
    columns = y if ry is None else ry
    result: set[Triple] = set()
    for a in range(len(y)):
        for p in range(len(columns)):
            if y[a] != columns[p] or (ry is None and a == p):
                continue
            farther = [
                n for n in range(len(columns)) if columns[n] != y[a] and dist[a, n] > dist[a, p]
            ]
            if definition == "window":
                result |= {(a, p, n) for n in farther if dist[a, n] - dist[a, p] <= margin}
            elif farther:
                result.add((a, p, min(farther, key=lambda n: float(dist[a, n]))))
    return result


def as_set(mined: tuple[Tensor, ...]) -> set[Triple]:
    listed = [tuple(t) for t in torch.stack(tuple(mined), dim=1).tolist()]
    assert len(set(listed)) == len(listed)
    return set(listed)


def test_facenet_on_the_fixed_batch(spec: SimpleNamespace) -> None:
    expected = {(0, 1, 2), (1, 0, 2), (2, 3, 0), (3, 2, 4), (4, 5, 3), (5, 4, 0)}
    assert as_set(SemiHardMiner("facenet")(spec.T, spec.labels)) == expected
    assert as_set(SemiHardMiner(**SemiHardMiner.PRESETS["thesis"])(spec.T, spec.labels)) == expected


@pytest.mark.parametrize(
    ("margin", "expected"),
    [
        (0.1, {(2, 3, 0)}),
        (0.5, {(1, 0, 2), (2, 3, 0), (3, 2, 4), (4, 5, 3), (5, 4, 0)}),
    ],
)
def test_window_on_the_fixed_batch(
    spec: SimpleNamespace, margin: float, expected: set[Triple]
) -> None:
    assert as_set(SemiHardMiner("window", margin)(spec.T, spec.labels)) == expected


def test_the_thesis_code_finds_one_triplet_of_price_0_070398(spec: SimpleNamespace) -> None:
    mined = SemiHardMiner(**SemiHardMiner.PRESETS["thesis_code"])(spec.T, spec.labels)
    assert as_set(mined) == {(2, 3, 0)}
    gap = (spec.T[2] - spec.T[3]).norm() - (spec.T[2] - spec.T[0]).norm()
    assert (gap + 0.1).item() == pytest.approx(0.070398, abs=1e-6)


def test_revisit_on_the_fixed_batch(spec: SimpleNamespace) -> None:
    miner, seen = SemiHardMiner(), {a: torch.zeros(6) for a in range(6)}
    for _ in range(1200):
        mined = miner(spec.T, spec.labels)
        assert mined.anchor.tolist() == [0, 1, 2, 3, 4, 5]
        assert mined.positive.tolist() == [1, 0, 3, 2, 5, 4]
        assert mined.negative[2:5].tolist() == [0, 4, 3]
        for a, n in enumerate(mined.negative.tolist()):
            seen[a][n] += 1
    for anchor in (0, 1, 5):  # nothing in the window: uniform over 4 negatives
        count = seen[anchor][spec.labels != spec.labels[anchor]]
        assert ((count - 300).abs() < 5 * (1200 * 0.25 * 0.75) ** 0.5).all()


@pytest.mark.parametrize("upper", [True, False])
@pytest.mark.parametrize("power", [1, 2])
def test_revisit_draws_uniformly_from_the_window(upper: bool, power: int) -> None:
    x = torch.randn(12, 4, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    dist = distances(x, power)
    miner = SemiHardMiner(margin=0.3, power=power, upper=upper)
    seen: dict[tuple[int, int], list[int]] = {}
    for _ in range(1500):
        for a, p, n in torch.stack(tuple(miner(x, UNBALANCED)), dim=1).tolist():
            seen.setdefault((a, p), []).append(n)
    assert {a for a, _ in seen} == set(range(12)) - {7}
    for (a, p), drawn in seen.items():
        fraction = 1 / int((UNBALANCED[a] == UNBALANCED).sum() - 1)
        assert abs(len(drawn) - 1500 * fraction) <= 5 * (1500 * fraction * (1 - fraction)) ** 0.5
        negatives = [n for n in range(12) if UNBALANCED[n] != UNBALANCED[a]]
        window = [
            n
            for n in negatives
            if dist[a, p] < dist[a, n] and (not upper or dist[a, n] < dist[a, p] + 0.3)
        ]
        candidates = window or negatives
        assert set(drawn) <= set(candidates)
        for n in candidates:
            chance = 1 / len(candidates)
            error = (len(drawn) * chance * (1 - chance)) ** 0.5
            assert abs(drawn.count(n) - len(drawn) * chance) <= 5 * error + 1e-9


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("definition", ["facenet", "window"])
@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("block", [1, 50, 1 << 20])
def test_equals_a_slow_loop(
    seed: int, definition: str, power: int, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(semi_hard, "_ENTRIES", block)
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(12, 4, generator=generator, dtype=torch.float64)
    refs = torch.randn(9, 4, generator=generator, dtype=torch.float64)
    ref_labels = torch.tensor([0, 0, 1, 1, 1, 3, 5, 2, 0])
    miner = SemiHardMiner(definition, margin=0.3, power=power)
    mined = as_set(miner(x, UNBALANCED))
    assert mined == slow(distances(x, power), UNBALANCED, definition, 0.3, None)
    mined = as_set(miner(x, UNBALANCED, refs, ref_labels))
    assert mined == slow(distances(x, power, refs), UNBALANCED, definition, 0.3, ref_labels)


def test_window_without_upper_bound_is_every_farther_negative() -> None:
    x = torch.randn(12, 4, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    mined = as_set(SemiHardMiner("window", 0.1, upper=False)(x, UNBALANCED))
    assert mined == slow(distances(x, 1), UNBALANCED, "window", 9.0, None)


def test_window_equals_pytorch_metric_learning() -> None:
    x = torch.randn(60, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    y = torch.arange(60) % 13
    theirs = TripletMarginMiner(margin=0.2, type_of_triplets="semihard")(x, y)
    assert as_set(SemiHardMiner("window", 0.2)(x, y)) == as_set(theirs)


@pytest.mark.parametrize("wrong", [{"definition": "hard"}, {"margin": 0.0}, {"power": 3}])
def test_bad_values(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        SemiHardMiner(**wrong)


def test_a_batch_of_one_class_gives_nothing() -> None:
    x = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    assert all(len(t) == 0 for t in SemiHardMiner()(x, torch.zeros(4, dtype=torch.long)))
