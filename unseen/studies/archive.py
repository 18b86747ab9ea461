"""A study in one small file that can stay in a repository: all that its tables and pages are made
from.

    write(Path("evidence/rho.txz"), small_files_of(Path("studies/rho")))
    unpack(Path("evidence/rho.txz"))      a study folder beside it, as on the machine that ran it

Of each run it holds what `unseen study work --collect` fetches: settings, scores, epochs. Weights,
embeddings and images stay behind. Places on a disk become data/NAME, so the archive says nothing
of the machine. The same study gives the same file. What is unpacked is checked like the notes of a
storage (`trial_notes.py`): known names, limited sizes, right shapes, no code from outside. Runs of
one study are much alike, so all are compressed as one: a tenth of what a zip file of them takes.
"""

import io
import json
import lzma
import re
import tarfile
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Any

from unseen.config import schema as configs
from unseen.config.stages import FIRST
from unseen.core import custom_components
from unseen.core.files import new_folder, refuse_links, replace_bytes, write_bytes
from unseen.studies.results import Results, Run, read
from unseen.studies.study_file import Plan, Values
from unseen.studies.trial_notes import MOST_BYTES, NAMES, checked
from unseen.studies.worker import small_files
from unseen.training.run_folder import RunFolder

SUFFIX = ".txz"
DATA = "data"  # the folder that archived studies name
MOST_UNPACKED = 2**28  # bytes
MOST_FILES = 100_000
STUDY = re.compile(r"((?:studies/[^/]+/)?)(?:study\.toml|runs/([^/]+)/(.+))")
OF_PUBLISHED = re.compile(r"[^/]+/(?:published|generalization|measured)\.json")
PLACE = re.compile(r"(?<!\S)(?:'/[^']*'|/\S+)")
OF_STAGE = re.compile(r"stages/[\w. -]+/events\.jsonl")


def small_files_of(study: Path) -> dict[str, str]:
    """Name -> text of what is archived of a study."""
    results = read(study)
    ended = [run for run in (*results.runs, *results.searches) if run.state != "open"]
    if not ended:
        raise ValueError(f"no run of {study} has ended: there is nothing to archive")
    result = {"study.toml": _moved_plan(results.plan).to_toml()}
    for run in ended:
        planned = replace(run.planned, values=moved(run.planned.values))
        files = small_files(RunFolder(run.folder)) | _of_stage(run)
        files = {name: _moved_file(name, text, planned.key) for name, text in files.items()}
        result |= {f"runs/{planned.name}/{name}": text for name, text in files.items()}
    return result


def new_keys(results: Results) -> dict[str, str]:
    """Key of a run -> its key in the archive, which has other paths in its settings."""
    planned_runs = [run.planned for run in (*results.runs, *results.searches)]
    return {
        planned.key: replace(planned, values=moved(planned.values)).key for planned in planned_runs
    }


def write(file: Path, files: dict[str, str]) -> None:
    """One file of many; the same ones make the same bytes."""
    _check_name(file)
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:xz", preset=9) as archive:
        for name in sorted(files):
            text = files[name].encode()
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text))
    replace_bytes(file, content.getvalue())


def unpack(file: Path) -> Path:
    """The folder that an archived study is unpacked into, beside it; to be given to a report."""
    _check_name(file)
    files = _read(file)
    studies: dict[str, dict[str, dict[str, str]]] = {}  # place -> run -> name -> text
    for name, text in files.items():
        if match := STUDY.fullmatch(name):
            place, run, of_run = match.groups()
            runs = studies.setdefault(place, {})
            if run is not None:
                runs.setdefault(run, {})[of_run] = text
        elif not OF_PUBLISHED.fullmatch(name):
            raise ValueError(f"{file} holds {name!r}, which no study leaves")
    for place, runs in studies.items():
        _check_study(file, files.get(f"{place}study.toml", ""), runs)
    out = file.with_suffix("")
    _unpack(files, out, file)
    published = [
        name for name in files if name.endswith(("/published.json", "/generalization.json"))
    ]
    return (out / published[0]).parent if published else out


def _unpack(files: dict[str, str], out: Path, file: Path) -> None:
    """A new folder, or one that holds the same already; nothing is ever overwritten."""
    if out.is_symlink() or out.exists():
        refuse_links(out)
        known = (
            place.is_file() and place.read_bytes() == text.encode()
            for place, text in ((out / name, text) for name, text in files.items())
        )
        if out.is_symlink() or not all(known):
            raise ValueError(
                f"{out} exists, and is not what {file.name} unpacks to: move or delete it first"
            )
        return
    with new_folder(out) as aside:
        for name, text in files.items():
            (aside / name).parent.mkdir(parents=True, exist_ok=True)
            write_bytes(aside / name, text.encode())


