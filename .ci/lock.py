"""Prints a lock: what the extras dev and docs (or what is named) install, with all files' hashes.

    python .ci/lock.py > requirements-lock.txt
    python .ci/lock.py torch > requirements-lock-cuda.txt     # where pip takes the CUDA build

pip decides which versions (constraints.txt) and which files it would take here; the index tells the
hashes of the other platforms' files. torch's CPU build is not on the index: its hash is that of the
file which pip found here, and it stands alone.
"""

import json
import re
import subprocess
import sys
import tempfile
import urllib.parse
import urllib.request
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import Version

ROOT = Path(__file__).parent.parent
INDEX = "https://pypi.org/simple"
HEAD = "# Made by .ci/lock.py from constraints.txt: see docs/dependencies.md"


class Links(HTMLParser):
    """File name -> SHA-256 of an index page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.result: dict[str, str] = {}
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        message = re.fullmatch(r".*/([^/#]+)#sha256=([0-9a-f]{64})", dict(attrs).get("href") or "")
        if message:
            self.result[urllib.parse.unquote(message[1])] = message[2]


def resolved(wanted: list[str]) -> list[dict[str, Any]]:
    """What pip would install into an empty environment."""
    with tempfile.NamedTemporaryFile(suffix=".json") as report:
        words = ["install", "--dry-run", "--ignore-installed", "--quiet", "--report", report.name]
        command = [sys.executable, "-m", "pip", *words, "-c", "constraints.txt", *wanted]
        subprocess.run(command, cwd=ROOT, check=True, stdout=sys.stderr)
        result: list[dict[str, Any]] = json.load(report)["install"]
    return [item for item in result if "archive_info" in item["download_info"]]


def hashes(name: str, version: str) -> set[str]:
    """Of every file that the index has of a version."""
    with urllib.request.urlopen(f"{INDEX}/{name}/") as answer:
        links = Links(answer.read().decode()).result
    return {digest for file, digest in links.items() if is_of(file, Version(version))}


def is_of(file: str, version: Version) -> bool:
    try:
        wheel = file.endswith(".whl")
        return (parse_wheel_filename(file) if wheel else parse_sdist_filename(file))[1] == version
    except (InvalidWheelFilename, InvalidSdistFilename):
        return False


def main() -> None:
    print(HEAD)
    result_here = resolved(sys.argv[1:] or [".[dev,docs]"])
    for item in sorted(result_here, key=lambda item: canonicalize_name(item["metadata"]["name"])):
        name = canonicalize_name(item["metadata"]["name"])
        version, _, build = item["metadata"]["version"].partition("+")  # 2.13.0+cpu is a 2.13.0
        result = {item["download_info"]["archive_info"]["hashes"]["sha256"]}
        if not build:  # beside a file of the index, which tells its hash, pip would not take ours
            result |= hashes(name, version)
        digests = [f"    --hash=sha256:{digest}" for digest in sorted(result)]
        print(f"{name}=={version}", *digests, sep=" \\\n")


if __name__ == "__main__":
    main()
