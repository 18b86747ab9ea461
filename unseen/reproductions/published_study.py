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
from typing import Any, ClassVar, Literal

from unseen.config import find_data
from unseen.config import schema as configs
from unseen.core.registry import known
from unseen.data.arrays import Arrays
from unseen.reproductions.claims import Claim, claims_section, joined_section, plain_rows
from unseen.reproductions.differences import differences, planned_configs, run_configs
from unseen.reproductions.numbers import table
from unseen.reproductions.source_values import (
    IN_SHOP,
    OF_BATCHES,
    OF_LENGTH,
    OF_NETWORK,
    THREE,
    Source,
    check_weights,
    planned,
    set_up,
)
from unseen.studies import archive, findings, study_report
from unseen.studies import study_file as plans
from unseen.studies.engine import Study, StudyProgress
from unseen.studies.findings import Section
from unseen.studies.results import Results, read
from unseen.studies.study_file import Plan, Values
from unseen.studies.what_was_trained import resolved_configs, trained
from unseen.training.run_folder import RunFolder

FILE, CLAIMS = "published.json", "claims.json"  # which study a folder holds, what it says
TUNING: Values = {  # with --tune, where a rate is not the source's
    "mode": "tpe",
    "trials": 8,
    "parameters": [{"key": "lr", "low": 1e-5, "high": 1e-2, "log": True}],
}
TUNED_ON = 0.3  # of the training classes: 30 of a hundred decide on the rate
Budget = Literal["quick", "full"]
Message = Callable[[str, int, int], None]  # what, how many done, of how many
METRICS = ["recall@1", "recall@2", "f1", "revisit_map", "nmi"]  # the columns of most sources
PUBLISHED = (*THREE, IN_SHOP)  # data sets that sources have tables of
CHARACTERS = ("glyphs", "omniglot", "mnist_like")  # small images, networks from nothing
EPOCHS = {  # where they are not the source's
    "features": {"quick": 8},
    "photographs": {"quick": 4},
    "characters": {"quick": 4, "full": 30},
}
LEFT_OUT = {  # of a source's values, by what is trained
    "quick": (*OF_NETWORK, *OF_LENGTH, *OF_BATCHES),
    "characters": (*OF_NETWORK, *OF_LENGTH),  # no source has trained a network from nothing on them
    "features": OF_NETWORK,
    "photographs": (),
}


@dataclass(frozen=True)
class Ask:
    """What a user asks for. settings: `key=value` words for every run. seeds: how many; 0: as the
    study says. of: the data set that the data are; empty: what they say themselves. name: of the
    part of a config that reads them; for pages that are made where the data are not. tune: the rate
    of every method first, on validation classes."""

    data: str
    budget: Budget = "quick"
    settings: tuple[str, ...] = ()
    seeds: int = 0
    of: str = ""
    name: str = ""
    tune: bool = False

    @property
    def table(self) -> dict[str, Any]:
        """The data as a part of a config."""
        is_missing = self.name and not Path(self.data).exists()
        return {"name": self.name} if is_missing else find_data.data_table(self.data)

    @property
    def is_quick(self) -> bool:
        return self.budget == "quick"

    @property
    def has_images(self) -> bool:
        return self.table["name"] != "arrays"

    @property
    def kind(self) -> str:
        """What is trained: a head on features, a network on characters or on photographs."""
        name = self.table["name"]
        return {"arrays": "features"}.get(
            name, "characters" if name in CHARACTERS else "photographs"
        )

    @property
    def is_as_published(self) -> bool:
        """Whether the source's own network, rates and epochs are asked for."""
        return not self.is_quick and self.kind == "photographs"

    def set_up(self, source: Source) -> Values:
        """What the source trains with, as far as the budget and the data let us."""
        left_out = LEFT_OUT["quick" if self.is_quick else self.kind]
        epochs = {"epochs": EPOCHS[self.kind].get(self.budget)}
        return epochs | set_up(source, self.set_up_data, left_out)

    def epochs(self, source: Source) -> int:
        """Of each run, with the user's word."""
        request = configs.override(self.set_up(source), list(self.settings))
        return int(request["epochs"])

    @property
    def published_data(self) -> str:
        """The data set whose published values stand beside ours: the one that the images, or the
        images of the features, are; empty where that is not known or nothing was published."""
        table = self.table
        name = self.of or str(table["name"])
        if name == "arrays" and Path(table.get("root", "")).is_file():
            name = Arrays.source(table["root"])
        return name if name in PUBLISHED else ""

    @property
    def set_up_data(self) -> str:
        """The data set whose values are taken where sources have other ones for each."""
        return self.published_data or THREE[0]

    @property
    def published_title(self) -> str:
        """For sentences and the list of differences."""
        return self.published_data or "no published data set"

    def plan(
        self,
        name: str,
        about: str,
        factors: Mapping[str, Any],
        config: Values | None = None,
        seeds: int = 2,
        *,
        source: Source,
        **rest: Any,
    ) -> Plan:
        """A plan on the data: the set-up of all of them, the source's, `config`, then the user's
        words. The rates count as tuned where every setting is the source's."""
        values: Values = {
            "data": self.table,
            "protocol": "fixed_validation",
            "embedding_size": 128,
            "metrics": METRICS,
        }
        values |= self.set_up(source) | (config or {})
        if self.tune and "search" not in rest:
            values |= {"select": "validation", "refit": False, "validation_fraction": TUNED_ON}
            rest["search"] = TUNING
        values = configs.override(values, list(self.settings))
        chosen = list(range(self.seeds or seeds))
        plan = plans.make(
            {"name": name, "about": about, "seeds": chosen, "config": values, "factors": factors}
            | rest
        )
        is_theirs = self.is_as_published and not differences(
            source, self.set_up_data, planned_configs([plan])
        )
        return plan.model_copy(update={"tuned_by": source.title}) if is_theirs else plan