def moved(values: Any) -> Any:
    """The same values with data/NAME in place of paths of a machine."""
    if isinstance(values, dict):
        return {key: moved(value) for key, value in values.items()}
    if isinstance(values, list):
        return [moved(value) for value in values]
    is_path = isinstance(values, str) and PurePath(values).is_absolute()
    return f"{DATA}/{PurePath(values).name}" if is_path else values


def _moved_plan(plan: Plan) -> Plan:
    return Plan(**moved(plan.model_dump(exclude_defaults=True)))


def _moved_file(name: str, text: str, key: str) -> str:
    if name == "config.toml":
        return configs.dump(moved(configs.parse(text)))
    if name == "planned.json":
        return spelled(json.loads(text) | {"key": key})
    if name == "manifest.json":
        manifest: Values = json.loads(text)
        manifest.get("data", {}).pop("place", None)
        return spelled(moved(manifest | {"test_reads": _moved_reads(manifest)}))
    return spelled(moved(json.loads(text))) if name == "result.json" else text


def _moved_reads(manifest: Values) -> list[Values]:
    """What test classes were read for; commands among it name places."""

    def without_places(purpose: str) -> str:
        return PLACE.sub(lambda result: moved(result[0].strip("'")), purpose)

    reads = manifest.get("test_reads", [])
    return [read | {"purpose": without_places(read["purpose"])} for read in reads]


def spelled(values: Values) -> str:
    """As files of a run are written."""
    return json.dumps(values, indent=2, sort_keys=True) + "\n"


def _of_stage(run: Run) -> dict[str, str]:
    """The epochs of the stage that was kept, where that is not the first."""
    stages = run.selection.stages if run.selection else None
    if stages is None or stages.selected == FIRST:
        return {}
    folder = RunFolder(run.folder / "stages" / stages.selected)
    return {f"stages/{stages.selected}/events.jsonl": small_files(folder)["events.jsonl"]}


def _check_name(file: Path) -> None:
    if file.suffix != SUFFIX:
        raise ValueError(
            f"an archived study is one {SUFFIX} file, e.g. {file.stem}{SUFFIX}, got {file}"
        )


def _read(file: Path) -> dict[str, str]:
    result: dict[str, str] = {}
    total = 0
    try:
        reader = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=MOST_UNPACKED)
        with file.open("rb") as stream:  # a small file may unpack to any size
            unpacked = reader.decompress(stream.read(MOST_UNPACKED), MOST_UNPACKED + 1)
        with tarfile.open(fileobj=io.BytesIO(unpacked), mode="r:") as archive:
            for entry in archive:
                total += entry.size  # which a sparse file says, and does not take
                is_large = max(total, len(unpacked)) > MOST_UNPACKED or len(result) >= MOST_FILES
                if is_large or not 0 <= entry.size <= MOST_BYTES:
                    raise ValueError(f"{file} is larger than an archived study")
                if not {"", ".", ".."}.isdisjoint(entry.name.split("/")):
                    raise ValueError(f"{file} holds {entry.name!r}, which no study leaves")
                content = archive.extractfile(entry) if entry.isreg() else None
                if content is None:
                    raise ValueError(f"{file} holds {entry.name!r}, which is no file")
                result[entry.name] = content.read().decode()
    except (tarfile.TarError, lzma.LZMAError, EOFError, UnicodeDecodeError) as error:
        raise ValueError(f"{file} is no archived study: {error}") from None
    return result


def _check_study(file: Path, plan: str, runs: dict[str, dict[str, str]]) -> None:
    if not plan:
        raise ValueError(f"{file} holds runs without their study.toml")
    if references := sorted(custom_components.references_in(configs.parse(plan))):
        raise ValueError(
            f"{file} names code from outside, {', '.join(references)}: unpack it and report on "
            "the folder, if you trust it"
        )
    for run, files in runs.items():
        rest = {name: text for name, text in files.items() if not OF_STAGE.fullmatch(name)}
        if not set(rest) <= set(NAMES):
            raise ValueError(f"{file} holds files in {run!r} that no run leaves")
        planned = json.loads(files.get("planned.json", "{}"))
        checked(rest, str(planned.get("key", "")))
