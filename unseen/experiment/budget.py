"""A run that ends within its minutes: depth, picture sizes, epochs by what the machine does.

    head     the largest pictures that take HEAD of the minutes; alone, those that fit at all
    last     where it takes no more than LAST_SHARE of them
    whole    all minutes that are left, less those for judging and the report: the largest pictures
             that still get EPOCHS epochs, small ones first, judged a little larger than they were
             trained (H. Touvron et al., https://arxiv.org/abs/1906.06423). Where two thirds of the
             epochs are not better than their start, it ends and gives its minutes back
    larger   where whole gains nothing: a head on larger pictures, with their mirror images, in the
             minutes that came back: its size is chosen for these

What the user gave holds. The plan becomes part of the settled config, so that a run repeats without
the clock; where the machine turns out slower than measured, `clock.py` shortens it.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from unseen.config import Config, depth_of
from unseen.config_tables import Rung
from unseen.experiment.run_context import RunContext
from unseen.experiment.speed import Speeds, speeds_of
from unseen.networks.backbone import backbone_facts
from unseen.rungs import FIRST, LARGER, LAST, WHOLE, can_climb, cut_of_last_layers
from unseen.rungs import larger as larger_rung
from unseen.rungs import last as last_rung
from unseen.rungs import proxies as proxies_rung
from unseen.rungs import whole as whole_rung
from unseen.settle import settle

MINUTES = 20.0  # for photographs, unless given
CLASSES, PICTURES = 5, 400  # to validate and to train on; fewer do not say whether depth pays
USED = 0.92  # of the minutes: the rest is for what a plan does not foresee
HEAD, LAST_SHARE = 0.12, 0.1
EPOCHS, FEWEST, MOST = 10, 6, 30  # of the whole network: wanted, at least, at most
LAST_EPOCHS, LAST_VIEWS, LOOKS = 4, 2, 4
SMALLEST, TRAINED, STEP = 96, 112, 16  # pixels of a head's pictures, of the whole network's
LARGEST = 1.7  # pictures, in units of the network's own size
GROWING = (0.7, 0.85, 1.0)  # pictures over the epochs, in units of the last ones
FASTER = 1.2  # times as fast: bfloat16 is worth its rounding
JUDGED = 1.2  # the size they are judged at, in units of the last in training
START, TRAINING, REPORT, PER_ITEM = 10.0, 25.0, 25.0, 0.008  # seconds beside the network's own


@dataclass(frozen=True)
class Work:
    """What a plan is about: items, the network's own picture size and the one that was given."""

    minutes: float
    train: int
    validation: int
    test: int
    own: int
    given: int | None = None
    depth: str = "auto"


@dataclass(frozen=True)
class Plan:
    """size: of the head's pictures; mirror: whether it sees their mirror images, too. rungs: what
    the others change, with their minutes. steps: what each is to take, in the order they come."""

    size: int
    mirror: bool
    rungs: dict[str, dict[str, Any]]
    steps: dict[str, float]

    @property
    def minutes(self) -> float:
        """Of the longest way: the whole network, or one that gives up and a larger head."""
        first = sum(self.steps.get(name, 0.0) for name in (FIRST, LAST))
        ways = [self.steps.get(WHOLE, 0.0) + self.steps["judging"]]
        if LARGER in self.rungs:
            given_up = self.steps.get(WHOLE, 0.0) * _given_up(self.rungs)
            ways.append(given_up + self.steps[LARGER] + self.rungs[LARGER]["minutes_after"])
        return first + max(ways)


def plan(work: Work, speed: Speeds) -> Plan:
    """The longest training that fits."""
    return _Planner(work, speed).plan()