class PublishedStudy(ABC):
    """A published study."""

    source: ClassVar[str]  # whose, and which table or figure
    shows: ClassVar[str]  # one line for the list
    usual_data: ClassVar[str] = "glyphs"
    origin: ClassVar[Source | None] = None  # what the source trains with
    answers: ClassVar[tuple[str, ...]] = ()  # which of its claims, by name

    @property
    def name(self) -> str:
        return type(self).__module__.rpartition(".")[2]

    def plans(self, ask: Ask) -> list[Plan]:
        """The studies it needs."""
        return []

    def measure(
        self, ask: Ask, results: Mapping[str, Results], progress: Message
    ) -> dict[str, Any]:
        """What the scores of runs do not say, as plain values; stored, so that it is done once."""
        return {}

    def claims(
        self, ask: Ask, results: Mapping[str, Results], measured: dict[str, Any]
    ) -> list[Claim]:
        """What the source says of its results, and what was measured of it."""
        return []

    @abstractmethod
    def sections(
        self, ask: Ask, results: Mapping[str, Results], measured: dict[str, Any]
    ) -> list[Section]:
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
            measured = published.measure(ask, results, message)
        folder.write_json("measured.json", {"of": of, "values": measured})
    return remake(folder.path)


def is_published(path: Path) -> bool:
    """Whether a folder holds a published study."""
    return (path / FILE).exists()


def remake(path: Path) -> Path:
    """The page again, from stored runs and measurements."""
    folder = RunFolder(path)
    published, ask, studies = _stored(folder)
    results = {name: read(path.parent / "studies" / name) for name in studies}
    measured = folder.read_json("measured.json")["values"]
    claims = published.claims(ask, results, measured)
    data = ask.published_data or ask.table["name"]
    folder.write_json(CLAIMS, {"data": data, "claims": plain_rows(claims)})
    sections = published.sections(ask, results, measured)
    if claims:
        sections = [claims_section(claims, data), *sections, *joined_section(_siblings(path))]
    return findings.write(
        folder,
        findings.Title(published.name, published.source, published.shows, command(published, ask)),
        sections,
        [
            *trained(resolved_configs(results.values())),
            *published.setting_differences(ask, results),
            *published.notes(ask),
            *published.differences(ask),
        ],
        results,
    )


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
    message = {"name": published.name, "ask": archive.moved(asdict(ask)), "studies": studies}
    measured = _without_images(folder.read_json("measured.json")["values"], keys)
    result[f"{published.name}/{FILE}"] = json.dumps(message)
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
