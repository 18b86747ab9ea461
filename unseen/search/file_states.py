"""Is the file of an image still what was embedded? Size, times and inode tell; where they do not
agree, as after files were copied to another disk, the content does."""

import hashlib
from dataclasses import replace
from pathlib import Path

from unseen.core.files import sha256
from unseen.core.uris import Place
from unseen.data.containers import locations
from unseen.search.segment import Metadata


def digest_of(place: Place) -> str:
    """SHA-256 of an image's bytes."""
    if locations.is_elsewhere(place):
        return hashlib.sha256(locations.read(str(place))).hexdigest()
    return sha256(Path(place))


def unchanged(metadata: Metadata, thorough: bool = False) -> Metadata | None:
    """The same metadata with the state that the file has now; None where it is another file, or
    nobody knows. What is known of a file that is gone stays. thorough: the content is read even
    where the state is the same."""
    place = locations.of_index(metadata.path)
    try:
        state = locations.state(place)
        now = replace(metadata, num_bytes=state.num_bytes, modified=state.modified, mark=state.mark)
        if now == metadata and not thorough:
            return metadata
        same = state.num_bytes == metadata.num_bytes and digest_of(place) == metadata.digest
    except FileNotFoundError:
        return metadata
    except OSError:  # whoever embeds it says why
        return None
    return now if same else None


def embedded_content(metadata: Metadata) -> bytes | None:
    """The bytes that were embedded; None where the file is gone or another one, or may not be
    read. A received index names any file: only what it knows already may leave this machine."""
    try:
        place = locations.of_index(metadata.path)
        is_special = isinstance(place, Path) and not place.is_file()  # of a device there is no end
        if is_special or not 0 < locations.state(place).num_bytes == metadata.num_bytes:
            return None
        content = locations.read(place) if isinstance(place, str) else place.read_bytes()
    except (OSError, ValueError):
        return None
    return content if hashlib.sha256(content).hexdigest() == metadata.digest else None
