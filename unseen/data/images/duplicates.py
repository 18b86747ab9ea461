"""Copies among images: the same bytes, or nearly the same look.

Exact   same SHA-256.
Near    two images whose difference hashes are close and whose thumbnails agree. The hash has a
        bit for each of 8 x 8 cells of the grey image: is the cell darker than the one to its
        right. Resizing, re-encoding and small changes of light flip few bits. Pairs within 3 of 64
        bits are found without comparing all with all: 64 bits in 4 bands, and who differs in 3 bits
        agrees in a whole band. Thumbnails (16 x 16, grey) then must differ by less than 6 levels on
        average. Mirrored and cropped copies are not found.
"""

import hashlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from unseen.core.relevance import joined_classes

HASH_SIDE = 8
THUMBNAIL_SIDE = 16
MAX_BITS = 3
MAX_LEVELS = 6.0
_BANDS = MAX_BITS + 1
_CHUNK = 1 << 20

Groups = list[list[int]]  # positions, rising; groups by their first member


def digest(path: Path) -> bytes:
    """SHA-256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def same(digests: Iterable[bytes]) -> Groups:
    """Groups of equal digests."""
    return grouped(enumerate(digests))


def appearance(image: Image.Image) -> tuple[np.uint64, NDArray[np.uint8]]:
    """The difference hash and the thumbnail of an image."""
    grey = image.convert("L")
    side = HASH_SIDE
    cells = np.asarray(grey.resize((side + 1, side), Image.Resampling.BOX), dtype=np.int16)
    bits = np.packbits(cells[:, :-1] < cells[:, 1:])  # 8 bytes
    thumbnail = grey.resize((THUMBNAIL_SIDE, THUMBNAIL_SIDE), Image.Resampling.BOX)
    return bits.view(np.uint64)[0], np.asarray(thumbnail)


def near(hashes: NDArray[np.uint64], thumbnails: NDArray[np.uint8]) -> Groups:
    """Groups of images that look nearly the same. hashes [n]; thumbnails [n, 16, 16]."""
    flat = thumbnails.reshape(len(thumbnails), -1).astype(np.int16)
    left, right = _candidates(hashes)
    alike_pairs = [np.zeros((0, 2), dtype=np.int64)]
    for start in range(0, len(left), _CHUNK // 64):
        pair = slice(start, start + _CHUNK // 64)
        levels = np.abs(flat[left[pair]] - flat[right[pair]]).mean(axis=1)
        alike = levels < MAX_LEVELS
        alike_pairs.append(np.stack([left[pair][alike], right[pair][alike]], axis=1))
    return _joined(np.concatenate(alike_pairs))


def _candidates(hashes: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Pairs of positions whose hashes are within MAX_BITS; of many equal hashes, each with the
    next one only."""
    order = np.argsort(hashes, kind="stable")
    ordered = hashes[order]
    is_repeat = np.concatenate([[False], ordered[1:] == ordered[:-1]])
    places = np.flatnonzero(is_repeat)
    pairs = {(int(order[p - 1]), int(order[p])) for p in places}
    first = order[~is_repeat]  # one position per different hash
    values = hashes[first]
    width = 64 // _BANDS
    for band in range(_BANDS):
        keys = (values >> np.uint64(band * width)) & np.uint64((1 << width) - 1)
        by_key = np.argsort(keys, kind="stable")
        sorted_keys, sorted_values = keys[by_key], values[by_key]
        for step in range(1, len(by_key)):  # neighbours at a distance; ends with the largest bucket
            equal_keys = np.flatnonzero(sorted_keys[step:] == sorted_keys[:-step])
            if not len(equal_keys):
                break
            bits = np.bitwise_count(sorted_values[equal_keys] ^ sorted_values[equal_keys + step])
            for place in equal_keys[bits <= MAX_BITS]:
                one, two = int(first[by_key[place]]), int(first[by_key[place + step]])
                pairs.add((min(one, two), max(one, two)))
    result = np.array(sorted(pairs), dtype=np.int64).reshape(-1, 2)
    return result[:, 0], result[:, 1]


def _joined(pairs: NDArray[np.int64]) -> Groups:
    if not len(pairs):
        return []
    groups = joined_classes(np.arange(pairs.max() + 1), pairs)
    return grouped((place, int(groups[place])) for place in np.unique(pairs).tolist())


def grouped(marked: Iterable[tuple[int, object]]) -> Groups:
    """Positions with the same mark."""
    groups: dict[object, list[int]] = {}
    for place, mark in marked:
        groups.setdefault(mark, []).append(place)
    return sorted(group for group in groups.values() if len(group) > 1)
