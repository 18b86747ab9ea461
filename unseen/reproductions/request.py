"""What a user asks of a published study, and the plans that follow."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from unseen.config import find_data
from unseen.config import schema as configs
from unseen.data.arrays import Arrays
from unseen.reproductions.differences import differences, planned_configs
from unseen.reproductions.source_values import (
    IN_SHOP,
    OF_BATCHES,
    OF_LENGTH,
    OF_NETWORK,
    THREE,
    Source,
    set_up,
)
from unseen.studies import study_file as plans
from unseen.studies.study_file import Plan, Values

TUNING: Values = {  # with --tune, where a rate is not the source's
    "mode": "tpe",
    "trials": 8,
    "parameters": [{"key": "lr", "low": 1e-5, "high": 1e-2, "log": True}],
}
TUNED_ON = 0.3  # of the training classes: 30 of a hundred decide on the rate
Budget = Literal["quick", "full"]
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
