"""A checkpoint is whole or it is skipped."""

from pathlib import Path

import pytest
import torch

from unseen.training.checkpoint import Checkpoints
from unseen.training.distributed import Processes


def test_the_newest_comes_back_and_only_two_are_kept(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "checkpoint")
    assert checkpoints.newest(pytest.fail) is None
    for step in (1, 20, 300):
        checkpoints.save(step, {"step": step, "weights": torch.full((3,), float(step))})
    state = checkpoints.newest(pytest.fail)
    assert state is not None
    assert state["step"] == 300
    assert torch.equal(state["weights"], torch.full((3,), 300.0))
    assert len(list((tmp_path / "checkpoint").iterdir())) == 2


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "garbage"])
def test_a_damaged_one_is_named_and_skipped(damage: str, tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, {"step": 1})
    checkpoints.save(2, {"step": 2})
    newest = tmp_path / "0000000002.pt"
    content = newest.read_bytes()
    flipped = bytearray(content)
    flipped[len(content) // 2] ^= 1
    damaged = {
        "cut": content[:-7],
        "flipped": bytes(flipped),
        "empty": b"",
        "garbage": b"x" * 99,
    }
    newest.write_bytes(damaged[damage])
    warnings: list[str] = []
    state = checkpoints.newest(warnings.append)
    assert state == {"step": 1}
    assert "0000000002.pt" in warnings[0]


def test_clear(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "checkpoint")
    checkpoints.save(1, {"step": 1})
    checkpoints.clear()
    assert not (tmp_path / "checkpoint").exists()


def test_parts_of_several_processes_lie_beside_each_other(tmp_path: Path) -> None:
    """Each writes its own; one process alone refuses to go on with a part of the centres."""
    for rank in range(2):
        checkpoints = Checkpoints(tmp_path, Processes(rank, 2), sharded=True)
        for number in range(3):
            checkpoints.save(number, {"rank": rank})
    names = [f"000000000{number}{end}" for number in (1, 2) for end in ("-1.part", ".pt")]
    assert sorted(place.name for place in tmp_path.iterdir()) == names
    with pytest.raises(ValueError, match=r"sharded over 2 processes, and 1 are started.* with 2"):
        Checkpoints(tmp_path).newest(print)
    Checkpoints(tmp_path).clear()
    assert not tmp_path.exists()


def test_the_others_of_several_like_processes_write_nothing(tmp_path: Path) -> None:
    Checkpoints(tmp_path, Processes(1, 2)).save(1, {})
    assert not list(tmp_path.iterdir())
