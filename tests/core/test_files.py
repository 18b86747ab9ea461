"""A file is the old one or the new one; a folder has one writer, and the next one is told who."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from unseen.cli import entry_point
from unseen.core import files
from unseen.core.files import InUseError, Lock

HOLDER = """
import sys, time
from pathlib import Path
from unseen.core.files import Lock
with Lock(Path(sys.argv[1]), "to hold it"):
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    files.replace_bytes(tmp_path / "new" / "note.txt", b"one")
    files.replace_bytes(tmp_path / "new" / "note.txt", b"two")
    assert (tmp_path / "new" / "note.txt").read_bytes() == b"two"
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["note.txt"]


@pytest.mark.parametrize("moment", ["fsync", "replace"])
def test_a_failure_at_either_moment_leaves_the_old_file_and_names_it(
    moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "note.txt"
    files.replace_bytes(place, b"old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, moment, full)
    with pytest.raises(OSError, match="No space left") as caught:
        files.replace_bytes(place, b"new")
    assert caught.value.filename == str(place)
    assert place.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["note.txt"]


def test_a_file_is_flushed_before_it_gets_its_name_and_its_folder_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moments: list[str] = []
    flush, rename = os.fsync, os.replace

    def fsync(handle: int) -> None:
        moments.append("folder" if os.path.isdir(f"/proc/self/fd/{handle}") else "file")
        flush(handle)

    def replace(source: Path, target: Path) -> None:
        moments.append("rename")
        rename(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    files.replace_bytes(tmp_path / "note.txt", b"new")
    assert moments == ["file", "rename", "folder"]


@pytest.mark.parametrize("moment", ["fsync", "replace"])
def test_a_folder_is_there_whole_or_not_at_all(
    moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    place = tmp_path / "new" / "folder"
    (place.parent / ".folder.part").mkdir(parents=True)  # of a writer that was killed
    (place.parent / ".folder.part" / "stale").touch()
    with monkeypatch.context() as broken:
        broken.setattr(os, moment, full)
        with pytest.raises(OSError, match="No space left"), files.new_folder(place) as aside:
            (aside / "one").write_text("1")
    assert list(place.parent.iterdir()) == []
    with files.new_folder(place) as aside:
        (aside / "one").write_text("1")
        assert not place.exists()
    assert [path.name for path in place.rglob("*")] == ["one"]
    assert list(place.parent.iterdir()) == [place]


def test_the_second_writer_learns_who_writes(tmp_path: Path) -> None:
    place = tmp_path / "run" / ".lock"
    with Lock(place, "training"), pytest.raises(InUseError, match="by process") as caught:
        Lock(place).__enter__()
    owner = caught.value.owner
    assert owner is not None
    assert (owner.pid, owner.host, owner.purpose) == (os.getpid(), socket.gethostname(), "training")
    assert str(os.getpid()) in str(caught.value)
    assert str(tmp_path / "run") in str(caught.value)


def test_a_lock_leaves_nothing_behind(tmp_path: Path) -> None:
    with Lock(tmp_path / "run" / ".lock"):
        pass
    assert not list(tmp_path.iterdir())
    with Lock(tmp_path / "run" / ".lock"):
        (tmp_path / "run" / "note").touch()
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["note"]


def test_a_dead_owners_lock_is_taken_over(tmp_path: Path) -> None:
    place = tmp_path / ".lock"
    command = [sys.executable, "-c", HOLDER, str(place)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(InUseError) as caught:
            Lock(place).__enter__()
        assert caught.value.owner is not None
        assert caught.value.owner.pid == holder.pid
        holder.send_signal(signal.SIGKILL)
    assert place.exists(), "it was killed, and could not put its lock away"
    with Lock(place):
        pass
    assert not place.exists()


def test_a_disk_without_locks_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(files.fcntl, "flock", unknown)
    with pytest.raises(OSError, match="knows no locks"):
        Lock(tmp_path / ".lock").__enter__()


def test_a_name_read_in_another_encoding_is_not_text(monkeypatch: pytest.MonkeyPatch) -> None:
    assert files.is_text("Caf\u00e9/1.jpg")
    assert not files.is_text("Caf\udce9/1.jpg")  # bytes that are no UTF-8
    monkeypatch.setattr(os, "fsencode", lambda path: str(path).encode("iso-8859-1"))
    assert files.is_text("Cafe/1.jpg")
    assert not files.is_text("Caf\u00c3\u00a9/1.jpg")  # UTF-8, read as Latin-1


@pytest.mark.parametrize("encoding", ["iso8859-1", "ascii"])
def test_the_command_line_reads_names_as_utf8(
    encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[list[str]] = []
    monkeypatch.setattr(sys, "getfilesystemencoding", lambda: encoding)
    monkeypatch.setattr(sys, "orig_argv", ["python", "-m", "unseen", "index"])
    monkeypatch.setattr(os, "execv", lambda _, words: called.append(words) or sys.exit(7))
    with pytest.raises(SystemExit, match="7"):
        entry_point.run()
    assert called == [[sys.executable, "-X", "utf8", "-m", "unseen", "index"]]


def test_a_name_typed_in_a_locale_without_utf8_arrives_whole(tmp_path: Path) -> None:
    environment = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    words = [sys.executable, "-m", "unseen", "index", "verify", "Caf\u00e9"]
    ended = subprocess.run(words, env=environment, capture_output=True, cwd=tmp_path, check=False)
    assert ended.returncode == 1
    assert "Caf\u00e9 is no index" in " ".join((ended.stdout + ended.stderr).decode().split())
