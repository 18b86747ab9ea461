"""What a run is: `manifest.json` of its folder, and the version that the whole folder has.

    version 1    by unseen 0.1, which stored no number, no items.npz, no checksums, and not how long
                 a finished journal is
    version 2    all of these; later versions add to it

Folders of both are read; one of a later version is refused with what to do.
"""

import json
from contextlib import suppress
from dataclasses import field
from typing import Any

from pydantic.dataclasses import dataclass

import unseen
from unseen.training import stored
from unseen.training.checksums import OTHERS
from unseen.training.stored import CHECKED, OPEN

VERSION = 2
ACROSS = "exact copies across the split"  # a count that DataFacts may have


@dataclass(frozen=True, config=CHECKED)
class StoredItems:
    """Of items.npz: how many, and the hash of the file."""

    number: int
    sha256: str


@dataclass(frozen=True, config=OPEN)
class DataFacts:
    """A data set by its name, fingerprint and counts; further counts of its own are kept with them.
    incomplete: what a known data set lacks, in a sentence; features: numbers of an item."""

    name: str = ""
    fingerprint: str = ""
    items: int | None = None
    classes: int | None = None
    features: int | None = None
    incomplete: str | None = None


@dataclass(frozen=True, config=CHECKED)
class SplitFacts:
    """How many are in each part, and the hash of who. query, gallery: where not all test items ask
    or answer. shift, shift_step: of a split of a ladder of shifts, the distance of training and
    test features and its number. changed_labels: of training items, wrong on purpose."""

    hash: str = ""
    train_items: int | None = None
    train_classes: int | None = None
    validation_items: int | None = None
    validation_classes: int | None = None
    test_items: int | None = None
    test_classes: int | None = None
    query_items: int | None = None
    gallery_items: int | None = None
    shift: float | None = None
    shift_step: int | None = None
    changed_labels: int | None = None


@dataclass(frozen=True, config=CHECKED)
class Data:
    """What was trained on and judged. place: where the data lie, in full and seen from the run."""

    data: DataFacts = field(default_factory=DataFacts)
    split: SplitFacts = field(default_factory=SplitFacts)
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
        facts: dict[str, Any] = stored.spelled(self)
        return facts


def parsed(text: str, name: str) -> Manifest:
    """The content of a manifest; ValueError: it is of a later version, or none at all."""
    refuse_later_version(text, name)
    return stored.parsed(Manifest, text, name, OTHERS)


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
