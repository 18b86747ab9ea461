"""Named arrays in one file on disk, written whole or not at all, and believed only if unharmed.

The file is the SHA-256 of its payload, then the payload (numpy's npz). Whoever reads a damaged,
cut or foreign file gets None and makes the arrays again.
"""

import hashlib
import io
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unseen.core import read_limits
from unseen.core.files import replace_bytes

CACHE_VARIABLE = "UNSEEN_CACHE"
_DIGEST_BYTES = 32


def cache_folder() -> Path:
    """`$UNSEEN_CACHE`, or `~/.cache/unseen`."""
    return Path(os.environ.get(CACHE_VARIABLE) or Path.home() / ".cache" / "unseen")


def save(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    buffer = io.BytesIO()
    np.savez(buffer, **dict(arrays))  # type: ignore[arg-type]  # its stub has allow_pickle first
    payload = buffer.getvalue()
    replace_bytes(path, hashlib.sha256(payload).digest() + payload)


def load(path: Path) -> dict[str, NDArray[Any]] | None:
    """The arrays, or None where there is no such file or its checksum is wrong."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    digest, payload = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
    if hashlib.sha256(payload).digest() != digest:
        return None
    try:
        with read_limits.load(io.BytesIO(payload), path) as arrays:
            return dict(arrays)
    except (ValueError, OSError, EOFError, zipfile.BadZipFile):
        return None
