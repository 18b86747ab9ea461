import os
import sys

if not sys.flags.safe_path and sys.path[0] == os.getcwd():
    del sys.path[0]  # nothing is imported from the current folder, just as by the `unseen` script

from unseen.cli.entry_point import run

run()
