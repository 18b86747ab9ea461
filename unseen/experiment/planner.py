"""The longest training that fits into minutes: depth, picture sizes, epochs.

    head     the largest pictures that take HEAD of the minutes; alone, those that fit at all
    last     where it takes no more than LAST_SHARE of them
    whole    all minutes that are left, less those for judging and the report: the largest pictures
             that still get EPOCHS epochs, small ones first, judged a little larger than they were
             trained (H. Touvron et al., https://arxiv.org/abs/1906.06423). Where its first look
             is behind its start, or not on its way to surpass the best rung, it ends and gives its
             minutes back
    larger   a head on larger pictures, with their mirror images, of a larger network where one is
             installed: where whole gains nothing, in the minutes that came back. Where whole has
             pictures of ROOMY of the network's own size even so, LARGER_SHARE of the minutes are
             kept for it, and the better of the two is found out
    gentle   likewise every layer of the larger network, in the minutes that whole gives back; the
             pictures of larger are smaller where only that leaves time for it

Numbers in, numbers out: what a run makes of it is in `budget.py`.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from unseen.experiment.speed import Line, Speeds
from unseen.rungs import FIRST, GENTLE, LARGER, LAST, WHOLE

USED = 0.92  # of the minutes: the rest is for what a plan does not foresee
HEAD, LAST_SHARE, LARGER_SHARE = 0.12, 0.1, 0.2
EPOCHS, FEWEST, MOST = 10, 6, 30  # of the whole network: wanted, at least, at most
LAST_EPOCHS, LAST_VIEWS, LOOKS = 4, 2, 4
GENTLE_FEWEST, GENTLE_MOST = 3, 8
GENTLE_LEAST = 0.9  # its pictures in training, in units of the network's own size: docs/depth.md
SHRUNK = 0.75  # a gentle network's pictures in training, over those it is judged at
SMALLEST, TRAINED, STEP = 96, 112, 16  # pixels of a head's pictures, of the whole network's
LARGEST = 1.5  # pictures, in units of the network's own size: recipes/cub_laptop.toml
ROOMY = 0.7  # likewise: what the whole network is trained at where a larger head is tried as well
GROWING = (0.7, 0.85, 1.0)  # pictures over the epochs, in units of the last ones
JUDGED = 1.2  # the size they are judged at, in units of the last in training
START, TRAINING, REPORT, PER_ITEM = 20.0, 25.0, 25.0, 0.008  # seconds beside the network's own


@dataclass(frozen=True)
class Work:
    """What a plan is about: items, the network's own picture size and the one that was given."""

    minutes: float
    train: int
    validation: int
    test: int
    own: int
    given: int | None = None
    larger: tuple[str, int] | None = None  # a larger network, and its own picture size
    depth: str = "auto"


@dataclass(frozen=True)
class Plan:
    """size: of the head's pictures; mirror: whether it sees their mirror images, too. rungs: what
    the others change, with their minutes. steps: what each is to take, in the order they come.
    minutes: the longest way, which is not all of them where one comes only instead of another."""

    size: int
    mirror: bool
    rungs: dict[str, dict[str, Any]]
    steps: dict[str, float]
    minutes: float


