"""The longest training that fits into a time budget: depth, image sizes, epochs.

head                  the largest images that take HEAD of the minutes; alone, those that fit at all
last_layers           where it takes no more than LAST_FRACTION of them
full                  all minutes that are left, less those for evaluation and the report: the
                      largest images that still get EPOCHS epochs, small ones first, evaluated a
                      little larger than they were trained (H. Touvron et al.,
                      https://arxiv.org/abs/1906.06423). Where its first validation is behind its
                      start, or not on its way to surpass the best stage, it stops early and gives
                      its minutes back
bigger_backbone_head  a head on larger images, with their mirror images, of a bigger network where
                      one is installed: where `full` gains nothing, in the minutes that came back.
                      Where `full` has images of ROOMY of the network's own size even so,
                      BIGGER_FRACTION of the minutes are reserved for it, and validation classes
                      choose between the two
full_low_lr           likewise every layer of the bigger network, in the minutes that `full` gives
                      back; the bigger head's images are smaller where only that leaves time for it

Numbers in, numbers out: `time_budget.py` makes stages of it.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from unseen.config.stages import BIGGER, FIRST, FULL, FULL_LOW_LR, LAST_LAYERS
from unseen.runs.speed import Line, Speeds

USED = 0.92  # of the minutes: the rest is for what a plan does not foresee
HEAD, LAST_FRACTION, BIGGER_FRACTION = 0.12, 0.1, 0.2
EPOCHS, FEWEST, MOST = 10, 6, 30  # of the whole network: wanted, at least, at most
LAST_EPOCHS, LAST_AUGMENTATIONS, VALIDATIONS = 4, 2, 4
LOW_LR_FEWEST, LOW_LR_MOST = 3, 8
LOW_LR_LEAST = 0.9  # its images in training, in units of the network's own size: docs/depth.md
SHRUNK = 0.75  # images of full_low_lr in training, over those it is evaluated at
SMALLEST, TRAINED, STEP = 96, 112, 16  # pixels of a head's images, of the whole network's
LARGEST = 1.5  # images, in units of the network's own size: recipes/cub_laptop.toml
ROOMY = 0.7  # likewise: what the whole network is trained at where a larger head is tried as well
GROWING = (0.7, 0.85, 1.0)  # images over the epochs, in units of the last ones
EVALUATED = 1.2  # the size they are evaluated at, in units of the last in training
START, TRAINING, REPORT, PER_ITEM = 20.0, 25.0, 25.0, 0.008  # seconds beside the network's own


@dataclass(frozen=True)
class Work:
    """What a plan is about: items, the network's own image size and the one that was given."""

    minutes: float
    train: int
    validation: int
    test: int
    own: int
    fixed_size: int | None = None
    bigger: tuple[str, int] | None = None  # a larger network, and its own image size
    depth: str = "auto"


@dataclass(frozen=True)
class Plan:
    """size: of the head's images; mirror: whether it sees their mirror images, too. stages: what
    the others change, with their minutes. steps: what each is to take, in the order they come.
    minutes: the longest way, which is not all of them where one comes only instead of another."""

    size: int
    mirror: bool
    stages: dict[str, dict[str, Any]]
    steps: dict[str, float]
    minutes: float


