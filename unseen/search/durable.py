"""Files that are whole or not there: written aside, flushed to the disk, then renamed."""

import hashlib
import os
from pathlib import Path

CHUNK = 1 << 20


def write_bytes(path: Path, content: bytes) -> str:
    """Writes and flushes a file that nobody knows of yet; returns its SHA-256."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    return hashlib.sha256(content).hexdigest()


def replace_bytes(path: Path, content: bytes) -> None:
    """Readers see the old file or the new one, whatever happens in between."""
    aside = path.with_name(path.name + ".part")
    write_bytes(aside, content)
    os.replace(aside, path)
    flush_folder(path.parent)


def flush_folder(path: Path) -> None:
    """Makes names in a folder, new or gone, survive a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
