"""Hard neighbours: who joins a seed, by a slow search; what a batch always has; batches of a search
beside the training count by steps, not by the clock, also after a stop."""

import threading
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from unseen.core.contracts import IntArray
from unseen.samplers.hard_neighbors import HardNeighborsSampler

SIZES = [3, 6, 2, 4, 5, 3, 7, 2, 4, 3, 1]
ClassesOf = Callable[..., tuple[IntArray, IntArray]]


def embeddings(number: int, seed: int = 0) -> Tensor:
    return torch.randn(number, 3, generator=torch.Generator().manual_seed(seed))


def made(data: tuple[IntArray, IntArray], **given: Any) -> HardNeighborsSampler:
    values = {"batch_size": 12, "per_class": 2, "neighbors": 2} | given
    sampler = HardNeighborsSampler(*data, **values)
    sampler.fill(embeddings(len(data[0])))
    return sampler


def batches_of(sampler: HardNeighborsSampler, epoch: int) -> list[list[int]]:
    sampler.set_epoch(epoch)
    return list(sampler)


def slow_neighbors(
    rows: Tensor, labels: IntArray, seed: int, taken: set[int], skip: int, raw: bool
) -> Iterator[tuple[int, int]]:
    """The wrong classes of a seed that are free, nearest first, and the nearest item of each."""
    best: dict[int, tuple[float, int]] = {}
    sizes = {int(label): int((labels == label).sum()) for label in labels}
    for item, label in enumerate(labels.tolist()):
        if label != labels[seed] and sizes[label] > 1:
            x, y = rows[seed].double(), rows[item].double()
            near = float(-(x - y).norm()) if raw else float(x @ y / x.norm() / y.norm())
            best[label] = max((near, item), best.get(label, (-np.inf, -1)))
    order = sorted(best, key=lambda label: -best[label][0])
    yield from ((label, best[label][1]) for label in order[skip:] if label not in taken)


