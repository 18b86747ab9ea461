import pytest
import torch

from unseen.core import tuples
from unseen.core.tuples import Pairs, Triplets

LABELS = torch.tensor([3, 1, 3, 2**40, 1, 3])
REFERENCES = torch.tensor([1, 3, 5, 2**40])


def positives() -> list[tuple[int, int]]:
    y = LABELS.tolist()
    return [(i, j) for i in range(6) for j in range(6) if i != j and y[i] == y[j]]


def negatives() -> list[tuple[int, int]]:
    y = LABELS.tolist()
    return [(i, j) for i in range(6) for j in range(6) if y[i] != y[j]]


def listed(*tensors: torch.Tensor) -> list[tuple[int, ...]]:
    return list(zip(*(t.tolist() for t in tensors), strict=True))


def test_relations_within_a_batch() -> None:
    labels = LABELS.clone()
    pos, neg = tuples.relations(labels)
    assert listed(*pos.nonzero(as_tuple=True)) == positives()
    assert listed(*neg.nonzero(as_tuple=True)) == negatives()
    assert torch.equal(labels, LABELS)


def test_relations_to_references_exclude_nobody() -> None:
    pos, neg = tuples.relations(LABELS, REFERENCES)
    for i, label in enumerate(LABELS):
        for j, reference in enumerate(REFERENCES):
            assert pos[i, j] == (label == reference)
            assert neg[i, j] != pos[i, j]
    own, _ = tuples.relations(LABELS, LABELS)
    assert own.diagonal().all()


def test_all_pairs_and_triplets() -> None:
    masks = tuples.relations(LABELS)
    pairs = tuples.all_pairs(*masks)
    assert listed(*pairs[:2]) == positives()
    assert listed(*pairs[2:]) == negatives()
    expected = [(a, p, n) for a, p in positives() for b, n in negatives() if a == b]
    assert sorted(listed(*tuples.all_triplets(*masks))) == sorted(expected)


def test_join_keeps_repeats_and_drops_the_unmatched() -> None:
    table = torch.tensor([(0, 2), (0, 2), (3, 1), (5, 0)]), torch.tensor([(0, 1), (4, 3), (0, 4)])
    pairs = Pairs(*table[0].T, *table[1].T)  # columns of a table: not contiguous
    joined = tuples.as_triplets(pairs)
    assert sorted(listed(*joined)) == sorted([(0, 2, 1), (0, 2, 4)] * 2)


def test_conversions_leave_their_own_kind_alone() -> None:
    triplets = Triplets(*torch.tensor([(0, 2, 1), (0, 2, 1)]).T)
    pairs = tuples.as_pairs(triplets)
    assert listed(*pairs[:2]) == [(0, 2)] * 2
    assert listed(*pairs[2:]) == [(0, 1)] * 2
    assert tuples.as_triplets(triplets) is triplets
    assert tuples.as_pairs(pairs) is pairs


def test_masks() -> None:
    triplets = Triplets(*torch.tensor([(0, 2, 1), (0, 2, 3), (4, 4, 1)]).T)  # the last is switched
    pos, neg = tuples.pair_masks(triplets, 6, 6)
    assert listed(*pos.nonzero(as_tuple=True)) == [(0, 2), (4, 4)]
    assert listed(*neg.nonzero(as_tuple=True)) == [(0, 1), (0, 3), (4, 1)]
    pos, neg = tuples.pair_masks(Pairs(*torch.tensor([[0], [8], [5], [0]])), 6, 9)
    assert pos.shape == neg.shape == (6, 9)
    assert pos[0, 8]
    assert neg[5, 0]


def test_bare_indices_are_named() -> None:
    index = torch.tensor([0])
    assert isinstance(tuples.from_indices((index,) * 3), Triplets)
    assert isinstance(tuples.from_indices((index,) * 4), Pairs)
    with pytest.raises(ValueError, match="got 2 tensors"):
        tuples.from_indices((index,) * 2)


def test_nothing_gives_nothing() -> None:
    nothing = torch.empty(0, dtype=torch.long)
    empty = Pairs(nothing, nothing, nothing, nothing)
    assert all(len(t) == 0 for t in tuples.join(empty))
    assert not tuples.pair_masks(empty, 3, 3)[0].any()
    pos, neg = tuples.relations(nothing)
    assert pos.shape == neg.shape == (0, 0)


def test_complete_anchors_have_a_positive_and_a_negative() -> None:
    positive = torch.tensor([[True, False], [True, True], [False, False], [False, False]])
    negative = torch.tensor([[False, True], [False, False], [True, False], [False, False]])
    assert tuples.complete(positive, negative).tolist() == [True, False, False, False]