@dataclass(frozen=True)
class Step:
    """A rung that fits. seconds: to train it; judging: after all, where it is the one kept."""

    values: dict[str, Any]
    seconds: float
    judging: float

    @property
    def given_up(self) -> float:
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
        rungs = self.deeper(size, first)
        if not rungs:
            return self.head_alone()
        last, whole, larger, gentle = map(rungs.get, (LAST, WHOLE, LARGER, GENTLE))
        judging = whole.judging if whole else self.judging(size, 1, size)
        after = {name: rung.judging for name, rung in rungs.items()}
        way = first + (last.seconds if last else 0.0)
        full, given_up = (whole.seconds, whole.given_up) if whole else (0.0, 0.0)
        ways = [way + full + judging]
        if larger is not None:
            is_beside = larger.values["after"] == "any"
            ways.append(way + (full if is_beside else given_up) + larger.seconds + larger.judging)
            if whole is not None and is_beside:
                after[WHOLE] = larger.seconds + max(judging, larger.judging)
            if gentle is not None:
                ways.append(way + given_up + larger.seconds + gentle.seconds + gentle.judging)
        if last is not None and whole is not None:
            after[LAST] = after[WHOLE] + whole.seconds / 2
        seconds = {FIRST: first} | {name: rung.seconds for name, rung in rungs.items()}
        seconds["judging"] = max([judging, *(rung.judging for rung in rungs.values())])
        values = {
            name: rung.values
            | {
                "minutes": _minutes(rung.seconds),
                "minutes_after": _minutes(after[name]),
                "minutes_judging": _minutes(rung.judging),
            }
            for name, rung in rungs.items()
        }
        steps = {name: _minutes(value) for name, value in seconds.items()}
        return Plan(size, False, values, steps, max(ways) / 60)

    def head_alone(self) -> Plan:
        """A head is all there is time for: on the largest pictures that fit."""

        def trained(size: int, passes: int) -> float:
            return START + passes * self.embed(size) + TRAINING

        def alone(size: int, passes: int = 1) -> float:
            return trained(size, passes) + self.judging(size, passes)

        size = _largest(self.sizes(LARGEST), lambda s: alone(s) <= self.total)
        passes = 2 if alone(size, 2) <= self.total else 1
        steps = {FIRST: trained(size, passes), "judging": self.judging(size, passes)}
        minutes = {name: _minutes(seconds) for name, seconds in steps.items()}
        return Plan(size, passes == 2, {}, minutes, alone(size, passes) / 60)

    def deeper(self, size: int, first: float) -> dict[str, Step]:
        """The rungs below a head with pictures of this size, which takes so long."""
        if self.work.depth == FIRST:
            return {}
        found, left = dict[str, Step](), self.total - first
        last = self.last(size)
        fits = last.seconds + last.judging <= left and last.seconds <= LAST_SHARE * self.total
        if fits or self.work.depth == LAST:
            found[LAST] = last
            left -= last.seconds
        if self.work.depth != LAST:
            found |= self.both(left, size) or self.whole(left, size)
        if found and LARGER not in found:
            left -= found[WHOLE].given_up if WHOLE in found else 0.0
            if heads := self.larger(left, left, size, after="no gain"):
                found[LARGER] = heads[0]
        if self.speed.bf16:
            for name in found.keys() & {LAST, WHOLE, GENTLE}:
                found[name].values["precision"] = "bf16"
        return found

    def sizes(self, most: float, own: int | None = None) -> list[int]:
        """To choose from, the largest first."""
        if self.work.given is not None:
            return [self.work.given]
        return list(range(int((own or self.work.own) * most) // STEP * STEP, SMALLEST - 1, -STEP))

    def embed(self, size: int, line: Line | None = None) -> float:
        """All that is trained and validated on, once."""
        return self.chosen * (line or self.speed.embed).at(size)

    def judging(
        self, size: int, passes: int, head: int | None = None, line: Line | None = None
    ) -> float:
        """The test classes through the network so often, once at the head's size if that is another
        training, as raw pixels; scores and report."""
        pictures = passes * (line or self.speed.embed).at(size) + self.speed.embed.at(32)
        pictures += 0.0 if head is None else self.speed.embed.at(head)
        return self.work.test * (pictures + PER_ITEM) + REPORT

    def last(self, size: int) -> Step:
        passes = LAST_VIEWS * self.work.train + 2 * self.work.validation
        steps = LAST_EPOCHS * self.chosen
        seconds = passes * self.speed.embed.at(size) + steps * self.speed.rest.at(size)
        values = {"epochs": LAST_EPOCHS, "views": LAST_VIEWS}
        return Step(values, seconds, self.judging(size, 1, size))

    def both(self, left: float, head: int) -> dict[str, Step]:
        """The whole network and a larger head, where that leaves pictures that are not small; of
        the heads the largest whose network can be trained gently as well, else the largest."""
        found = dict[str, Step]()
        for larger in self.larger(LARGER_SHARE * self.total, left, head, after="any"):
            whole = self.whole(left - larger.seconds, head, least=larger.judging)
            if not whole or whole[WHOLE].values["training_sizes"][-1] < ROOMY * self.work.own:
                return {}
            gentle = self.gentle(left - whole[WHOLE].given_up - larger.seconds, larger)
            if gentle or not found:
                found = whole | {LARGER: larger} | gentle
            if gentle:
                break
        return found

    def whole(self, left: float, head: int, least: float = 0.0) -> dict[str, Step]:
        """The largest pictures that get enough epochs; none: there is no time for the fewest.
        least: seconds that judging takes in any case."""
        found = dict[str, Step]()
        for size in reversed([s for s in self.sizes(1.0) if s >= TRAINED or self.work.given]):
            values = self.at(size)
            look = 4 * self.work.validation * self.speed.embed.at(values["picture_size"])
            judging = self.judging(values["picture_size"], 2, head)
            time = left - max(judging, least) - (LOOKS + 2) * look
            sizes = values["training_sizes"]
            each = self.work.train * float(np.mean([self.speed.train.at(s) for s in sizes]))
            epochs = min(MOST, int(time / each)) if time > 0 else 0
            if epochs >= (EPOCHS if found else FEWEST):
                every = -(-epochs // LOOKS)
                values |= {"epochs": epochs, "look_every": every}
                values |= {"gain_by": every, "patience": max(2 * every, 2 * epochs // 3)}
                found[WHOLE] = Step(values, epochs * each + (LOOKS + 2) * look, judging)
        return found

    def at(self, size: int) -> dict[str, Any]:
        """Sizes in training up to this one, and the size to judge at."""
        if self.work.given is not None:
            return {"picture_size": size, "training_sizes": [size]}
        growing = [round(size * share / STEP) * STEP for share in GROWING]
        judged = min(self.work.own, round(size * JUDGED / STEP) * STEP)
        return {"picture_size": max(size, judged), "training_sizes": growing}

    def larger(self, most: float, left: float, head: int, after: str) -> list[Step]:
        """Heads on pictures that are larger than those of the first one, take `most`, and fit into
        what is left with judging, the largest first: of the larger network, else of the same."""
        if self.work.given is not None:
            return []
        networks: list[tuple[dict[str, Any], int, Line]] = [({}, self.work.own, self.speed.embed)]
        if self.work.larger is not None and self.speed.larger is not None:
            name, own = self.work.larger
            networks = [({"backbone": name}, own, self.speed.larger), *networks]
        for network, own, line in networks:
            found = list[Step]()
            for size in (size for size in self.sizes(LARGEST, own) if size > head):
                seconds = 2 * self.embed(size, line) + TRAINING
                judging = self.judging(size, 2, head, line)
                if seconds <= most and seconds + judging <= left:
                    values = {"picture_size": size, "mirror": True, "after": after} | network
                    found.append(Step(values, seconds, judging))
            if found:
                return found
        return []

    def gentle(self, left: float, head: Step) -> dict[str, Step]:
        """Every layer of the network of a larger head, judged on its pictures, in what is left; not
        on pictures so small that it gains nothing."""
        judged, embed, train = head.values["picture_size"], self.speed.embed, self.speed.train
        line, own = embed, self.work.own
        if "backbone" in head.values and self.work.larger and self.speed.larger:
            line, own = self.speed.larger, self.work.larger[1]
        slower = replace(train, per_area=train.per_area * line.per_area / (embed.per_area or 1.0))
        looks = 10 * self.work.validation * line.at(judged)  # before, after; twice with training
        judging = head.judging + 2 * self.work.test * line.at(judged)  # the head's start as well
        size = int(SHRUNK * judged) // STEP * STEP
        each = self.work.train * slower.at(size)
        epochs = min(GENTLE_MOST, int((left - judging - looks) / each))
        if size < GENTLE_LEAST * own or epochs < GENTLE_FEWEST:
            return {}
        values = {"epochs": epochs, "look_every": epochs, "training_sizes": [size]}
        return {GENTLE: Step(values, epochs * each + looks, judging)}


def _minutes(seconds: float) -> float:
    return round(seconds / 60, 1)


def _largest(sizes: list[int], fits: Callable[[int], bool]) -> int:
    """The first that fits; the last where none does."""
    return next((size for size in sizes if fits(size)), sizes[-1])
