"""What every batch sampler promises, for every name in the catalogue: a new file is covered by
being
there. A sampler whose batches may be smaller says so in `fills_batches`."""

import io
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils.data import DataLoader

from unseen.config import build
from unseen.config.tables import Component
from unseen.core import registry
from unseen.core.relevance import KINDS, Relevance
from unseen.samplers.base import BatchSampler
from unseen.samplers.embedded.base import EmbeddedSampler

NAMES = registry.names("samplers")
EMBEDDED = [n for n in NAMES if issubclass(registry.find("samplers", n), EmbeddedSampler)]
VARIANTS = [
    (name, preset) for name in NAMES for preset in (None, *registry.entry("samplers", name).presets)
]
SIZES = [12, 15, 10, 11, 12, 14, 10, 13, 17, 10, 10, 16] * 2
FEW = settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def make(
    name: str,
    data: tuple[Any, Any],
    batch_size: int = 20,
    seed: int = 0,
    preset: str | None = None,
    **given: Any,
) -> Any:
    """The sampler, and for an embedded one a bank of random embeddings."""
    items, labels = data
    context = {"items": items, "labels": labels, "batch_size": batch_size, "seed": seed}
    sampler = registry.create("samplers", name, given, preset, **context)
    if isinstance(sampler, EmbeddedSampler):
        draw = torch.Generator().manual_seed(3)
        sampler.fill(torch.randn(len(items), 6, generator=draw))
    return sampler


def epoch_of(sampler: BatchSampler, epoch: int) -> list[list[int]]:
    sampler.set_epoch(epoch)
    return list(sampler)


@pytest.mark.parametrize(("name", "preset"), VARIANTS)
def test_batches_hold_known_items_and_are_as_many_as_promised(
    name: str, preset: str | None, classes_of: Callable[..., Any]
) -> None:
    data = classes_of(SIZES)
    sampler = make(name, data, batch_size=40, preset=preset)
    batches = list(sampler)
    assert len(batches) == len(sampler) == len(data[0]) // 40
    for batch in batches:
        assert set(batch) <= set(data[0].tolist())
        assert all(type(position) is int for position in batch)
        assert len(batch) == 40 or (not sampler.fills_batches and 2 <= len(batch) < 40)


@pytest.mark.parametrize(("name", "preset"), VARIANTS)
def test_seed_and_epoch_decide_the_batches(
    name: str, preset: str | None, classes_of: Callable[..., Any]
) -> None:
    data = classes_of(SIZES)
    one, two = (make(name, data, batch_size=40, preset=preset) for _ in range(2))
    other = make(name, data, batch_size=40, preset=preset, seed=1)
    later = epoch_of(one, 3)
    assert epoch_of(two, 3) == later
    assert epoch_of(one, 0) == epoch_of(two, 0) != later, "going back gives the same"
    assert epoch_of(one, 3) == later
    assert epoch_of(other, 3) != later


@pytest.mark.parametrize("name", NAMES)
def test_global_random_state_is_neither_read_nor_moved(
    name: str, classes_of: Callable[..., Any]
) -> None:
    data = classes_of(SIZES)
    before = torch.random.get_rng_state()
    np.random.seed(5)  # noqa: NPY002 - whether anybody listens is the question
    first = list(make(name, data))
    np.random.seed(6)  # noqa: NPY002
    assert list(make(name, data)) == first
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize("name", NAMES)
def test_describe_counts_what_is_drawn(name: str, classes_of: Callable[..., Any]) -> None:
    items, labels = classes_of([*SIZES, 1, 2])
    sampler = make(name, (items, labels))
    sampler.set_epoch(2)
    message, batches = sampler.describe(), list(sampler)
    label_of = dict(zip(items.tolist(), labels.tolist(), strict=True))
    times = Counter(position for batch in batches for position in batch)
    assert message["batches"] == len(batches)
    assert (message["images"], message["classes"]) == (len(items), 26)
    assert message["images_drawn"] == len(times)
    assert message["most_draws_of_an_image"] == max(times.values())
    assert message["classes_drawn"] == len({label_of[position] for position in times})
    assert message["fewest_classes_in_a_batch"] == min(
        len({label_of[p] for p in b}) for b in batches
    )
    assert message["batches_with_a_repeat"] == sum(len(set(b)) < len(b) for b in batches)
    drawable = 26 - sum(message["left_out"].values())
    assert message["classes_drawn"] <= drawable


