"""A published study as one command: what is run, what is shown, and what differs from the source.

    published = find("losses")
    ask = Ask(data="features.npz")
    run(published, ask, Path("published/features"))     # stop it, call it again: it goes on
    remake(Path("published/features/losses"))           # the page again, from what is stored

Files    out/studies/<plan>/      studies; published ones that ask for the same one share it
         out/<name>/              published.json, measured.json, claims.json, index.html,
                                  findings.md, figures/

A page ends with the claims of the same study on other data sets, where their folders are beside
`out`.

A published study is one file in the folder of its paper with one class of the same name.
"""

import json
import shlex
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from unseen.core.names import known
from unseen.reproductions.against_source import start_section, without_start_runs
from unseen.reproductions.claims import Claim, claims_section, joined_section, plain_rows
from unseen.reproductions.differences import differences, planned_configs, run_configs
from unseen.reproductions.numbers import table
from unseen.reproductions.request import Ask
from unseen.reproductions.source_values import (
    Source,
    check_weights,
    planned,
)
from unseen.studies import archive, findings, study_report
from unseen.studies.engine import Study, StudyProgress
from unseen.studies.findings import Section
from unseen.studies.results import Results, read
from unseen.studies.study_file import Plan
from unseen.studies.what_was_trained import resolved_configs, trained
from unseen.training.run_folder import RunFolder

FILE, CLAIMS = "published.json", "claims.json"  # which study a folder holds, what it says
Message = Callable[[str, int, int], None]  # what, how many done, of how many
ByPlan = Mapping[str, Results]  # name of a plan -> its runs


@dataclass(frozen=True)
class Evidence:
    """What a page is made of. results: the runs by plan; those that kept their start count as not
    done. measured: what `measure` says of them."""

    ask: Ask
    results: ByPlan
    measured: dict[str, Any]

    @property
    def data(self) -> str:
        """The data set whose published values stand beside ours; empty: none."""
        return self.ask.published_data


class PublishedStudy(ABC):
    """A published study."""

    source: ClassVar[str]  # whose, and which table or figure
    shows: ClassVar[str]  # one line for the list
    usual_data: ClassVar[str] = "glyphs"
    origin: ClassVar[Source | None] = None  # what the source trains with

    @property
    def name(self) -> str:
        return type(self).__module__.rpartition(".")[2]

    @property
    def answers(self) -> list[str]:
        """The names of the claims that its page answers."""
        return [str(row["name"]) for row in table("claims") if row["study"] == self.name]

    def plans(self, ask: Ask) -> list[Plan]:
        """The studies it needs."""
        return []

    def measure(self, ask: Ask, results: ByPlan, progress: Message) -> dict[str, Any]:
        """What the scores of runs do not say, as plain values; stored, so that it is done once."""
        return {}

    def claims(self, evidence: Evidence) -> list[Claim]:
        """What the source says of its results, and what was measured of it."""
        return []

    @abstractmethod
    def sections(self, evidence: Evidence) -> list[Section]:
        """Tables and figures of the source beside ours, from stored values alone."""

    def differences(self, ask: Ask) -> list[str]:
        """What differs from the source for this request, beside its configs and notes."""
        return []

    def notes(self, ask: Ask) -> list[str]:
        """What numbers/notes.csv says of the study and of the request."""
        holds = {"": True, "quick": ask.is_quick, "smaller": not ask.is_as_published}
        words = {"data": ask.data, "published": ask.published_title, "set_up": ask.set_up_data}
        rows = [row for row in table("notes") if row["of"] == self.name]
        return [str(row["text"]).format(**words) for row in rows if holds[str(row["when"] or "")]]

    def origin_of(self, plan: str) -> Source | None:
        """What the source trains with in the runs of one of the plans."""
        return self.origin

    def setting_differences(self, ask: Ask, results: Mapping[str, Results] | None) -> list[str]:
        """Of finished runs, run by run; None: of those that are planned."""
        lines: list[str] = []
        plans = [plan.name for plan in self.plans(ask)] if results is None else list(results)
        origins = [origin for plan in plans if (origin := self.origin_of(plan)) is not None]
        for origin in {id(each): each for each in origins}.values():
            own = [plan for plan in plans if self.origin_of(plan) is origin]
            if results is None:
                compared = planned_configs(plan for plan in self.plans(ask) if plan.name in own)
            else:
                compared = run_configs(results[plan] for plan in own)
            lines += differences(origin, ask.set_up_data, compared)
            lines += origin.notes_of([config for each in compared for config in each.configs])
        return list(dict.fromkeys(lines))


@dataclass(frozen=True)
class Callbacks:
    """Who hears how it goes: a listener for each study, by its folder, and one for the rest."""

    study: Callable[[Path], AbstractContextManager[Callable[[StudyProgress], None]]] = field(
        default=lambda folder: nullcontext(lambda progress: None)
    )
    rest: Callable[[], AbstractContextManager[Message]] = field(
        default=lambda: nullcontext(lambda what, done, total: None)
    )


PAPERS = {
    "vo_hays": ("layers",),
    "li": ("density",),
    "roth": ("losses", "rho", "samplers", "parameters", "correlation", "mixup", "toy"),
    "jacob": ("horde",),
    "psomas": ("thesis", "classical"),
}


def names() -> list[str]:
    """The published studies there are."""
    return sorted(name for studies in PAPERS.values() for name in studies)


