"""Turns and shares of domains, counted one by one."""

from collections import Counter

import numpy as np
import pytest

from unseen.samplers.by_domain import ByDomainSampler
from unseen.samplers.m_per_class import MPerClassSampler

LABELS = np.repeat(np.arange(18), 6)  # 12 classes of one domain, 4 of another, 2 of a third
DOMAINS = np.repeat([7, 3, 5], [72, 24, 12])
ITEMS = np.arange(108) + 1000


def domains_in(batch: list[int]) -> Counter[int]:
    return Counter(DOMAINS[np.array(batch) - 1000].tolist())


@pytest.mark.parametrize("epoch", [0, 3])
def test_domains_take_turns(epoch: int) -> None:
    sampler = ByDomainSampler(ITEMS, LABELS, 16, DOMAINS, per_class=4, steps=10, seed=2)
    sampler.set_epoch(epoch)
    batches = list(sampler)
    assert len(batches) == 10
    assert all(len(domains_in(batch)) == 1 for batch in batches)
    turns = [next(iter(domains_in(batch))) for batch in batches]
    assert all(len(set(turns[start : start + 3])) == 3 for start in (0, 3, 6))
    sizes = {domain: {len(b) for b in batches if domain in domains_in(b)} for domain in (3, 5, 7)}
    assert sizes == {7: {16}, 3: {16}, 5: {8}}  # the smallest gives all it has
    for batch in batches:
        held = Counter(LABELS[np.array(batch) - 1000].tolist())
        assert set(held.values()) == {4}


def test_mixed_batches_hold_as_much_of_each() -> None:
    sampler = ByDomainSampler(ITEMS, LABELS, 24, DOMAINS, per_class=4, batches="mixed", steps=5)
    for batch in sampler:
        assert domains_in(batch) == {7: 8, 3: 8, 5: 8}
    with pytest.raises(ValueError, match="has no room for 4 images"):
        ByDomainSampler(ITEMS, LABELS, 8, DOMAINS, batches="mixed")
    with pytest.raises(ValueError, match="batches must be one of one, mixed"):
        ByDomainSampler(ITEMS, LABELS, 8, DOMAINS, batches="both")
    with pytest.raises(ValueError, match="one for each item, got 3"):
        ByDomainSampler(ITEMS, LABELS, 8, DOMAINS[:3])


def test_one_domain_is_m_per_class() -> None:
    alone, plain = (
        ByDomainSampler(ITEMS, LABELS, 16, seed=4),
        MPerClassSampler(ITEMS, LABELS, 16, seed=4),
    )
    for epoch in (0, 1, 0):
        alone.set_epoch(epoch)
        plain.set_epoch(epoch)
        assert list(alone) == list(plain)
