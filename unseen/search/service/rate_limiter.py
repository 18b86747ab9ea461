"""How often an address asked, counted for all processes of a service together.

So many a minute, in a burst or spread: each allowed request moves the moment at which the address
has used up nothing by 60 / per_minute seconds into the future (generic cell rate algorithm), and
one that would move it beyond a minute from now is refused. One number per address, kept under a
keyed hash: no address is stored.
"""

import hashlib
import ipaddress
import mmap
import os
import struct
import time
from pathlib import Path

from unseen.core.files import locked

SLOTS = 1 << 16
KEY = 16  # bytes, at the start
SIZE = KEY + 8 * SLOTS


class RateLimiter:
    """path: a file of `RateLimiter.create` that processes share; without one, this process
    alone."""

    def __init__(self, path: Path | None = None) -> None:
        self._file = None if path is None else os.open(path, os.O_RDWR)
        self._memory = mmap.mmap(-1 if self._file is None else self._file, SIZE)
        if self._file is None:
            self._memory[:KEY] = os.urandom(KEY)

    @staticmethod
    def create(path: Path) -> Path:
        path.write_bytes(os.urandom(KEY) + bytes(8 * SLOTS))
        return path

    def allows(self, kind: str, address: str, per_minute: int) -> bool:
        """Whether one more of this kind is within the limit; it is counted if so."""
        place, step = self._place(kind, address), 60 / per_minute
        with locked(self._file):
            now = time.monotonic()  # one clock for all processes of a machine
            free = max(now, struct.unpack_from("d", self._memory, place)[0])
            if free - now > 60 - step:
                return False
            struct.pack_into("d", self._memory, place, free + step)
        return True

    def is_full(self, kind: str, address: str, per_minute: int) -> bool:
        """Whether the next one would be refused; nothing is counted."""
        free = struct.unpack_from("d", self._memory, self._place(kind, address))[0]
        return bool(free - time.monotonic() > 60 - 60 / per_minute)

    def _place(self, kind: str, address: str) -> int:
        text = f"{kind} {home(address)}".encode()
        digest = hashlib.blake2b(text, key=self._memory[:KEY], digest_size=8).digest()
        return KEY + 8 * (int.from_bytes(digest) % SLOTS)


def home(address: str) -> str:
    """Whom an address belongs to: a household has 2**64 addresses of IPv6."""
    try:
        known = ipaddress.ip_address(address)
    except ValueError:
        return address
    if known.version == 4:
        return address
    return str(known.ipv4_mapped or ipaddress.ip_network((known, 64), strict=False))
