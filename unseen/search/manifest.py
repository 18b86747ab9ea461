"""The manifest of an index: which files make it up, and their checksums. What it does not name is
not in the index, so replacing this one file is what adds and removes images.

It is JSON in one fixed spelling that holds the hash of the rest of itself: a flipped byte changes
the content, the spelling, or makes it no JSON at all, and each is noticed.
"""

import hashlib
import json
import shlex
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from unseen.core.files import refuse_links, replace_bytes
from unseen.core.names import near_path

NAME = "manifest.json"
APPROXIMATE = "approximate"  # the folder of what is made of the vectors
DERIVED = "`unseen index update INDEX` makes it again"
AGAIN = "delete the index, and `unseen index build RUN IMAGES --out INDEX` makes it again"

FileName = Annotated[str, Field(pattern=r"^[\w-][\w.-]*$")]  # of one folder: it cannot lead out


class DamagedError(ValueError):
    """A file of an index that is not as it was written; the message says what makes it again."""

    def __init__(self, path: Path, why: str = "its content does not make sense") -> None:
        is_derived = path.parent.parent.name == APPROXIMATE
        super().__init__(f"{path} is damaged: {why}; {DERIVED if is_derived else AGAIN}")


class Entry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class SegmentEntry(Entry):
    """A folder of rows. `dead` names the file of rows that no longer count."""

    name: FileName
    rows: int
    num_dead: int = 0
    dead: FileName | None = None
    files: dict[FileName, str]  # name -> SHA-256


class ModelEntry(Entry):
    """Who made the vectors."""

    run: str
    fingerprint: str
    size: int
    normalize: bool


class ApproximateEntry(Entry):
    """A faiss index over the rows up to a serial number, and how it was evaluated."""

    name: FileName  # of its folder
    kind: Literal["hnsw", "ivf_pq"]
    why: str
    last_serial: int
    effort: int  # efSearch or nprobe
    recall: float  # share of the 10 nearest by exact search that it finds
    num_queries: int
    files: dict[FileName, str]


class ExternalEntry(Entry):
    """A store outside the folder, which holds the live rows up to a serial number. Approximate, it
    has an effort (`ef`), and how many of the ten nearest of exact search it found."""

    kind: Literal["milvus", "pgvector"]
    uri: str
    table: str  # a collection, as Milvus says
    words: list[str] = []  # that the table may be marked with (`backends/external.py`)
    last_serial: int = 0
    effort: int = 0  # none: exact
    recall: float = 0.0
    num_queries: int = 0


class VanishedEntry(Entry):
    """A file of the ids of images whose files went away, for when they come back."""

    name: FileName
    sha256: str


class Manifest(Entry):
    """Everything an index consists of."""

    format: Literal[1] = 1
    identity: str  # random: an index deleted and built anew is another
    generation: int = 0
    next_id: int = 1
    next_serial: int = 1
    model: ModelEntry
    segments: list[SegmentEntry] = []
    approximate: ApproximateEntry | None = None
    external: ExternalEntry | None = None
    vanished: VanishedEntry | None = None


def write(folder: Path, manifest: Manifest) -> None:
    replace_bytes(folder / NAME, _spelled(manifest))


def read(folder: Path) -> Manifest:
    """Raises ValueError when the file is not what was once written, or the folder holds links."""
    refuse_links(folder)
    path = folder / NAME
    if (folder / "config.toml").exists():  # a run's manifest has the same name
        raise ValueError(
            f"{folder} is a run, no index: `unseen index build {shlex.quote(str(folder))} IMAGES "
            "--out my.index`"
        )
    if not path.exists():
        build = f": `unseen index build RUN IMAGES --out {shlex.quote(str(folder))}`"
        raise ValueError(f"{folder} is no index{near_path(folder) or build}")
    content = path.read_bytes()
    try:
        stored = json.loads(content)
        manifest = Manifest.model_validate(stored["index"])
    except (ValueError, KeyError, TypeError, ValidationError) as error:
        raise DamagedError(path, "it cannot be read, or is of another version") from error
    if _spelled(manifest) != content:
        raise DamagedError(path, "its checksum does not match")
    return manifest


def _spelled(manifest: Manifest) -> bytes:
    body = manifest.model_dump()
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    text = json.dumps({"index": body, "sha256": digest}, indent=1, sort_keys=True)
    return f"{text}\n".encode()