@pytest.mark.parametrize("raw", [False, True])
@pytest.mark.parametrize(("neighbors", "skip"), [(2, 0), (2, 3), (3, 1), (5, 0), (9, 4)])
def test_seeds_are_joined_by_their_nearest_wrong_classes(
    raw: bool, neighbors: int, skip: int, classes_of: ClassesOf
) -> None:
    """Groups come in order: a seed, then what joins it."""
    items, labels = classes_of(SIZES)
    sampler = made((items, labels), neighbors=neighbors, skip=skip, normalize=not raw)
    rows, place = embeddings(len(items)), {int(item): at for at, item in enumerate(items)}
    for epoch in range(3):
        for batch in batches_of(sampler, epoch):
            heads = [place[item] for item in batch[::2]]
            num_seeds = -(-6 // (1 + neighbors))
            starts = [number * (1 + neighbors) for number in range(num_seeds)]
            taken = {int(labels[heads[start]]) for start in starts}
            for start in starts:
                joined = heads[start + 1 : start + 1 + neighbors]
                result = slow_neighbors(rows, labels, heads[start], taken, skip, raw)
                expected = [next(result)[::-1] for _ in joined]
                assert [(at, int(labels[at])) for at in joined] == expected
                taken.update(label for _, label in expected)


def test_a_batch_has_exactly_so_many_of_each_class(classes_of: ClassesOf) -> None:
    items, labels = classes_of(SIZES)
    sampler = made((items, labels), batch_size=24, per_class=4, neighbors=1)
    label_of = dict(zip(items.tolist(), labels.tolist(), strict=True))
    for batch in batches_of(sampler, 1):
        groups = np.reshape([label_of[item] for item in batch], (6, 4))
        assert (groups == groups[:, :1]).all()
        assert len(np.unique(groups[:, 0])) == 6
        sizes = [int((labels == label).sum()) for label in groups[:, 0]]
        distinct = [len(set(batch[4 * k : 4 * k + 4])) for k in range(6)]
        assert distinct == [min(4, size) for size in sizes], "small classes repeat, others do not"
    assert sampler.left_out() == {"one image, no positive pair": 1}
    assert sampler.describe()["left_out"] == sampler.left_out()


def test_every_class_is_a_seed_in_turn(classes_of: ClassesOf) -> None:
    items, labels = classes_of([4] * 12)
    sampler = made((items, labels), batch_size=16, per_class=2, neighbors=3)  # 2 seeds, 3 steps
    label_of = dict(zip(items.tolist(), labels.tolist(), strict=True))
    seeds = [label_of[batch[at]] for batch in batches_of(sampler, 0) for at in (0, 8)]
    assert len(set(seeds)) == 6


def walked(
    sampler: HardNeighborsSampler, first: int = 0, last: int | None = None
) -> list[list[int]]:
    """The batches of an epoch as a loader takes them, two ahead of the steps, each told after its
    step with embeddings that depend on the step alone."""
    waiting, seen = [], []
    for number, batch in enumerate(sampler):
        waiting += [(number, batch)]
        while len(waiting) > 2 or (waiting and number + 1 == len(sampler)):
            step, indices = waiting.pop(0)
            if step < first:
                continue
            seen.append(indices)
            sampler.update(torch.tensor(indices), embeddings(len(indices), 100 + step))
            if step + 1 == last:
                return seen
    return seen


def begun(sampler: HardNeighborsSampler, epoch: int) -> list[list[int]]:
    """The batches of an epoch that are searched when it begins."""
    sampler.set_epoch(epoch)
    return list(islice(sampler, 6))


def test_a_search_beside_the_training_counts_by_steps(classes_of: ClassesOf) -> None:
    """With a search after every 3 steps of 12, batches 6 to 8 are those of an epoch that begins
    with the embeddings after step 3, 9 to 11 with those after step 6."""
    data = classes_of([12] * 12)
    whole = walked(made(data, search_every=3))
    for first, message in ((6, 3), (9, 6)):
        sampler = made(data)
        for step in range(message):
            sampler.update(torch.tensor(whole[step]), embeddings(12, 100 + step))
        again = sampler._searched(sampler._rows(), 0, first, 3)
        assert [batch.tolist() for batch in again] == whole[first : first + 3]
    assert whole[:6] != walked(made(data))[:6], "fewer batches share a search"


def test_batches_wait_for_a_slow_search(
    classes_of: ClassesOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = classes_of([12] * 12)
    expected = walked(made(data, search_every=3))
    sampler, search, go_on = (
        made(data, search_every=3),
        HardNeighborsSampler._searched,
        threading.Event(),
    )

    def slow(self: Any, rows: Tensor, epoch: int, first: int, number: int) -> Any:
        if first:
            assert go_on.wait(timeout=60)
        return search(self, rows, epoch, first, number)

    monkeypatch.setattr(HardNeighborsSampler, "_searched", slow)
    timer = threading.Timer(0.02, go_on.set)
    timer.start()
    assert walked(sampler) == expected


@pytest.mark.parametrize("stop", [2, 3, 5, 8, 11])
def test_a_stop_at_any_step_changes_nothing(stop: int, classes_of: ClassesOf) -> None:
    data = classes_of([12] * 12)
    whole = made(data, search_every=3)
    expected = [walked(whole), *begun(whole, 1)]
    sampler = made(data, search_every=3)
    seen = walked(sampler, last=stop)
    resumed = HardNeighborsSampler(*data, 12, 2, 2, search_every=3)
    resumed.load_state_dict(sampler.state_dict())
    assert [seen + walked(resumed, first=stop), *begun(resumed, 1)] == expected


def test_batches_requested_too_early_are_refused(classes_of: ClassesOf) -> None:
    with pytest.raises(ValueError, match=r"more than 3 steps ahead.*raise sampler\.search_every"):
        list(made(classes_of([12] * 12), search_every=3))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"neighbors": 0}, "neighbors must be 1 or more.*neighbors=0"),
        ({"skip": -1}, "skip and search_every 0 or more.*skip=-1"),
        ({"search_every": -1}, "search_every=-1"),
        ({"skip": 5}, r"beside skip=5 needs .* there are 10: lower skip"),
        ({"batch_size": 24}, "needs 12 classes"),
    ],
)
def test_bad_values(given: dict[str, int], message: str, classes_of: ClassesOf) -> None:
    with pytest.raises(ValueError, match=message):
        made(classes_of(SIZES), **given)
