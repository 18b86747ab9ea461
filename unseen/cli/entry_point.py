"""What the `unseen` script and `python -m unseen` call: names are UTF-8; Ctrl-C is no traceback,
not even while torch is being imported, which takes seconds."""

import os
import sys

STOPPED = 130  # what a shell calls a program that was stopped by Ctrl-C


def run() -> None:
    """Runs the command line, under any locale with names and files in UTF-8."""
    if sys.getfilesystemencoding() != "utf-8":
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])
    try:
        from unseen.cli.main import run as run_command  # noqa: PLC0415

        run_command()
    except KeyboardInterrupt:
        sys.exit(STOPPED)
