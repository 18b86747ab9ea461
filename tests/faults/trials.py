"""Faults tried on a subject, and what each led to: a line in a file, and one table at the end."""

import json
import os
import random
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from tests.faults import injection
from tests.faults.injection import (
    ABSENT,
    DIFFERENT,
    GOOD,
    OUTCOMES,
    Ended,
    evaluated,
    forked,
    read_by,
)
from tests.faults.subjects import CHANGES, Moments, Readers, draw_images

CHANGED = "changed data"
FILES: dict[str, Callable[[Path, random.Random], None]] = {
    "flipped bit": lambda path, draw: injection.flip(
        path, draw.randrange(path.stat().st_size), draw.randrange(8)
    ),
    "short write": lambda path, draw: injection.cut(path, draw.uniform(0, 0.99)),
    "vanished file": lambda path, draw: injection.lose(path),
}
MOST = 6  # calls of a kind, of which one is the last


class Subject(Protocol):
    name: str
    moments: Moments
    optional: tuple[str, ...]  # files that a user may delete: everybody does without

    def before(self, place: Path) -> None: ...
    def make(self, place: Path) -> None: ...
    def finish(self, place: Path) -> None: ...
    def readers(self, place: Path) -> Readers: ...
    def kept(self, place: Path) -> Readers: ...
    def files(self, place: Path) -> dict[str, list[Path]]: ...


@dataclass(frozen=True)
class Trial:
    """A fault at a moment or in a file, and what it led to."""

    subject: str
    where: str
    fault: str
    outcome: str
    message: str = ""