@pytest.mark.parametrize("name", NAMES)
def test_a_stopped_epoch_goes_on_as_it_would_have(
    name: str, classes_of: Callable[..., Any]
) -> None:
    """Stop in the middle of epoch 1; embeddings have changed meanwhile, the epoch's batches have
    not."""
    data = classes_of(SIZES)
    sampler = make(name, data)
    epoch_of(sampler, 0)
    whole = epoch_of(sampler, 1)
    if name in EMBEDDED:
        sampler.update(
            torch.from_numpy(data[0][:30]),
            torch.randn(30, 6, generator=torch.Generator().manual_seed(0)),
        )
    stored = io.BytesIO()
    torch.save(sampler.state_dict(), stored)
    stored.seek(0)
    resumed = registry.create(
        "samplers", name, items=data[0], labels=data[1], batch_size=20, seed=0
    )
    resumed.load_state_dict(torch.load(stored, weights_only=True))
    assert resumed.epoch == 1
    assert epoch_of(resumed, 1) == whole
    assert epoch_of(resumed, 2) == epoch_of(sampler, 2)


@pytest.mark.parametrize("name", NAMES)
def test_is_a_batch_sampler_of_a_loader(name: str, classes_of: Callable[..., Any]) -> None:
    sampler = make(name, classes_of(SIZES))
    numbers = torch.arange(3 * sum(SIZES))
    loaded = [batch.tolist() for batch in DataLoader(numbers, batch_sampler=sampler)]  # type: ignore[arg-type]
    assert loaded == list(sampler)


@pytest.mark.parametrize("name", NAMES)
def test_bad_values_are_named(name: str, classes_of: Callable[..., Any]) -> None:
    items, labels = classes_of(SIZES)
    with pytest.raises(ValueError, match="batch_size must be at least 2, got 1"):
        make(name, (items, labels), batch_size=1)
    with pytest.raises(ValueError, match="items and labels must be equally many"):
        make(name, (items, labels[1:]))
    with pytest.raises(ValueError, match="seed must be 0 or more"):
        make(name, (items, labels), seed=-1)


@FEW
@given(
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=9),
    half_batch=st.integers(1, 8),
    seed=st.integers(0, 99),
    epoch=st.integers(0, 2),
)
@pytest.mark.parametrize("name", NAMES)
def test_any_data_gives_batches_or_a_reason(
    name: str,
    classes_of: Callable[..., Any],
    sizes: list[int],
    half_batch: int,
    seed: int,
    epoch: int,
) -> None:
    data = classes_of(sizes, seed)
    batch_size = 2 * half_batch
    takes = {p.name for p in registry.parameters(registry.find("samplers", name))}
    values = {"per_class": 2} if "per_class" in takes else {}
    try:
        sampler = make(name, data, batch_size, seed, **values)
    except ValueError as error:
        assert str(batch_size) in str(error) or "class" in str(error)  # noqa: PT017
        return
    batches = epoch_of(sampler, epoch)
    assert len(batches) == len(sampler) >= 1
    for batch in batches:
        assert set(batch) <= set(data[0].tolist())
        assert len(batch) == batch_size or (not sampler.fills_batches and len(batch) < batch_size)
    sampler.describe()


@pytest.mark.parametrize("name", EMBEDDED)
def test_embedded_samplers_need_a_bank_and_say_when(
    name: str, classes_of: Callable[..., Any]
) -> None:
    items, labels = classes_of(SIZES)
    sampler = registry.create(
        "samplers", name, {"refresh_every": 2}, items=items, labels=labels, batch_size=20, seed=0
    )
    assert sampler.is_due()
    with pytest.raises(ValueError, match=r"call fill\(embeddings\) before the first epoch"):
        list(sampler)
    with pytest.raises(ValueError, match=r"one row for each of 300 items, got .* \(5, 6\)"):
        sampler.fill(torch.zeros(5, 6))
    due = []
    for epoch in range(5):
        sampler.set_epoch(epoch)
        due.append(sampler.is_due())
        if due[-1]:
            sampler.fill(torch.randn(len(items), 6, generator=torch.Generator().manual_seed(0)))
        list(sampler)
    assert due == [True, False, True, False, True]


