"""A user's mistake, a full disk, too little memory: one line of advice, never a traceback."""

import errno
import os
import sys
from collections.abc import Callable
from typing import Any

from rich.text import Text

from unseen.cli.console import errors
from unseen.core.extras import install_command
from unseen.core.names import near_path

USER_ERROR = 2
DISK_FULL = ". The last checkpoint is whole: make room, then give the same command again"
READ_ONLY = ". Choose a folder that can be written to, with --out"
ADVICE = {errno.ENOSPC: DISK_FULL, errno.EDQUOT: DISK_FULL, errno.EROFS: READ_ONLY}
OUT_OF_MEMORY = (
    "choose a smaller batch_size, image_size or backbone (with another --out); the last "
    "checkpoint is whole"
)


EXTRAS = {"fastapi": "search", "starlette": "search", "uvicorn": "search"}  # module -> its extra


def guarded(command: Callable[[], Any]) -> None:
    """Runs a command; a user's mistake ends in one line of advice and exit code 2."""
    try:
        command()
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        if module not in EXTRAS:
            raise
        message = f"this needs {module}: {install_command(EXTRAS[module])}"
        _say("unseen:", message)
        sys.exit(USER_ERROR)
    except (ValueError, OSError, FloatingPointError, MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not _is_expected(error):
            raise
        rank = int(os.environ.get("RANK", "0"))  # of several processes
        who = f"unseen, process {rank}:" if rank else "unseen:"
        _say(who, _line(error))
        sys.exit(USER_ERROR)
    except Exception as error:
        if not hasattr(error, "format_message"):  # typer's, on words it does not understand
            raise
        if type(error).__name__ != "NoArgsIsHelpError":  # whose help is printed already
            _say("unseen:", _on_words(error))
        sys.exit(USER_ERROR)


def _say(who: str, message: str) -> None:
    errors.print(Text.assemble((who, "bold red"), " ", message))


def _on_words(error: Any) -> str:
    message = " ".join(error.format_message().split()).removesuffix(".")
    context = getattr(error, "ctx", None)
    return message + (f" (`{context.command_path} --help` says more)" if context else "")


def _is_expected(error: RuntimeError) -> bool:
    return isinstance(error, RecursionError) or _is_out_of_memory(error)


def _is_out_of_memory(error: Exception) -> bool:
    """Devices and allocators each say it in their own words."""
    message = str(error)
    return (
        isinstance(error, MemoryError) or "out of memory" in message or "allocate memory" in message
    )


def _line(error: Exception) -> str:
    text = str(error)
    if _is_out_of_memory(error):
        text = f"not enough memory: {OUT_OF_MEMORY}"
    if isinstance(error, RecursionError):
        text = "a file that was read is nested too deeply"
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.strerror}: {error.filename}" if error.filename else error.strerror
        if isinstance(error, FileNotFoundError):
            text += near_path(str(error.filename or "."))
        text += ADVICE.get(error.errno or 0, "")
    return " ".join(text.split())
