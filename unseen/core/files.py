"""Files on disks that fill up, lose power and rot, in folders that two processes want at once.

    replace_bytes(path, content)     readers see the old file or the new one, whatever happens
    with replacing(path) as aside:   the same, for whoever writes to a path on their own
    with new_folder(path) as aside:  a folder of many files, whole or not there
    with Lock(folder / ".lock"):     one writer at a time
    refuse_links(folder)             a folder that a stranger may have made

Every file of the toolkit that counts passes here: written aside, flushed, renamed (`os.fsync` and
`os.replace` are the two moments a crash can choose), its folder flushed.
"""

import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import socket
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path
from typing import BinaryIO, Self

Size = tuple[int, int]  # of an image: width, height
Box = tuple[int, int, int, int]  # of an image: left, top, right, bottom

CHUNK = 1 << 20
_NO_LOCKS = (errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK)
_ASIDE = re.compile(r"\..+\.[0-9a-f]{8}\.part(\.[^.]+)?")
_PATIENCE = 1.0  # seconds for an owner to write down who it is


def write_bytes(path: Path, content: bytes) -> str:
    """Writes and flushes a file that nobody knows of yet; returns its SHA-256."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    return hashlib.sha256(content).hexdigest()


def replace_bytes(path: Path, content: bytes) -> None:
    with replacing(path) as aside:
        aside.write_bytes(content)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path to write to, with the same ending; it becomes `path` when the block has come to its
    end, and nothing is left of it otherwise. Folders are made; a failure names `path`."""
    aside = path.with_name(f".{path.stem}.{uuid.uuid4().hex[:8]}.part{path.suffix}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield aside
        with aside.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(aside, path)
        flush_folder(path.parent)
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        aside.unlink(missing_ok=True)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A folder to fill, whose files are flushed by whoever writes them; it becomes `path` when the
    block has come to its end, and nothing is left of it otherwise. What a killed writer
    left goes."""
    aside = path.with_name(f".{path.name}.part")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    try:
        yield aside
        flush_folder(aside)
        os.replace(aside, path)
        flush_folder(path.parent)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def is_aside(name: str) -> bool:
    """Whether a file of this name was left by a writer that was killed (`replacing`)."""
    return _ASIDE.fullmatch(name) is not None


def refuse_links(folder: Path) -> None:
    """Raises ValueError where anything inside a folder is a symbolic link.

    Runs, studies and indexes are received from others, and whoever follows a link in one of them
    reads, writes or deletes elsewhere. The folder itself may be a link: the user named it.

    Args:
        folder: A run, study or index; it need not exist.

    Example:
        >>> refuse_links(Path("runs/received"))
    """
    todo = [os.fspath(folder)]
    while todo:
        with suppress(FileNotFoundError, NotADirectoryError), os.scandir(todo.pop()) as entries:
            for entry in entries:
                if entry.is_symlink():
                    raise ValueError(
                        f"{shown(entry.path)} is a symbolic link, which none of our folders holds "
                        "and a stranger's may: put there what it points to, or delete it"
                    )
                if entry.is_dir(follow_symlinks=False):
                    todo.append(entry.path)


def flush_folder(path: Path) -> None:
    """Makes names in a folder, new or gone, survive a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def shown(path: str | os.PathLike[str]) -> str:
    """A path as text; bytes of a name that is not UTF-8 are spelled out."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def is_text(path: str | os.PathLike[str]) -> bool:
    """Whether the bytes of a path are UTF-8, and are read so: under a locale of another encoding
    its name would be written down garbled."""
    try:
        return os.fsencode(path).decode() == os.fspath(path)
    except UnicodeError:
        return False


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


@dataclass(frozen=True)
class Owner:
    """Who holds a lock, and what for."""

    pid: int
    host: str
    since: str
    purpose: str = ""


class InUseError(ValueError):
    """Somebody else writes; `owner` is None if nothing could be learnt about them."""

    def __init__(self, place: Path, owner: Owner | None) -> None:
        who = "another process"
        if owner is not None:
            who = f"process {owner.pid} on {owner.host} since {owner.since}"
        super().__init__(
            f"{place} is being written to by {who}: wait until it has ended, or choose another "
            "place"
        )
        self.owner = owner


def lock(file: int, wait: bool = True) -> None:
    """Takes the system's lock of an opened file, which goes when the file is closed: the one place
    that asks for it (Linux, macOS). BlockingIOError: another process has it, and nobody waits."""
    fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))


@contextmanager
def locked(file: int | None) -> Iterator[None]:
    """The same while the block runs; nothing is locked where there is no file."""
    if file is None:
        yield
        return
    lock(file)
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)


class Lock:
    """One writer at a time, here and on other machines that see the same disk. The system frees the
    lock of a process that dies. purpose: told to whoever comes meanwhile. wait: until it is free,
    instead of an `InUseError`. of: what is locked, if not the folder of the lock."""

    def __init__(
        self, path: Path, purpose: str = "", wait: bool = False, of: Path | None = None
    ) -> None:
        self.path, self.purpose, self.wait, self.of = path, purpose, wait, of or path.parent

    def __enter__(self) -> Self:
        self._made_folder = not self.path.parent.exists()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        while True:
            file = self.path.open("ab+")
            try:
                self._acquire(file)
                if self._is_current(file):
                    break
            except BaseException:
                file.close()
                raise
            file.close()  # its last owner has just put it away
        own = Owner(os.getpid(), socket.gethostname(), now(), self.purpose)
        file.truncate(0)
        file.write(json.dumps(asdict(own)).encode())
        file.flush()
        self._file = file
        return self

    def __exit__(self, *_: object) -> None:
        self.path.unlink(missing_ok=True)
        if self._made_folder:
            with suppress(OSError):  # something was written there
                self.path.parent.rmdir()
        self._file.close()

    def _acquire(self, file: BinaryIO) -> None:
        try:
            lock(file.fileno(), self.wait)
        except BlockingIOError as error:
            raise InUseError(self.of, _owner(file)) from error
        except OSError as error:
            if error.errno in _NO_LOCKS:
                message = "this disk knows no locks, so two runs could mix: choose another one"
                raise OSError(error.errno, message, str(self.of)) from error
            raise

    def _is_current(self, file: BinaryIO) -> bool:
        """Whether what was locked still lies there."""
        try:
            return os.path.samestat(os.fstat(file.fileno()), os.stat(self.path))
        except FileNotFoundError:
            return False


def _owner(file: BinaryIO) -> Owner | None:
    """What the owner wrote down, which it does right after it got the lock."""
    patience = time.monotonic() + _PATIENCE
    while time.monotonic() < patience:
        file.seek(0)
        with suppress(ValueError, TypeError):
            return Owner(**json.loads(file.read()))
        time.sleep(0.01)
    return None


class UnreadableImageError(ValueError):
    """An image that cannot be used. `path` says which, `reason` why. A run goes on without it."""

    def __init__(self, path: str | PathLike[str], reason: str) -> None:
        super().__init__(f"cannot read image {shown(path)}: {reason}")
        self.path, self.reason = path, reason

    @property
    def line(self) -> str:
        """Which file, and why."""
        return f"{shown(self.path)} ({self.reason})"