@pytest.mark.parametrize("name", EMBEDDED)
def test_embedded_samplers_look_at_the_bank_once_an_epoch(
    name: str, classes_of: Callable[..., Any]
) -> None:
    items, labels = classes_of(SIZES)
    moved, still = make(name, (items, labels)), make(name, (items, labels))
    assert list(moved) == list(still)
    draw = torch.Generator().manual_seed(8)
    for sampler in (moved, still):
        fresh = torch.randn(len(items), 6, generator=draw)
        sampler.update(torch.from_numpy(items), fresh)
    assert list(moved) == list(still), "an epoch's batches are fixed when it begins"
    assert epoch_of(moved, 1) != epoch_of(still, 1), "the next epoch sees the new embeddings"


def of_relevance(name: str, relevance: Relevance, **values: Any) -> Any:
    """The sampler of a run whose training items are some of all."""
    config: Any = SimpleNamespace(
        sampler=Component(name=name, **values),
        training=SimpleNamespace(batch_size=12, seed=0),
        evaluation=SimpleNamespace(normalize=True),
    )
    assert relevance.classes is not None
    return build.sampler(config, TRAINED_ON, relevance.classes.numpy(), relevance)


TRAINED_ON = np.random.default_rng(4).permutation(60)[:48]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMES)
def test_every_kind_of_relevance_is_drawn_or_refused(
    name: str, kind: str, kinds: Callable[[Tensor], dict[str, Relevance]]
) -> None:
    """An item may stand in several groups: what is told of an epoch counts items."""
    relevance = kinds(torch.arange(60) % 10)[kind]
    if name in EMBEDDED and not relevance.has_classes:
        with pytest.raises(ValueError, match=rf"{name} .*kind={kind}; the samplers that can: .*ra"):
            of_relevance(name, relevance)
        return
    one, two = (of_relevance(name, relevance) for _ in range(2))
    for sampler in (one, two) if name in EMBEDDED else ():
        sampler.fill(torch.randn(48, 6, generator=torch.Generator().manual_seed(3)))
    batches = epoch_of(one, 2)
    assert batches == epoch_of(two, 2)
    assert len(batches) == len(one) >= 1
    drawable = set(relevance.drawn(TRAINED_ON, relevance.classes.numpy()[TRAINED_ON])[0].tolist())  # type: ignore[union-attr]
    assert drawable <= set(TRAINED_ON.tolist())
    for batch in batches:
        assert set(batch) <= drawable
        assert len(batch) == 12 or (not one.fills_batches and 2 <= len(batch) < 12)
    message, times = one.describe(), Counter(item for batch in batches for item in batch)
    assert (message["images"], message["images_drawn"]) == (len(drawable), len(times))
    assert message["most_draws_of_an_image"] == max(times.values())
    assert message["batches_with_a_repeat"] == sum(len(set(b)) < len(b) for b in batches)
    assert message["classes_drawn"] <= message["classes"]
    if name == "random":  # nobody twice in an epoch, whatever he is labelled
        assert max(times.values()) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_drawn_together_belongs_together(
    kind: str, kinds: Callable[[Tensor], dict[str, Relevance]]
) -> None:
    """Two by two: the same, or a listed pair."""
    relevance = kinds(torch.arange(60) % 10)[kind]
    for batch in of_relevance("m_per_class", relevance, per_class=2):
        for one, two in torch.tensor(batch).reshape(-1, 2):
            relation = relevance.relate(one, two)
            assert one != two
            if kind == "pairs":
                assert relation.same or relation.different
            else:
                assert relation.grade > 0 if kind == "graded" else relation.same
