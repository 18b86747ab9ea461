"""What can go wrong with a process and with a file, and what became of it.

ended = forked(action)                 a command in a process of its own
with_death(os, "replace", 3)           from now on the third call kills this process
with_full_disk(3)                      from now on the third flush finds the disk full
flip(path, place, bit)   cut(path)   lose(path)
"""

import contextlib
import dataclasses
import errno
import hashlib
import io
import json
import os
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from unseen.cli.user_errors import guarded

IDENTICAL, NAMED, ABSENT = "identical", "named in one line", "as if never made"
UNNAMED, DIFFERENT, TRACEBACK = "a line without the file", "silently different", "traceback"
OUTCOMES = (IDENTICAL, NAMED, ABSENT, UNNAMED, DIFFERENT, TRACEBACK)  # from good to bad
GOOD = (IDENTICAL, NAMED, ABSENT)


@dataclass(frozen=True)
class Ended:
    """How a process ended: its exit code (minus the signal's number), its last words, its value."""

    code: int
    errors: str
    value: Any = None

    @property
    def was_killed(self) -> bool:
        return self.code == -signal.SIGKILL

    @property
    def is_one_line(self) -> bool:
        message = [line for line in self.errors.splitlines() if line.startswith("unseen")]
        return self.code == 2 and len(message) == 1 and "Traceback" not in self.errors


def forked(action: Callable[[], Any], seconds: float | None = None) -> Ended:
    """Runs an action as the command line would, in a process of its own, which is killed after so
    many seconds; its value must be JSON."""
    return waited_for(begun(action), seconds)


def begun(action: Callable[[], Any]) -> tuple[int, Path]:
    """A process that runs an action; its number, and where it writes."""
    place = Path(tempfile.mkdtemp(prefix="process-"))
    child = os.fork()
    if child:
        return child, place
    code = 1
    try:
        errors = (place / "errors").open("w")
        os.dup2(errors.fileno(), 2)
        sys.stderr = errors
        warnings.simplefilter("ignore")
        with contextlib.redirect_stdout(io.StringIO()):
            guarded(lambda: (place / "value").write_text(json.dumps(action())))
        code = 0
    except SystemExit as ended:
        code = int(ended.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def waited_for(process: tuple[int, Path], seconds: float | None = None) -> Ended:
    child, place = process
    if seconds is not None:
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    value = (place / "value").read_text() if (place / "value").exists() else ""
    errors = (place / "errors").read_text(errors="replace") if (place / "errors").exists() else ""
    for file in place.iterdir():
        file.unlink()
    place.rmdir()
    return Ended(code, errors, json.loads(value) if value and not code else None)


def with_death(owner: Any, name: str, number: int) -> None:
    """The call as it was, but its `number`-th time, which kills this process."""
    call, calls = getattr(owner, name), iter(range(1, 10**9))

    def counted(*given: Any, **named: Any) -> Any:
        if next(calls) == number:
            die()
        return call(*given, **named)

    setattr(owner, name, counted)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def with_full_disk(number: int) -> None:
    """From the `number`-th flush on, nothing more can be written."""
    flush, calls = os.fsync, iter(range(1, 10**9))

    def full(handle: Any) -> None:
        if next(calls) >= number:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        flush(handle)

    os.fsync = full


def flip(path: Path, place: int = -1, bit: int = 0) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1 << bit
    path.write_bytes(content)


def cut(path: Path, fraction: float = 0.5) -> None:
    """What a short write leaves."""
    os.truncate(path, int(path.stat().st_size * fraction))


def lose(path: Path) -> None:
    path.unlink()


def read_by(readers: Mapping[str, Callable[[], Any]]) -> dict[str, list[str]]:
    """What every reader gets: ["value", its digest], ["line", an error] or ["traceback", ...]."""
    result = {}
    for name, reader in readers.items():
        try:
            result[name] = ["value", digest(reader())]
        except (ValueError, OSError, FloatingPointError, MemoryError) as error:
            result[name] = ["line", f"{type(error).__name__}: {error}"]
        except Exception as error:
            message = traceback.extract_tb(error.__traceback__)[-1]
            result[name] = ["traceback", f"{error!r} at {message.filename}:{message.lineno}"]
    return result


def digest(value: Any) -> str:
    return hashlib.sha256(_spelled(value).encode()).hexdigest()


def _spelled(value: Any) -> str:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _spelled({f.name: getattr(value, f.name) for f in dataclasses.fields(value)})
    if isinstance(value, Mapping):
        return "{" + ", ".join(sorted(f"{k!r}: {_spelled(v)}" for k, v in value.items())) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_spelled, value)) + "]"
    if isinstance(value, torch.Tensor):
        value = value.numpy()
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {value.shape} {hashlib.sha256(value.tobytes()).hexdigest()}"
    return repr(value)


def evaluated(
    ended: Ended, whole: Mapping[str, list[str]], names: tuple[str, ...]
) -> tuple[str, str]:
    """The worst that a process or one of its readers made of a fault, and its words; a line counts
    as such if it has one of the names."""
    if ended.code not in (0, 2):
        return TRACEBACK, ended.errors[-600:] or f"code {ended.code}"
    if ended.code == 2:
        if not ended.is_one_line:
            return TRACEBACK, ended.errors[-600:]
        return _line(ended.errors, names)
    worst = (IDENTICAL, "")
    for reader, (kind, message) in ended.value.items():
        if kind == "value":
            outcome = (IDENTICAL, "") if whole[reader][1] == message else (DIFFERENT, reader)
        else:
            outcome = (TRACEBACK, message) if kind == "traceback" else _line(message, names)
        worst = max(worst, (outcome[0], f"{reader}: {outcome[1]}"), key=_badness)
    return worst


def _line(message: str, names: tuple[str, ...]) -> tuple[str, str]:
    return (NAMED if any(name in message for name in names) else UNNAMED), message.strip()


def _badness(result: tuple[str, str]) -> int:
    return OUTCOMES.index(result[0])
