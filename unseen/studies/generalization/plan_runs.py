"""What a study of generalisation runs: methods by steps of splits of growing shift, by seeds.

A method is a loss, or a loss with regularizers: `margin`, `multi_similarity+s2sd`. Each trains a
head on frozen features, or layers of a network on images, its learning rate tuned for each step
on validation classes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from unseen.config import schema as configs
from unseen.core.contracts import IntArray
from unseen.core.names import by_front_end, known
from unseen.core.registry import names
from unseen.evaluation.shift_splits import ShiftSplits
from unseen.studies import study_file as plans
from unseen.studies.study_file import Plan, Values
from unseen.studies.validity_checks import MIN_VALIDATION

NAME = "generalization"
METHOD, STEP = "method", "shift.step"
USUAL = (
    "multi_similarity",
    "margin",
    "triplet",
    "contrastive",
    "proxy_anchor",
    "normalized_softmax",
    "supcon",
    "roadmap",
    "multi_similarity+s2sd",
    "multi_similarity+metrix",
)
SMALLER = {"s2sd": {"sizes": [512]}}  # one teacher: four cost more than all else of a head's step
RATES = (3e-5, 1e-4, 3e-4, 1e-3, 3e-3)  # those around the usual one where fewer are tried
HEAD_RATE = 3e-4
VALIDATION = 0.4  # share of the training classes: conclusions ask for 30 to tune on
EPOCHS, EMBEDDING = 15, 128
Budget = Literal["quick", "usual", "full"]
SIZES = {"quick": (3, 3, 3), "usual": (5, 3, 3), "full": (5, 5, 3)}  # steps, seeds, trials
FEW, LEFT = (5, 2), 2  # shots that are tried, and what a class must keep


@dataclass(frozen=True)
class Size:
    """How much is run. shots: of each test class, to adapt the last layer; 0: none. Shots and the
    open set are for the first and the last step: they take longer than the training of a head."""

    steps: tuple[int, ...]
    seeds: int
    trials: int
    shots: int = 5

    @property
    def ends(self) -> list[int]:
        return sorted({self.steps[0], self.steps[-1]})


@dataclass(frozen=True)
class Layers:
    """Where layers are trained on images. table: of the stages. of: the descriptors it was made
    with. rate: the usual one of what is trained."""

    table: str
    of: str
    rate: float


def methods_of(words: Sequence[str]) -> dict[str, Values]:
    """Their settings by name; all usual ones without a word."""
    result = {}
    for word in words or USUAL:
        loss, *regularizers = word.split("+")
        known(loss, names("losses"), "loss")
        for each in regularizers:
            known(each, names("regularizers"), "regularizer")
        settings = [{"name": each} | SMALLER.get(each, {}) for each in regularizers]
        result[word] = {"loss": loss} | ({"regularizers": settings} if settings else {})
    if len(result) < 2:
        raise ValueError(
            "a comparison needs two methods: "
            + by_front_end(
                "--methods margin,proxy_anchor,...", 'methods=("margin", "proxy_anchor", ...)'
            )
        )
    return result


def usable_steps(stages: ShiftSplits) -> tuple[int, ...]:
    """Those with classes enough to tune on, where there are three; otherwise all."""
    enough = [s.step for s in stages.steps if VALIDATION * len(s.train) >= MIN_VALIDATION]
    return tuple(enough) if len(enough) > 2 else tuple(s.step for s in stages.steps)


def shots_for(labels: IntArray) -> int:
    """The most shots that half of the classes can spare."""
    sizes = np.bincount(labels)
    middle = int(np.median(sizes[sizes > 0]))
    return next((shots for shots in FEW if middle >= shots + LEFT), 0)


def size_of(budget: Budget, steps: Sequence[int], shots: int) -> Size:
    """How much a budget runs, of these steps."""
    number, seeds, trials = SIZES[budget]
    return Size(_spread(steps, number), seeds, trials, shots)


def plan_of(
    data: Values,
    methods: Sequence[str],
    size: Size,
    settings: Sequence[str] = (),
    layers: Layers | None = None,
) -> Plan:
    """data: features as a part of a config, or images, with `layers`. settings: words of the
    user, for every run."""
    trained = "heads on frozen features" if layers is None else "layers trained on images"
    values: Values = {
        "data": data,
        "protocol": "shift",
        "validation_fraction": VALIDATION,
        "embedding_size": EMBEDDING,
        "epochs": EPOCHS,
        "metrics": ["recall@1", "map_at_r"],
        "shots": [size.shots] if size.shots else [],
        "open_set": True,
    } | ({} if layers is None else {"shift": {"table": layers.table}})
    less: Values = {"shots": [], "open_set": False}
    steps = {str(step): {STEP: step} | ({} if step in size.ends else less) for step in size.steps}
    made: Values = {
        "name": NAME,
        "about": f"How methods hold up as the distribution shifts: {trained}.",
        "seeds": list(range(size.seeds)),
        "config": configs.override(values, list(settings)),
        "factors": {METHOD: methods_of(methods), STEP: steps},
    }
    if size.trials:
        usual = HEAD_RATE if layers is None else layers.rate
        rates = sorted(sorted(RATES, key=lambda rate: abs(np.log(rate / usual)))[: size.trials])
        tuned = {"mode": "coordinate", "parameters": [{"key": "lr", "values": rates}]}
        made["search"] = tuned | {"config": less}
    return plans.make(made)


def _spread(steps: Sequence[int], number: int) -> tuple[int, ...]:
    """So many of them, the first and the last among them."""
    places = np.linspace(0, len(steps) - 1, min(number, len(steps))).round().astype(int)
    return tuple(steps[place] for place in dict.fromkeys(places.tolist()))
