"""What a storage says of a trial, checked: whoever can write to the storage may have written it.

    note(trial)              its user attributes, of the right types
    checked(files, key)      the small files of a run: known names, limited sizes, right shapes

Only what is checked here is believed or written to a disk; anything else is a ValueError that names
the trial or the file.
"""

from collections.abc import Collection, Mapping
from typing import Any

from optuna.trial import FrozenTrial
from pydantic import BaseModel, ConfigDict, Field, Json, ValidationError, field_validator

from unseen.config import schema as configs
from unseen.core import custom_components
from unseen.studies.run_files import KINDS, STATE, StoredPlan
from unseen.training import event_log, json_files, manifest
from unseen.training.events import Epoch
from unseen.training.json_files import first_error

MOST_BYTES = 4 * 2**20  # of a file; those of the largest published data set have a tenth
MOST_WORDS = 2000  # letters of a title or an error


class Note(BaseModel):
    """The user attributes of a trial. `files`: unchecked; `parameters`: what a search proposed."""

    model_config = ConfigDict(frozen=True, strict=True)

    planned: str = ""
    title: str = ""
    attempt: int = Field(default=0, ge=0)
    worker: str = ""
    error: str | None = None
    files: dict[str, str] = {}
    parameters: Json[dict[str, Any]] = {}

    @field_validator("title", "error")
    @classmethod
    def _can_be_printed(cls, text: str | None) -> str | None:
        """One line without a terminal's commands."""
        if text is None:
            return None
        shown = "".join(letter if letter.isprintable() else " " for letter in text[:MOST_WORDS])
        return " ".join(shown.split())


NAMES = ("config.toml", "events.jsonl", *KINDS)


def note(trial: FrozenTrial) -> Note:
    """What a trial says of itself."""
    known = {name: trial.user_attrs[name] for name in Note.model_fields if name in trial.user_attrs}
    try:
        return Note(**known)
    except ValidationError as error:
        message = first_error(error)
        raise ValueError(
            f"trial {trial.number} in the storage is not one of `unseen study`: {message}"
        ) from None


def checked(files: Mapping[str, str], key: str, components: Collection[str] = ()) -> dict[str, str]:
    """The small files of a run, in the order to write them. components: custom ones that a
    config may name."""
    for name, text in files.items():
        if name not in NAMES:
            raise ValueError(f"the storage names a file that no run leaves: {name!r}")
        if len(text.encode()) > MOST_BYTES:
            raise ValueError(f"{name} in the storage is larger than {MOST_BYTES:,} bytes")
        try:
            _check(name, text, key, components)
        except ValueError as error:  # of pydantic, JSON and TOML, too
            message = first_error(error) if isinstance(error, ValidationError) else str(error)
            raise ValueError(f"{name} in the storage is not what a run leaves: {message}") from None
    if STATE not in files:
        raise ValueError(f"the storage holds files of a run without {STATE}")
    return {name: files[name] for name in NAMES if name in files}


def _check(name: str, text: str, key: str, components: Collection[str]) -> None:
    if name == "config.toml":
        values = configs.parse(text)
        if unknown := sorted(custom_components.references_in(values) - set(components)):
            raise ValueError(f"it names {', '.join(unknown)}, which the study does not")
        configs.make(values)
    elif name == "events.jsonl":
        if not all(isinstance(event, Epoch) for event in event_log.parsed(text.encode())):
            raise ValueError("events other than epochs")
    elif name == "manifest.json":
        manifest.parsed(text, name)
    else:
        result = json_files.parsed(KINDS[name], text, name)
        if isinstance(result, StoredPlan) and result.key != key:
            raise ValueError(f"it is of the run {result.key!r}, not {key}")
