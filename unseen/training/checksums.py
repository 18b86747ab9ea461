"""What the small files of a folder must be, in `checksums.json` beside them: a flipped bit in a
score is an error, and not another score.

    if expect(folder, "result.json", digest): before it takes its place
        confirm(folder, "result.json")        after, if it was the first one
    checked(folder, "result.json")            its path, once its content was compared

For each file the list holds the SHA-256 of what it will be and of what it is ("": there is none),
because it is written before: a crash between the two leaves one of both. Files that no list names
are read as they are.
"""

import hashlib
import json
from pathlib import Path

from unseen.core.files import Lock, replace_bytes, sha256

NAME = "checksums.json"
TRIES = 3  # somebody may write between two looks
BY_COMMAND = {
    "calibration.json": "`unseen calibrate` makes it again",
    "diagnosis.json": "`unseen inspect diagnose` makes it again",
    "layers.json": "`unseen evaluate run --layers all` makes it again",
    "few_shots.json": "`unseen evaluate run RUN --shots 5` makes it again",
    "forgetting.json": "`unseen evaluate run RUN --also DATA` makes it again",
    "open_set.json": "`unseen evaluate run RUN --open-set` makes it again",
    "embeddings/layers.npz": "`unseen evaluate run --layers all` makes it again",
}
AGAIN = "the command of the run (in manifest.json), given again, makes it again"
RESTORED = ("result.json", "selection.json", "embeddings/test.npz", "embeddings/per_query.npz")
OTHERS = "put a copy of it back, or start anew in another folder"

Known = dict[str, list[str]]


def expect(root: Path, name: str, digest: str) -> bool:
    """Writes down what a file will be; returns whether there was none."""
    with Lock(root / ".checksums.lock", wait=True):
        known = _known(root)
        place = root / name
        now = sha256(place) if place.exists() else ""
        is_known = not now or now in known.get(name, [now])  # one that is damaged stays so
        wanted = list(dict.fromkeys([digest, *([now] if is_known else [])]))
        if known.get(name) != wanted:
            replace_bytes(root / NAME, _spelled(known | {name: wanted}))
    return not now


def confirm(root: Path, name: str) -> None:
    """A file has taken its place: from now on it cannot be missing."""
    with Lock(root / ".checksums.lock", wait=True):
        known = _known(root)
        replace_bytes(root / NAME, _spelled(known | {name: known[name][:1]}))


def checked(root: Path, name: str, remedy: str | None = None) -> Path:
    """The path of a file that is as it was written; ValueError: it is not, or it is missing.
    remedy: what to do then, if not what helps with the files of a run."""
    remedy = remedy or _remedy(name)
    path = root / name
    for _ in range(TRIES):
        if not path.exists():
            raise ValueError(f"{path} is missing: {remedy}")
        result = sha256(path)
        if result in _known(root).get(name, [result]):
            return path
    raise ValueError(
        f"{path} is damaged, its checksum differs: {remedy}. If you changed it yourself, "
        f"delete {root / NAME}"
    )


def is_whole(root: Path, name: str) -> bool:
    try:
        checked(root, name)
    except ValueError:
        return False
    return True


def must_exist(root: Path, name: str) -> bool:
    """Whether a file was once written."""
    return "" not in _known(root).get(name, [""])


def unreadable(name: str) -> str:
    """What to do with a file that is as it was written, or has no checksum, and makes no sense."""
    remedy = _remedy(name)
    return remedy if remedy == OTHERS else f"delete it; {remedy}"


def _remedy(name: str) -> str:
    return BY_COMMAND.get(name) or (AGAIN if name in RESTORED else OTHERS)


def _known(root: Path) -> Known:
    place = root / NAME
    try:
        content = place.read_bytes()
    except FileNotFoundError:
        return {}
    try:
        known: Known = json.loads(content)["files"]
        if _spelled(known) == content:
            return known
    except (ValueError, KeyError, TypeError):
        pass
    raise ValueError(f"{place} is damaged: delete it, and the files it lists are not compared")


def _spelled(known: Known) -> bytes:
    """In one spelling, with the hash of the rest."""
    digest = hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()
    text = json.dumps({"files": known, "sha256": digest}, indent=1, sort_keys=True)
    return f"{text}\n".encode()
