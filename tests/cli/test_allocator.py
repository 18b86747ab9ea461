"""Telling the allocator to keep memory never fails, whatever the system."""

import ctypes
import platform
import subprocess
import sys

import pytest

from tests.conftest import CANNOT
from unseen.cli import allocator


def test_glibc_understands_it() -> None:
    if platform.libc_ver()[0] != "glibc":
        pytest.skip(f"{CANNOT}: another C library")
    code = "from unseen.cli.allocator import keep_freed_memory; print(keep_freed_memory())"
    message = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert message.stdout.strip() == "True"  # in a process of its own: it cannot be taken back


def test_another_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    assert allocator.keep_freed_memory() is False
