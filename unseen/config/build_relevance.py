"""What "the same" means in a run: from the keys of `relevance` and the annotations of a data set to
a `Relevance`, and a split on no two sides of which anything is the same."""

import itertools
from typing import Any

import numpy as np

from unseen.config.schema import Config
from unseen.config.tables import Component, RelevanceSettings
from unseen.core import custom_components
from unseen.core.contracts import Dataset, IntArray, Split, annotations_of
from unseen.core.names import known
from unseen.core.reason import Reason
from unseen.core.relevance import (
    CLASSES,
    GradedPairs,
    Grades,
    KnownPairs,
    Labels,
    LabelSets,
    Levels,
    Relevance,
    same_classes,
)

LARGEST = 2000  # items of a class of a level that is evaluated by unasked: mAP@R looks as deep
_WHY = {
    "levels": "the data have levels",
    "label_sets": "the data have sets of labels",
    "pairs": "pairs are given",
    "graded": "grades are given",
}


def with_relevance(config: Config, dataset: Dataset, reasons: list[Reason]) -> Config:
    """The config with what counts as the same resolved, and how pairs of it are drawn."""
    relating = resolved_relevance(config, dataset)
    for what, is_set in (
        ("few shots", config.evaluation.shots),
        ("an open set", config.evaluation.open_set),
    ):
        if is_set:
            check_by_class(what, relating.kind)
    if config.data.relevance.kind == "auto" and relating.kind != "labels":
        reasons.append(Reason("relevance.kind", relating.kind, _WHY[relating.kind]))
    changed: dict[str, Any] = {"relevance": relating}
    if (drawn := _drawn_in_pairs(config, relating)) is not None:
        changed["sampler"] = drawn
        reasons.append(Reason("sampler.per_class", 2, "listed pairs are what is drawn"))
    return config.with_values(changed)


def listed_in(relating: RelevanceSettings, dataset: Dataset) -> Dataset:
    """The data set with the pairs that a config names."""
    from unseen.data.in_memory.pairs_file import GRADE, SAME, with_pairs  # noqa: PLC0415 - seldom named

    if relating.pairs is not None:
        return with_pairs(dataset, relating.pairs, SAME, 1.0)
    return with_pairs(dataset, str(relating.grades), GRADE, relating.from_grade)


def check_by_class(what: str, kind: str) -> None:
    """Stops what is drawn and evaluated by class where the same is no class."""
    if kind not in CLASSES:
        raise ValueError(
            f"{what}: drawn by class, and relevance.kind={kind} has none. Leave it out, or train "
            "on data with classes"
        )


def resolved_relevance(config: Config, dataset: Dataset) -> RelevanceSettings:
    """What counts as the same in the data. Every level but the class is evaluated by as well, the
    coarsest first."""
    annotations, settings = annotations_of(dataset), config.data.relevance
    result = {
        "graded": settings.grades is not None,
        "pairs": settings.pairs is not None,
        "label_sets": annotations.label_sets is not None,
        "levels": bool(annotations.levels),
        "labels": True,
    }
    kind: str = settings.kind
    if kind == "auto":
        kind = next(name for name, there in result.items() if there)
    elif not result[kind]:
        raise ValueError(
            f"relevance.kind={kind}: {dataset.name} has none, see docs/relevance.md for the "
            "columns they are read from"
        )
    for column in config.data.relevance.by:
        known(column, annotations.labels, f"label column of {dataset.name}")
    levels = [
        name
        for name in annotations.levels
        if np.bincount(annotations.labels[name]).max() <= LARGEST
        and not same_classes(annotations.labels[name], dataset.labels)
    ]
    by = list(dict.fromkeys([*levels, *settings.by]))
    return settings.model_copy(update={"by": by, "kind": kind})


def _drawn_in_pairs(config: Config, relating: RelevanceSettings) -> Component | None:
    """Where batches are drawn by listed pairs, a group has two items."""
    subset = config.sampler
    settings = "per_class" in subset.values or subset.preset is not None
    if not relating.is_listed or settings or subset.name not in ("m_per_class", "by_domain"):
        return None
    return Component(**{"name": subset.name} | subset.values | {"per_class": 2})


def relevance_of(config: Config, data: Dataset) -> Relevance:
    """Who is the same as whom among the items of a data set."""
    settings, annotations = config.data.relevance, annotations_of(data)
    made: Relevance
    if settings.kind == "label_sets" and annotations.label_sets is not None:
        made = LabelSets(annotations.label_sets, settings.least)
    elif settings.kind == "levels" and annotations.levels:
        made = hierarchy(data)
    elif settings.grades is not None and not settings.is_listed:
        made = Grades(custom_components.find(settings.grades), settings.from_grade)
    elif settings.kind == "pairs" and annotations.pairs is not None:
        made = KnownPairs(
            annotations.pairs[:, :2].astype(np.int64), annotations.pairs[:, 2] > 0, len(data)
        )
    elif settings.kind == "graded" and annotations.grades is not None:
        pairs, grades = annotations.grades[:, :2].astype(np.int64), annotations.grades[:, 2]
        made = GradedPairs(pairs, grades, len(data), settings.from_grade)
    else:
        made = Labels(data.labels)
    return made.sharded(data.labels)


def hierarchy(data: Dataset) -> Levels:
    """The levels of a data set and its class, which is one of them or the finest."""
    annotations = annotations_of(data)
    columns = {name: annotations.labels[name] for name in annotations.levels}
    own = [name for name, codes in columns.items() if same_classes(codes, data.labels)]
    if not own:
        columns["the class"] = data.labels
    names = list(columns)
    for above, below in itertools.pairwise(names):
        both = len(np.unique(np.stack([columns[above], columns[below]]), axis=1).T)
        if both > len(np.unique(columns[below])):
            raise ValueError(
                f"{data.name}: {below} is no level below {above}, some of it stands below two: "
                "relevance.kind=labels takes the class alone"
            )
    evaluated = names.index(own[-1]) + 1 if own else len(names)
    return Levels(np.stack(list(columns.values()), axis=1), evaluated)


def apart(split: Split, same: Relevance) -> tuple[Split, int]:
    """A split without items that are the same as some of another subset, and how many those are."""
    assert same.classes is not None, "`relevance_of` has said so"
    subset = np.full(len(same.classes), -1)
    for number, items in enumerate((split.train, split.validation, split.test)):
        subset[items] = number
    stays = ~same.crossing(subset)
    if stays.all():
        return split, 0
    place = np.cumsum(stays[split.test]) - 1  # among the test items that stay

    def renumbered(positions: IntArray | None) -> IntArray | None:
        return None if positions is None else place[positions[stays[split.test][positions]]]

    train, validation, test = (i[stays[i]] for i in (split.train, split.validation, split.test))
    left = Split(train, validation, test, renumbered(split.query), renumbered(split.gallery))
    return left, int((~stays).sum())
