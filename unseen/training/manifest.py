"""What a run is: `manifest.json` of its folder, and the version that the whole folder has. One of a
later version is refused with what to do."""

import json
from contextlib import suppress
from dataclasses import field
from typing import Any, Final, Literal

from pydantic.dataclasses import dataclass

import unseen
from unseen.core.reason import Reason
from unseen.training import json_files
from unseen.training.checksums import OTHERS
from unseen.training.json_files import CHECKED, OPEN

VERSION: Final = 2
ACROSS = "duplicates across the split"  # a count that DataMetadata may have


@dataclass(frozen=True, config=CHECKED)
class StoredItems:
    """Of items.npz: how many, and the hash of the file."""

    number: int
    sha256: str


@dataclass(frozen=True, config=OPEN)
class DataMetadata:
    """A data set by its name, fingerprint and counts; further counts of its own are kept with them.
    incomplete: what a known data set lacks, in a sentence; features: numbers of an item."""

    name: str = ""
    fingerprint: str = ""
    items: int | None = None
    classes: int | None = None
    features: int | None = None
    incomplete: str | None = None
    normalisation: str | None = None  # of images, in words


@dataclass(frozen=True, config=CHECKED)
class SplitMetadata:
    """How many are in each part, and the hash of who. query, gallery: where not all test items ask
    or answer. shift, shift_step: of a split of splits of growing shift, the distance of training
    and test features and its number. changed_labels: of training items, wrong on purpose."""

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
    """What was trained on and evaluated. place: where the data lie, in full and seen from the
    run."""

    data: DataMetadata = field(default_factory=DataMetadata)
    split: SplitMetadata = field(default_factory=SplitMetadata)
    items: StoredItems | None = None
    place: list[str] | None = None


@dataclass(frozen=True, config=CHECKED)
class TestRead:
    """One access to the test classes."""

    time: str
    purpose: str
    config_hash: str


@dataclass(frozen=True, config=CHECKED)
class Manifest:
    """As it is without a file: nothing is known. refit: of the second training; custom_components:
    where they came from; both with their time. plan: how the time budget is
    to be used."""

    command: str = ""
    config_hash: str = ""
    data: Data = field(default_factory=Data)
    started: str = ""
    ended: str | None = None
    finished: bool = False
    event_log_bytes: int | None = None  # known at the end
    test_reads: list[TestRead] = field(default_factory=list)
    refit: dict[str, Any] | None = None
    custom_components: dict[str, Any] | None = None
    plan: list[Reason] | None = None
    platform: str = ""
    python: str = ""
    unseen: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    version: Literal[2] = field(kw_only=True)

    def spelled(self) -> dict[str, Any]:
        """As the file has it."""
        metadata: dict[str, Any] = json_files.spelled(self)
        return metadata


def parsed(text: str, name: str) -> Manifest:
    """The content of a manifest; ValueError: it is of a later version, or none at all."""
    refuse_later_version(text, name)
    return json_files.parsed(Manifest, text, name, OTHERS)


def refuse_later_version(text: str, name: str) -> None:
    """Before anything else in a folder is misread; who needs a damaged manifest will say so."""
    with suppress(json.JSONDecodeError, AttributeError):
        content = json.loads(text)
        version = content.get("version")
        if isinstance(version, int) and version > VERSION:
            raise ValueError(
                f"{name}: written by unseen {content.get('unseen')}, whose run folders unseen "
                f"{unseen.__version__} does not know: update unseen"
            )
