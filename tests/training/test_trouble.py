"""A full disk, a read-only folder, no memory: one clear line, and what was kept stays whole."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.conftest import CANNOT
from unseen.cli.user_errors import guarded
from unseen.training.checkpoint import Checkpoints

ON_A_SMALL_DISK = """
import sys, torch
from pathlib import Path
from unseen.cli.user_errors import guarded
from unseen.training.checkpoint import Checkpoints
from unseen.training.run_folder import RunFolder

place = Path(sys.argv[1])
checkpoints, small = Checkpoints(place / "checkpoint"), {"weights": torch.ones(1000)}

def fill():
    checkpoints.save(1, small)
    RunFolder(place).write_tensors("weights.safetensors", small)
    large = {"weights": torch.zeros(1_000_000)}
    if sys.argv[2] == "weights":
        RunFolder(place).write_tensors("weights.safetensors", large)
    checkpoints.save(2, large)

try:
    guarded(fill)
finally:
    kept = checkpoints.newest(print)
    assert torch.equal(kept["weights"], small["weights"])
    weights = RunFolder(place).read_tensors("weights.safetensors")
    assert torch.equal(weights["weights"], small["weights"])
    assert not list(place.rglob(".*"))
    print("whole")
"""


def in_own_mounts(script: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Runs a shell script where mounts are its own; skips where that is not allowed."""
    if shutil.which("unshare") is None:
        pytest.skip(f"{CANNOT}: it has no unshare")
    command = ["unshare", "--map-root-user", "--mount", "sh", "-ec"]

    def done(*script: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*command, *script], check=False, capture_output=True, text=True)

    if done("mount -t tmpfs tmpfs /mnt").returncode:
        pytest.skip(f"{CANNOT}: no right to mount a small disk")
    return done(script, "sh", *words)


@pytest.mark.parametrize("file", ["checkpoint", pytest.param("weights", marks=pytest.mark.slow)])
def test_a_full_disk_keeps_what_was_whole(file: str, tmp_path: Path) -> None:
    script = 'mount -t tmpfs -o size=1m tmpfs "$1"; exec "$2" -c "$3" "$1" "$4"'
    done = in_own_mounts(script, str(tmp_path), sys.executable, ON_A_SMALL_DISK, file)
    assert done.stdout.strip() == "whole", done.stderr
    assert done.returncode == 2
    assert done.stderr.startswith("unseen: No space left on device: ")
    assert "The last checkpoint is whole: make room" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_read_only_folder_is_one_line(tmp_path: Path) -> None:
    script = 'mount -t tmpfs -o ro tmpfs "$1"; exec "$2" -m unseen train glyphs --out "$1/run" $3'
    words = "data.max_classes=24 data.size=16 epochs=1 batch_size=16 sampler.steps=1"
    done = in_own_mounts(script, str(tmp_path), sys.executable, words)
    assert done.returncode == 2, done.stderr
    assert done.stderr.strip().splitlines()[-1].startswith("unseen: Read-only file system: ")
    assert "--out" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
    ],
)
def test_no_memory_is_one_line(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise error

    with pytest.raises(SystemExit):
        guarded(fail)
    message = capsys.readouterr().err
    assert message.startswith("unseen: not enough memory: choose a smaller batch_size")


def test_other_errors_keep_their_traceback() -> None:
    def fail() -> None:
        raise RuntimeError("a mistake of ours")

    with pytest.raises(RuntimeError, match="a mistake of ours"):
        guarded(fail)


def test_a_checkpoint_that_fails_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, {"step": 1})

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        checkpoints.save(2, {"step": 2})
    assert checkpoints.newest(print) == {"step": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["0000000001.pt"]
