"""Decks, distinct draws and replayed epochs: what the samplers are made of."""

from collections import Counter
from collections.abc import Iterator

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from unseen.core.contracts import IntArray
from unseen.samplers.base import ClassIndex, Deck, Replayed, distinct

FEW = settings(max_examples=40, deadline=None, derandomize=True, database=None)


@FEW
@given(st.integers(1, 12), st.lists(st.integers(0, 12), max_size=30), st.integers(0, 9))
def test_a_deck_never_repeats_in_a_draw_and_deals_evenly(
    cards: int, draws: list[int], seed: int
) -> None:
    deck = Deck(np.arange(cards) * 10, np.random.default_rng(seed))
    times: Counter[int] = Counter({10 * card: 0 for card in range(cards)})
    for number in draws:
        drawn = deck.draw(min(number, cards)).tolist()
        assert len(set(drawn)) == len(drawn)
        times.update(drawn)
        assert max(times.values()) - min(times.values()) <= 1


@FEW
@given(st.lists(st.integers(3, 20), min_size=1, max_size=20), st.integers(0, 3), st.integers(0, 9))
def test_distinct_values_are_different_and_below_the_size(
    sizes: list[int], number: int, seed: int
) -> None:
    drawn = distinct(np.array(sizes), number, np.random.default_rng(seed))
    assert drawn.shape == (len(sizes), number)
    for row, size in zip(drawn.tolist(), sizes, strict=True):
        assert len(set(row)) == number
        assert all(0 <= value < size for value in row)


def test_distinct_draws_every_subset_equally_often() -> None:
    drawn = distinct(np.full(20_000, 5), 3, np.random.default_rng(0))
    times = Counter(tuple(sorted(row)) for row in drawn.tolist())
    assert len(times) == 10
    expected, deviation = 2_000, (20_000 * 0.1 * 0.9) ** 0.5
    assert all(abs(count - expected) < 5 * deviation for count in times.values())


def test_replayed_epochs_are_reached_in_any_order() -> None:
    starts = []

    def walk() -> Iterator[list[IntArray]]:
        starts.append(1)
        generator, total = np.random.default_rng(0), np.zeros(1, dtype=np.int64)
        while True:
            total = total + generator.integers(1, 9)
            yield [total]

    epochs = Replayed(walk)
    forward = [epochs[epoch][0].item() for epoch in range(5)]
    assert forward == sorted(set(forward))
    assert len(starts) == 1, "going on costs no replay"
    assert [epochs[epoch][0].item() for epoch in (3, 1, 4)] == [forward[3], forward[1], forward[4]]


def test_class_index_counts_who_is_left_out() -> None:
    labels = np.repeat([5, -2, 9, 0], [1, 3, 2, 7])
    index = ClassIndex(np.arange(13) + 100, labels)
    assert index.classes.tolist() == [-2, 0, 5, 9]
    assert [members.tolist() for members in index.members][2] == [100]
    assert index.left_out(3, 6) == {
        "one image, no positive pair": 1,
        "fewer than 3 images": 1,
        "more than 6 images": 1,
    }
    assert index.left_out(1) == {}
