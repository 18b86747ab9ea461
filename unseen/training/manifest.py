"""What a run is: `manifest.json` of its folder, and the version that the whole folder has.

    version 1    by unseen 0.1, which stored no number, no items.npz, no checksums, and not how long
                 a finished journal is
    version 2    all of these; later versions add to it

Folders of both are read; one of a later version is refused with what to do.
"""

import json
from contextlib import suppress
from dataclasses import asdict, field
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

import unseen
from unseen.training.events import CHECKED, first_error

VERSION = 2


@dataclass(frozen=True, config=CHECKED)
class StoredItems:
    """Of items.npz: how many, and the hash of the file."""

    number: int
    sha256: str


@dataclass(frozen=True, config=CHECKED)
class Data:
    """What was trained on and judged. data: name, fingerprint and counts; split: counts, hash;
    place: where the data lie, in full and seen from the run."""

    data: dict[str, Any] = field(default_factory=dict)
    split: dict[str, Any] = field(default_factory=dict)
    items: StoredItems | None = None  # None: of version 1
    place: list[str] | None = None


@dataclass(frozen=True, config=CHECKED)
class TestRead:
    """A look at the test classes."""

    time: str
    purpose: str
    config_hash: str


@dataclass(frozen=True, config=CHECKED)
class Manifest:
    """As it is without a file: nothing is known. refit: of the second training; parts: where those
    from outside came from; both with their time. plan: of the run's minutes, in words."""

    command: str = ""
    config_hash: str = ""
    data: Data = field(default_factory=Data)
    started: str = ""
    ended: str | None = None
    finished: bool = False
    journal_bytes: int | None = None  # known at the end
    test_reads: list[TestRead] = field(default_factory=list)
    refit: dict[str, Any] | None = None
    parts: dict[str, Any] | None = None
    plan: list[str] | None = None
    platform: str = ""
    python: str = ""
    unseen: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    version: int = 1

    def spelled(self) -> dict[str, Any]:
        """As the file has it."""
        facts = {name: value for name, value in asdict(self).items() if value is not None}
        facts["data"] = {name: value for name, value in facts["data"].items() if value is not None}
        return facts


_READER = TypeAdapter(Manifest)


def parsed(text: str, name: str) -> Manifest:
    """The content of a manifest; ValueError: it is of a later version, or none at all."""
    refuse_later_version(text, name)
    try:
        return _READER.validate_json(text)
    except ValidationError as error:
        raise ValueError(f"{name}: {first_error(error)}") from None


def refuse_later_version(text: str, name: str) -> None:
    """Before anything else in a folder is misread; who needs a damaged manifest will say so."""
    with suppress(json.JSONDecodeError, AttributeError):
        content = json.loads(text)
        version = content.get("version", 1)
        if isinstance(version, int) and version > VERSION:
            raise ValueError(
                f"{name}: written by unseen {content.get('unseen')}, whose run folders unseen "
                f"{unseen.__version__} does not know: update unseen"
            )