class Bench:
    """A subject at `work` of a folder: always the same path, put back before every trial."""

    def __init__(self, subject: Subject, root: Path, seed: int) -> None:
        self.subject, self.root, self.work = subject, root, root / "work"
        self.draw = random.Random(f"{subject.name} {seed}")
        self.work.mkdir(parents=True)
        draw_images(self.work)
        self._must(lambda: subject.before(self.work))
        shutil.copytree(self.work, root / "base")
        began = time.monotonic()
        self._must(lambda: subject.make(self.work))
        self.seconds = time.monotonic() - began
        self.kept = self._kept()
        self._must(lambda: subject.finish(self.work))
        shutil.copytree(self.work, root / "whole")
        self.whole = self._must(lambda: read_by(subject.readers(self.work)))
        assert all(kind == "value" for kind, _ in self.whole.values()), self.whole

    def put_back(self, name: str) -> None:
        shutil.rmtree(self.work)
        shutil.copytree(self.root / name, self.work)

    def kills(self, number: int) -> Iterable[Trial]:
        """So many kills at moments in turn. A run that came to its end in spite of them is compared
        with the one that was never killed, and the next one starts."""
        moments = ["time", *self.subject.moments]
        killed: list[str] = []
        self.put_back("base")
        turn = done = 0
        while done < number:
            moment, turn = moments[turn % len(moments)], turn + 1
            ended = self._killed(moment)
            killed += [moment] if ended.was_killed else []
            done += ended.was_killed
            if ended.was_killed and done < number:
                self._damage_newest_checkpoint()
                continue
            for moment, outcome, message in self._ended(killed, ended):
                yield Trial(self.subject.name, moment, "kill", outcome, message)
            killed = []
            self.put_back("base")

    def _damage_newest_checkpoint(self) -> None:
        """Now and then, where there are two."""
        files = sorted(self.work.glob("run/checkpoint/*.pt"))
        if len(files) > 1 and self.draw.random() < 0.3:
            injection.cut(files[-1], 0.99)

    def _ended(self, killed: list[str], ended: Ended) -> Iterable[tuple[str, str, str]]:
        if ended.was_killed:
            ended = forked(lambda: self.subject.make(self.work))
        if ended.code == 0:
            ended = Ended(0, "", self._kept())
        outcome, message = evaluated(ended, self.kept, ())
        return [(moment, outcome, message) for moment in killed]

    def _killed(self, moment: str) -> Ended:
        if moment == "time":
            return forked(lambda: self.subject.make(self.work), self.draw.uniform(0, self.seconds))
        owner, name = self.subject.moments[moment]
        number = self.draw.randint(1, MOST)

        def make() -> None:
            injection.with_death(owner, name, number)
            self.subject.make(self.work)

        return forked(make)

    def full_disks(self, number: int) -> Iterable[Trial]:
        for _ in range(number):
            self.put_back("base")
            flush = self.draw.randint(1, 12)

            def make(flush: int = flush) -> None:
                injection.with_full_disk(flush)
                self.subject.make(self.work)

            ended = forked(make)
            outcome, message = (
                evaluated(ended, self.kept, ("No space left",)) if ended.code else GOOD_END
            )
            if outcome in GOOD:
                ended = forked(lambda: self.subject.make(self.work))
                if ended.code == 0:
                    ended = Ended(0, "", self._kept())
                again = evaluated(ended, self.kept, ())
                outcome, message = again if again[0] not in GOOD else (outcome, message)
            yield Trial(self.subject.name, "a flush", "full disk", outcome, message)

    def second_writers(self, number: int) -> Iterable[Trial]:
        for _ in range(number):
            self.put_back("base")
            begin = time.monotonic() + 0.1
            delay = self.draw.choice([0.0, 0.0, self.draw.uniform(0, self.seconds)])
            both = [injection.begun(self._starting(begin + late)) for late in (0.0, delay)]
            ends = [injection.waited_for(process) for process in both]
            bad = [evaluated(e, self.kept, ("is being written to by",)) for e in ends if e.code]
            outcome, message = max(bad, key=injection._badness, default=GOOD_END)
            if outcome in GOOD:
                ended = forked(lambda: self.subject.make(self.work))
                if ended.code == 0:
                    ended = Ended(0, "", self._kept())
                again = evaluated(ended, self.kept, ())
                outcome, message = again if again[0] != injection.IDENTICAL else (outcome, message)
            yield Trial(self.subject.name, "two at once", "second writer", outcome, message)

    def _starting(self, begin: float) -> Callable[[], None]:
        def start() -> None:
            time.sleep(max(0.0, begin - time.monotonic()))
            self.subject.make(self.work)

        return start

    def changed_data(self) -> Iterable[Trial]:
        """Between a stop and the next start; what counts is what a fresh start would make."""
        for name, change in CHANGES.items():
            self.put_back("base")
            change(self.work / "photos")
            self._must(lambda: self.subject.make(self.work))
            fresh = self._kept()
            self.put_back("base")
            while not self._killed(list(self.subject.moments)[-1]).was_killed:
                self.put_back("base")  # it came to its end before
            change(self.work / "photos")
            ended = forked(lambda: self.subject.make(self.work))
            if ended.code == 0:
                ended = Ended(0, "", self._kept())
            outcome, message = evaluated(ended, fresh, ("class 03/",))
            yield Trial(self.subject.name, f"image {name}", CHANGED, outcome, message)

    def harms(self, fault: str, number: int, kinds: Iterable[str] | None = None) -> Iterable[Trial]:
        """So many damaged files, of every kind in turn: read by everybody, and, in another copy,
        given to the command that made them."""
        every = list(self.subject.files(self.root / "whole"))
        chosen = [kind for kind in every if kinds is None or kind in kinds]
        for turn in range(number):
            kind = chosen[turn % len(chosen)]
            yield self._harmed(fault, kind, self.draw.randrange(10**9))

    def _harmed(self, fault: str, kind: str, seed: int) -> Trial:
        outcome, message = GOOD_END
        for use in (self._read, self._made):
            self.put_back("whole")
            draw = random.Random(seed)
            file = draw.choice(self.subject.files(self.work)[kind])
            FILES[fault](file, draw)
            names = (file.name, str(file.parent))
            result = evaluated(*use(), names)
            if injection._badness(result) > injection._badness((outcome, "")):
                outcome, message = result
        if fault == "vanished file" and kind in self.subject.optional and outcome == DIFFERENT:
            outcome = ABSENT
        return Trial(self.subject.name, kind, fault, outcome, message)

    def _read(self) -> tuple[Ended, dict[str, list[str]]]:
        return forked(lambda: read_by(self.subject.readers(self.work))), self.whole

    def _made(self) -> tuple[Ended, dict[str, list[str]]]:
        ended = forked(lambda: self.subject.make(self.work))
        if ended.code == 0:
            ended = Ended(0, "", self._kept())
        return ended, self.kept

    def _kept(self) -> Any:
        return self._must(lambda: read_by(self.subject.kept(self.work)))

    def _must(self, action: Callable[[], Any]) -> Any:
        ended = forked(action)
        assert ended.code == 0, ended.errors
        return ended.value


GOOD_END = (injection.IDENTICAL, "")


def noted(trials: Iterable[Trial], file: Path) -> list[Trial]:
    """Each written down as it comes."""
    result = []
    for trial in trials:
        with file.open("a") as stream:
            stream.write(json.dumps(asdict(trial)) + "\n")
            stream.flush()
            os.fsync(stream.fileno())
        result.append(trial)
    return result


def noted_before(file: Path) -> list[Trial]:
    return [Trial(**json.loads(line)) for line in file.read_text().splitlines()]


def table(trials: Iterable[Trial]) -> str:
    """Moment or file x fault -> how often each outcome, in Markdown."""
    cells: dict[tuple[str, str, str], Counter[str]] = {}
    for trial in trials:
        cells.setdefault((trial.subject, trial.fault, trial.where), Counter())[trial.outcome] += 1
    lines = [
        f"| what | fault | moment or file | {' | '.join(OUTCOMES)} |",
        f"|---|---|---|{'--:|' * len(OUTCOMES)}",
    ]
    for (subject, fault, where), counts in cells.items():
        numbers = " | ".join(str(counts[outcome] or "") for outcome in OUTCOMES)
        lines.append(f"| {subject} | {fault} | {where} | {numbers} |")
    return "\n".join(lines)
