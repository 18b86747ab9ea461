"""What the `unseen` script and `python -m unseen` call: Ctrl-C is no traceback, not even while
torch is being imported, which takes seconds."""

import sys

STOPPED = 130  # what a shell calls a program that was stopped by Ctrl-C


def run() -> None:
    """Runs the command line."""
    try:
        from unseen.cli.main import run as run_command  # noqa: PLC0415

        run_command()
    except KeyboardInterrupt:
        sys.exit(STOPPED)