class _Planner:
    """All times in seconds."""

    def __init__(self, work: Work, speed: Speeds) -> None:
        self.work, self.speed = work, speed
        self.total = USED * 60 * work.minutes
        self.chosen = work.train + work.validation

    def plan(self) -> Plan:
        work, mirror = self.work, False
        size = _largest(self.sizes(1.0), lambda s: self.embed(s) <= HEAD * self.total)
        steps, rungs = {FIRST: START + self.embed(size) + TRAINING}, dict[str, dict[str, Any]]()
        if work.depth != FIRST:
            cost = self.last(size)
            fits = sum(steps.values()) + cost + self.judging(size, 1, size) <= self.total
            if work.depth == LAST or (fits and cost <= LAST_SHARE * self.total):
                rungs[LAST], steps[LAST] = {"epochs": LAST_EPOCHS, "views": LAST_VIEWS}, cost
        left = self.total - sum(steps.values())
        judging = self.judging(size, 1, size)
        if work.depth in ("auto", WHOLE) and (found := self.whole(left, size)) is not None:
            rungs[WHOLE], steps[WHOLE] = found
            judging = self.judging(rungs[WHOLE]["picture_size"], 2, size)
        if self.speed.bf16 >= FASTER:
            for values in rungs.values():
                values["precision"] = "bf16"
        if not rungs:  # a head is all there is time for: on the largest pictures that fit
            size = _largest(self.sizes(LARGEST), lambda s: self.alone(s) <= self.total)
            mirror = self.alone(size, 2) <= self.total
            steps = {FIRST: START + (1 + mirror) * self.embed(size) + TRAINING}
            judging = self.judging(size, 1 + mirror)
        else:
            left -= steps.get(WHOLE, 0.0) * _given_up(rungs)
            if (found := self.larger(left, size)) is not None:
                rungs[LARGER], steps[LARGER] = found
        steps["judging"] = judging
        minutes = {name: round(seconds / 60, 1) for name, seconds in steps.items()}
        after = dict.fromkeys(rungs, minutes["judging"])
        if LARGER in rungs:
            after[LARGER] = self.judging(rungs[LARGER]["picture_size"], 2, size) / 60
        if LAST in rungs:
            after[LAST] += minutes.get(WHOLE, 0.0) / 2
        for name, values in rungs.items():
            values |= {"minutes": minutes[name], "minutes_after": round(after[name], 1)}
        return Plan(size, mirror, rungs, minutes)

    def sizes(self, most: float) -> list[int]:
        """To choose from, the largest first."""
        if self.work.given is not None:
            return [self.work.given]
        return list(range(int(self.work.own * most) // STEP * STEP, SMALLEST - 1, -STEP))

    def embed(self, size: int) -> float:
        """All that is trained and validated on, once."""
        return self.chosen * self.speed.embed.at(size)

    def judging(self, size: int, passes: int, head: int | None = None) -> float:
        """The test classes through the network so often, once at the head's size if that is another
        training, as raw pixels; scores and report."""
        pictures = passes * self.speed.embed.at(size) + self.speed.embed.at(32)
        pictures += 0.0 if head is None else self.speed.embed.at(head)
        return self.work.test * (pictures + PER_ITEM) + REPORT

    def alone(self, size: int, passes: int = 1) -> float:
        return START + passes * self.embed(size) + TRAINING + self.judging(size, passes)

    def last(self, size: int) -> float:
        passes = LAST_VIEWS * self.work.train + 2 * self.work.validation
        steps = LAST_EPOCHS * self.chosen
        return passes * self.speed.embed.at(size) + steps * self.speed.rest.at(size)

    def whole(self, left: float, head: int) -> tuple[dict[str, Any], float] | None:
        """The largest pictures that get enough epochs; None: there is no time for the fewest."""
        found = None
        for size in reversed([s for s in self.sizes(1.0) if s >= TRAINED or self.work.given]):
            values = self.at(size)
            look = 4 * self.work.validation * self.speed.embed.at(values["picture_size"])
            time = left - self.judging(values["picture_size"], 2, head) - (LOOKS + 2) * look
            sizes = values["training_sizes"]
            each = self.work.train * float(np.mean([self.speed.train.at(s) for s in sizes]))
            epochs = min(MOST, int(time / each)) if time > 0 else 0
            if epochs >= (FEWEST if found is None else EPOCHS):
                every = -(-epochs // LOOKS)
                values |= {"epochs": epochs, "look_every": every}
                values |= {"patience": max(2 * every, 2 * epochs // 3)}
                found = values, epochs * each + (LOOKS + 2) * look
        return found

    def at(self, size: int) -> dict[str, Any]:
        """Sizes in training up to this one, and the size to judge at."""
        if self.work.given is not None:
            return {"picture_size": size, "training_sizes": [size]}
        growing = [round(size * share / STEP) * STEP for share in GROWING]
        judged = min(self.work.own, round(size * JUDGED / STEP) * STEP)
        return {"picture_size": max(size, judged), "training_sizes": growing}

    def larger(self, left: float, size: int) -> tuple[dict[str, Any], float] | None:
        def cost(s: int) -> float:
            return 2 * self.embed(s) + TRAINING

        def fits(s: int) -> bool:
            return cost(s) + self.judging(s, 2, size) <= left

        found = _largest(self.sizes(LARGEST), fits)
        if self.work.given is not None or found <= size or not fits(found):
            return None
        return {"picture_size": found, "mirror": True}, cost(found)


def _given_up(rungs: dict[str, dict[str, Any]]) -> float:
    """After which share of its epochs a whole network ends that is not better than its start."""
    whole = rungs.get(WHOLE)
    return 0.0 if whole is None else whole["patience"] / whole["epochs"]


def _largest(sizes: list[int], fits: Callable[[int], bool]) -> int:
    """The first that fits; the last where none does."""
    return next((size for size in sizes if fits(size)), sizes[-1])


def planned(context: RunContext, measure: Callable[[RunContext], Speeds] = speeds_of) -> RunContext:
    """A run with its plan: of photographs that a network knows, and where a budget was given."""
    asked = context.asked
    assert asked is not None, "a stored run is not planned again"
    minutes = asked.minutes
    if minutes is None and "minutes" not in asked.model_fields_set and _is_usual(asked):
        minutes = MINUTES
    if minutes is None or not _can_be_planned(context, asked):
        return context
    if asked.depth == "auto" and (few := _too_few(context)):
        return replace(context, reasons=[*context.reasons, f"depth = head: {few}"])
    config, made = context.config, context.processes.agreed(lambda: measure(_as_deep(context)))
    own, split = backbone_facts(config.backbone).input_spec.size, context.split
    given = asked.picture_size if isinstance(asked.picture_size, int) else None
    if context.device.type != "cpu":  # no need to make pictures smaller than a network wants them
        given = given or own
    counts = (len(split.train), len(split.validation), len(split.test))
    work = Work(minutes, *counts, own, given, asked.depth)
    found = plan(work, made)
    values: dict[str, Any] = {"minutes": minutes, "picture_size": found.size}
    values["ladder"] = _rungs(asked, found, config.backbone)
    free = {"refit": True, "mirror": found.mirror}
    values |= {key: value for key, value in free.items() if key not in asked.model_fields_set}
    values["depth"] = WHOLE if WHOLE in found.rungs else LAST if LAST in found.rungs else FIRST
    settled, reasons = settle(asked.model_copy(update=values), context.dataset)
    data = [line for line in context.reasons if line.startswith("data.")]
    told = _reasons(work, found, made, is_usual=asked.minutes is None)
    return replace(context, config=settled, reasons=data + reasons + told, plan=told)


def _as_deep(context: RunContext) -> RunContext:
    """With the processes and threads of a run that trains all layers, where it may."""
    assert context.asked is not None
    if context.asked.depth not in ("auto", WHOLE):
        return context
    trial, _ = settle(context.asked.model_copy(update={"depth": WHOLE}), context.dataset)
    return replace(context, config=trial)


def _is_usual(asked: Config) -> bool:
    """Nothing was said about how deep or how long to train."""
    return "auto" == asked.depth == asked.freeze_until == asked.epochs and not asked.ladder


def _can_be_planned(context: RunContext, asked: Config) -> bool:
    is_head = depth_of(context.config.freeze_until) == FIRST
    is_open = asked.freeze_until == "auto" and not asked.ladder
    return is_head and is_open and can_climb(context.config)


def _too_few(context: RunContext) -> str:
    """Why these data do not say whether depth pays, in words; nothing where they do."""
    split = context.split
    classes, pictures = len(np.unique(context.dataset.labels[split.validation])), len(split.train)
    if classes >= CLASSES and pictures >= PICTURES:
        return ""
    return (
        f"{classes:,} validation classes and {pictures:,} training pictures do not say whether "
        f"more pays, {CLASSES} and {PICTURES} would"
    )


def _rungs(asked: Config, found: Plan, backbone: str) -> list[Rung]:
    """In the order they are climbed."""
    made = proxies_rung(asked) if {LAST, WHOLE} & found.rungs.keys() else []
    for name, values in found.rungs.items():
        if name == LAST:
            made.append(last_rung(asked, cut_of_last_layers(backbone, found.size), **values))
        elif name == WHOLE:
            made.append(whole_rung(asked, **values))
        else:
            made.append(larger_rung(asked, **values))
    return made


def _reasons(work: Work, found: Plan, speed: Speeds, is_usual: bool) -> list[str]:
    size = found.rungs.get(WHOLE, {}).get("training_sizes", [work.own])[-1]
    embeds, trains = (
        f"{1 / line.at(at):,.0f}" for line, at in ((speed.embed, work.own), (speed.train, size))
    )
    why = "unless given, minutes=none trains the head alone" if is_usual else "as asked"
    steps = ", ".join(f"{name} {minutes:g}" for name, minutes in found.steps.items())
    lines = [
        f"minutes = {work.minutes:g}: {why}",
        f"speed: {embeds} pictures/s embedded at {work.own} px, {trains} trained at {size} px",
        f"plan: {steps} minutes, {found.minutes:.1f} of {work.minutes:g} at most",
    ]
    if found.minutes > work.minutes:
        lines.append(f"plan: {work.minutes:g} minutes are too few for so many pictures")
    return lines