def find(name: str) -> PublishedStudy:
    """A published study by name; an unknown one names the nearest."""
    known(name, names(), "published study")
    paper = next(paper for paper, studies in PAPERS.items() if name in studies)
    module = import_module(f"unseen.reproductions.{paper}.{name}")
    made: PublishedStudy = getattr(module, name.capitalize())()
    return made


def run(
    published: PublishedStudy,
    ask: Ask,
    out: Path,
    jobs: int | None = None,
    callbacks: Callbacks | None = None,
) -> Path:
    """Runs what is missing and writes the page; returns where."""
    callbacks = callbacks or Callbacks()
    ask = replace(ask, of=ask.published_data, name=str(ask.table["name"]))
    folder = RunFolder(out / published.name)
    made = {
        plan.name: Study(plan) for plan in published.plans(ask)
    }  # all are checked before any runs
    check_weights(planned(study.plan for study in made.values()))
    stored = {"name": published.name, "ask": asdict(ask), "studies": list(made)}
    folder.write_json(FILE, stored)
    results = {}
    for name, study in made.items():
        place = out / "studies" / name
        with callbacks.study(place) as progress:
            results[name] = study.run(place, jobs=jobs, progress=progress)
        study_report.write(results[name])
    of = {"ask": asdict(ask), "runs": [_states(result) for result in results.values()]}
    of = json.loads(json.dumps(of))
    if not folder.has("measured.json") or folder.read_json("measured.json")["of"] != of:
        with callbacks.rest() as message:
            measured = published.measure(ask, _trained(results), message)
        folder.write_json("measured.json", {"of": of, "values": measured})
    return remake(folder.path)


def is_published(path: Path) -> bool:
    """Whether a folder holds a published study."""
    return (path / FILE).exists()


def remake(path: Path) -> Path:
    """The page again, from stored runs and measurements."""
    folder = RunFolder(path)
    published, ask, studies = _stored(folder)
    everything = {name: read(path.parent / "studies" / name) for name in studies}
    measured = folder.read_json("measured.json")["values"]
    evidence = Evidence(ask, _trained(everything), measured)
    claims = published.claims(evidence)
    data = ask.published_data or ask.table["name"]
    folder.write_json(CLAIMS, {"data": data, "claims": plain_rows(claims)})
    sections = [*published.sections(evidence), *start_section(everything)]
    if claims:
        sections = [claims_section(claims, data), *sections, *joined_section(_siblings(path))]
    return findings.write(
        folder,
        findings.Title(published.name, published.source, published.shows, command(published, ask)),
        sections,
        [
            *trained(resolved_configs(everything.values())),
            *published.setting_differences(ask, everything),
            *published.notes(ask),
            *published.differences(ask),
        ],
        everything,
    )


def _trained(results: Mapping[str, Results]) -> dict[str, Results]:
    return {name: without_start_runs(result) for name, result in results.items()}


def _siblings(path: Path) -> dict[str, list[dict[str, Any]]]:
    """The claims of the same study on other data sets, in folders beside that of its results."""
    by_data = {}
    for file in sorted(path.parent.parent.glob(f"*/{path.name}/{CLAIMS}")):
        stored = RunFolder(file.parent).read_json(CLAIMS)
        by_data[stored["data"]] = stored["claims"]
    return by_data


def _stored(folder: RunFolder) -> tuple[PublishedStudy, Ask, list[str]]:
    """What a folder holds: which one, of what, and the names of its studies."""
    stored = folder.read_json(FILE)
    published = find(stored["name"])
    ask = Ask(**stored["ask"] | {"settings": tuple(stored["ask"]["settings"])})
    return published, ask, stored["studies"]


def small_files_of(path: Path) -> dict[str, str]:
    """Name -> text of what is kept of a published study (`archive.py`); without its images."""
    folder = RunFolder(path)
    published, ask, studies = _stored(folder)
    result: dict[str, str] = {}
    keys: dict[str, str] = {}
    for name in studies:
        place = path.parent / "studies" / name
        keys |= archive.new_keys(read(place))
        files = archive.small_files_of(place)
        result |= {f"studies/{name}/{file}": text for file, text in files.items()}
    ask = replace(ask, name=ask.name or str(ask.table["name"]), of=ask.published_data)
    header = {"name": published.name, "ask": archive.moved(asdict(ask)), "studies": studies}
    measured = _without_images(folder.read_json("measured.json")["values"], keys)
    result[f"{published.name}/{FILE}"] = json.dumps(header)
    result[f"{published.name}/measured.json"] = json.dumps({"of": {}, "values": measured})
    return result


def _without_images(values: Any, keys: Mapping[str, str]) -> Any:
    """Measured values under the new keys of runs."""
    if isinstance(values, dict):
        return {keys.get(k, k): _without_images(v, keys) for k, v in values.items()}
    if isinstance(values, list):
        return [_without_images(value, keys) for value in values]
    return "" if isinstance(values, str) and values.startswith("data:") else values


def command(published: PublishedStudy, ask: Ask) -> str:
    """The command that makes it."""
    words = [
        "unseen",
        "study",
        "published",
        published.name,
        "--data",
        ask.data,
        "--budget",
        ask.budget,
    ]
    words += ["--seeds", str(ask.seeds)] if ask.seeds else []
    words += ["--tune"] if ask.tune else []
    return shlex.join([*words, *ask.settings])


def _states(results: Results) -> list[str]:
    return [f"{run.planned.key} {run.state}" for run in results.runs]