@dataclass(frozen=True)
class Step:
    """A stage that fits. seconds: to train it; evaluation: after all, where it is the one kept."""

    values: dict[str, Any]
    seconds: float
    evaluation: float

    @property
    def until_stop(self) -> float:
        """Seconds after which a whole network ends that is not on its way to gain."""
        return self.seconds * self.values["gain_by"] / self.values["epochs"]


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
        size = _largest(self.sizes(1.0), lambda s: self.embed(s) <= HEAD * self.total)
        first = START + self.embed(size) + TRAINING
        stages = self.deeper(size, first)
        if not stages:
            return self.head_alone()
        last, full, bigger, low_lr = map(stages.get, (LAST_LAYERS, FULL, BIGGER, FULL_LOW_LR))
        evaluation = full.evaluation if full else self.evaluation(size, 1, size)
        after = {name: stage.evaluation for name, stage in stages.items()}
        way = first + (last.seconds if last else 0.0)
        trained, until_stop = (full.seconds, full.until_stop) if full else (0.0, 0.0)
        ways = [way + trained + evaluation]
        if bigger is not None:
            is_beside = bigger.values["after"] == "any"
            ways.append(
                way + (trained if is_beside else until_stop) + bigger.seconds + bigger.evaluation
            )
            if full is not None and is_beside:
                after[FULL] = bigger.seconds + max(evaluation, bigger.evaluation)
            if low_lr is not None:
                ways.append(way + until_stop + bigger.seconds + low_lr.seconds + low_lr.evaluation)
        if last is not None and full is not None:
            after[LAST_LAYERS] = after[FULL] + full.seconds / 2
        seconds = {FIRST: first} | {name: stage.seconds for name, stage in stages.items()}
        seconds["evaluation"] = max([evaluation, *(stage.evaluation for stage in stages.values())])
        values = {
            name: stage.values
            | {
                "minutes": _minutes(stage.seconds),
                "minutes_after": _minutes(after[name]),
                "minutes_evaluating": _minutes(stage.evaluation),
            }
            for name, stage in stages.items()
        }
        steps = {name: _minutes(value) for name, value in seconds.items()}
        return Plan(size, False, values, steps, max(ways) / 60)

    def head_alone(self) -> Plan:
        """A head is all there is time for: on the largest images that fit."""

        def trained(size: int, passes: int) -> float:
            return START + passes * self.embed(size) + TRAINING

        def alone(size: int, passes: int = 1) -> float:
            return trained(size, passes) + self.evaluation(size, passes)

        size = _largest(self.sizes(LARGEST), lambda s: alone(s) <= self.total)
        passes = 2 if alone(size, 2) <= self.total else 1
        steps = {FIRST: trained(size, passes), "evaluation": self.evaluation(size, passes)}
        minutes = {name: _minutes(seconds) for name, seconds in steps.items()}
        return Plan(size, passes == 2, {}, minutes, alone(size, passes) / 60)

    def deeper(self, size: int, first: float) -> dict[str, Step]:
        """The stages below a head with images of this size, which takes so long."""
        if self.work.depth == FIRST:
            return {}
        result, left = dict[str, Step](), self.total - first
        last = self.last_layers(size)
        fits = last.seconds + last.evaluation <= left and last.seconds <= LAST_FRACTION * self.total
        if fits or self.work.depth == LAST_LAYERS:
            result[LAST_LAYERS] = last
            left -= last.seconds
        if self.work.depth != LAST_LAYERS:
            result |= self.both(left, size) or self.full(left, size)
        if result and BIGGER not in result:
            left -= result[FULL].until_stop if FULL in result else 0.0
            if heads := self.bigger_heads(left, left, size, after="no gain"):
                result[BIGGER] = heads[0]
        if self.speed.bf16:
            for name in result.keys() & {LAST_LAYERS, FULL, FULL_LOW_LR}:
                result[name].values["precision"] = "bf16"
        return result

    def sizes(self, most: float, own: int | None = None) -> list[int]:
        """To choose from, the largest first."""
        if self.work.fixed_size is not None:
            return [self.work.fixed_size]
        return list(range(int((own or self.work.own) * most) // STEP * STEP, SMALLEST - 1, -STEP))

    def embed(self, size: int, line: Line | None = None) -> float:
        """All that is trained and validated on, once."""
        return self.chosen * (line or self.speed.embed).at(size)

    def evaluation(
        self, size: int, passes: int, head: int | None = None, line: Line | None = None
    ) -> float:
        """The test classes through the network so often, once at the head's size if that is another
        training, as raw pixels; scores and report."""
        images = passes * (line or self.speed.embed).at(size) + self.speed.embed.at(32)
        images += 0.0 if head is None else self.speed.embed.at(head)
        return self.work.test * (images + PER_ITEM) + REPORT

    def last_layers(self, size: int) -> Step:
        passes = LAST_AUGMENTATIONS * self.work.train + 2 * self.work.validation
        steps = LAST_EPOCHS * self.chosen
        seconds = passes * self.speed.embed.at(size) + steps * self.speed.rest.at(size)
        values = {"epochs": LAST_EPOCHS, "cached_augmentations": LAST_AUGMENTATIONS}
        return Step(values, seconds, self.evaluation(size, 1, size))

    def both(self, left: float, head: int) -> dict[str, Step]:
        """The whole network and a larger head, where that leaves images that are not small; of
        the heads the largest whose network can be trained gently as well, else the largest."""
        result = dict[str, Step]()
        for bigger in self.bigger_heads(BIGGER_FRACTION * self.total, left, head, after="any"):
            full = self.full(left - bigger.seconds, head, least=bigger.evaluation)
            if not full or full[FULL].values["training_sizes"][-1] < ROOMY * self.work.own:
                return {}
            low_lr = self.low_lr(left - full[FULL].until_stop - bigger.seconds, bigger)
            if low_lr or not result:
                result = full | {BIGGER: bigger} | low_lr
            if low_lr:
                break
        return result

    def full(self, left: float, head: int, least: float = 0.0) -> dict[str, Step]:
        """The largest images that get enough epochs; none: there is no time for the fewest.
        least: seconds that evaluation takes in any case."""
        result = dict[str, Step]()
        for size in reversed([s for s in self.sizes(1.0) if s >= TRAINED or self.work.fixed_size]):
            values = self.at(size)
            seconds = 4 * self.work.validation * self.speed.embed.at(values["image_size"])
            evaluation = self.evaluation(values["image_size"], 2, head)
            time = left - max(evaluation, least) - (VALIDATIONS + 2) * seconds
            sizes = values["training_sizes"]
            each = self.work.train * float(np.mean([self.speed.train.at(s) for s in sizes]))
            epochs = min(MOST, int(time / each)) if time > 0 else 0
            if epochs >= (EPOCHS if result else FEWEST):
                every = -(-epochs // VALIDATIONS)
                values |= {"epochs": epochs, "validate_every": every}
                values |= {"gain_by": every, "patience": max(2 * every, 2 * epochs // 3)}
                total = epochs * each + (VALIDATIONS + 2) * seconds
                result[FULL] = Step(values, total, evaluation)
        return result

    def at(self, size: int) -> dict[str, Any]:
        """Sizes in training up to this one, and the size to evaluate at."""
        if self.work.fixed_size is not None:
            return {"image_size": size, "training_sizes": [size]}
        growing = [round(size * fraction / STEP) * STEP for fraction in GROWING]
        evaluated = min(self.work.own, round(size * EVALUATED / STEP) * STEP)
        return {"image_size": max(size, evaluated), "training_sizes": growing}

    def bigger_heads(self, most: float, left: float, head: int, after: str) -> list[Step]:
        """Heads on images that are larger than those of the first one, take `most`, and fit into
        what is left with evaluation, the largest first: of the larger network, else of the same."""
        if self.work.fixed_size is not None:
            return []
        networks: list[tuple[dict[str, Any], int, Line]] = [({}, self.work.own, self.speed.embed)]
        if self.work.bigger is not None and self.speed.bigger is not None:
            name, own = self.work.bigger
            networks = [({"backbone": name}, own, self.speed.bigger), *networks]
        for network, own, line in networks:
            result = list[Step]()
            for size in (size for size in self.sizes(LARGEST, own) if size > head):
                seconds = 2 * self.embed(size, line) + TRAINING
                evaluation = self.evaluation(size, 2, head, line)
                if seconds <= most and seconds + evaluation <= left:
                    values = {"image_size": size, "mirror": True, "after": after} | network
                    result.append(Step(values, seconds, evaluation))
            if result:
                return result
        return []

    def low_lr(self, left: float, head: Step) -> dict[str, Step]:
        """Every layer of the network of a larger head, evaluated on its images, in what is left;
        not on images so small that it gains nothing."""
        evaluated, embed, train = head.values["image_size"], self.speed.embed, self.speed.train
        line, own = embed, self.work.own
        if "backbone" in head.values and self.work.bigger and self.speed.bigger:
            line, own = self.speed.bigger, self.work.bigger[1]
        slower = replace(train, per_area=train.per_area * line.per_area / (embed.per_area or 1.0))
        once = line.at(evaluated)  # seconds for an image as evaluated
        validations = 10 * self.work.validation * once  # before, after; twice with training
        evaluation = head.evaluation + 2 * self.work.test * once  # the head's start as well
        size = int(SHRUNK * evaluated) // STEP * STEP
        each = self.work.train * slower.at(size)
        epochs = min(LOW_LR_MOST, int((left - evaluation - validations) / each))
        if size < LOW_LR_LEAST * own or epochs < LOW_LR_FEWEST:
            return {}
        values = {"epochs": epochs, "validate_every": epochs, "training_sizes": [size]}
        return {FULL_LOW_LR: Step(values, epochs * each + validations, evaluation)}


def _minutes(seconds: float) -> float:
    return round(seconds / 60, 1)


def _largest(sizes: list[int], fits: Callable[[int], bool]) -> int:
    """The first that fits; the last where none does."""
    return next((size for size in sizes if fits(size)), sizes[-1])
