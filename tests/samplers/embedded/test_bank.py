"""The memory bank: rows by data set position, the last of two writes, strangers refused."""

import numpy as np
import pytest
import torch

from unseen.samplers.embedded.bank import MemoryBank

ITEMS = np.array([40, 7, 19, 3])


def filled() -> MemoryBank:
    bank = MemoryBank(ITEMS)
    bank.fill(torch.arange(8.0).view(4, 2), epoch=0)
    return bank


def test_rows_follow_the_items_not_their_order() -> None:
    bank = filled()
    bank.update(torch.tensor([19, 40]), torch.tensor([[5.0, 5.0], [9.0, 9.0]]))
    rows = bank.read(np.arange(4), normalize=False)
    assert rows.tolist() == [[9, 9], [2, 3], [5, 5], [6, 7]]


def test_the_last_of_two_writes_stays() -> None:
    bank = filled()
    rows = torch.arange(100.0)[:, None].repeat(1, 2)
    bank.update(torch.tensor([7, 3]).repeat(50), rows)
    assert bank.read(np.array([1, 3]), normalize=False).tolist() == [[98, 98], [99, 99]]


def test_what_the_bank_keeps_has_no_graph_and_is_its_own_copy() -> None:
    bank, embeddings = MemoryBank(ITEMS), torch.ones(4, 2, requires_grad=True)
    bank.fill(embeddings, epoch=0)
    with torch.no_grad():
        embeddings += 1
    bank.update(torch.tensor([7]), torch.full((1, 2), 3.0, requires_grad=True))
    rows = bank.read(np.arange(4), normalize=False)
    assert rows.tolist() == [[1, 1], [3, 3], [1, 1], [1, 1]]
    assert not rows.requires_grad


def test_half_precision_is_stored_as_float32_and_rows_can_be_unit() -> None:
    bank = filled()
    bank.update(torch.tensor([3]), torch.tensor([[3.0, 4.0]], dtype=torch.bfloat16))
    torch.testing.assert_close(bank.read(np.array([3]), normalize=True), torch.tensor([[0.6, 0.8]]))


def test_strangers_and_an_empty_bank_are_refused() -> None:
    with pytest.raises(ValueError, match=r"not among the sampler's: \[8\]"):
        filled().update(torch.tensor([7, 8]), torch.zeros(2, 2))
    with pytest.raises(ValueError, match="no embeddings yet"):
        MemoryBank(ITEMS).update(torch.tensor([7]), torch.zeros(1, 2))


def test_state_round_trip() -> None:
    bank, again = filled(), MemoryBank(ITEMS)
    state = bank.state_dict()
    again.load_state_dict(state)
    bank.update(torch.tensor([40]), torch.full((1, 2), -1.0))
    assert again.read(np.arange(4), normalize=False).tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert again.filled_in == 0
