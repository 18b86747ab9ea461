"""Runs that are killed again and again at random moments, for test_kill.py.

    python killed_runs.py FOLDER KILLS SEED

Every attempt is a forked process that trains until SIGKILL ends it: at a random time, after a step,
while a checkpoint or another file is about to be renamed, in an evaluation, while the activations
of frozen layers are computed. Sometimes the newest checkpoint is damaged as well. A run that came
to its end is compared with the one that was never killed, and the next one starts.
"""

import json
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from unseen import config as configs
from unseen.experiment import fit, judge
from unseen.experiment.run import train_and_judge
from unseen.experiment.setting import Setting, Watch, prepare
from unseen.training import checkpoint

SETTINGS = [
    "data.max_classes=24",
    "data.size=16",
    "batch_size=16",
    "embedding_size=16",
    "epochs=2",
    "sampler.steps=3",
    "workers=1",
    "threads=1",
    "loss=margin",
    "memory.size=40",
    "freeze_until=stage1",
    "views=2",
    "ema=0.9",
    'metrics=["recall@1"]',
]
MOMENTS = ("time", "step", "checkpoint", "rename", "evaluation", "frozen layers")
TIMES = ("seconds", "images_per_second")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def dying(call: Callable[..., Any], number: int) -> Callable[..., Any]:
    """The call as it was, but for its `number`-th time."""
    calls = iter(range(1, 10**9))

    def counted(*given: Any, **named: Any) -> Any:
        if next(calls) == number:
            die()
        return call(*given, **named)

    return counted


def attempt(setting: Setting, folder: Path, moment: str, number: int) -> None:
    """A whole run, or what is left of it, in this process, which may not survive it."""
    os.environ["UNSEEN_CACHE"] = str(folder / "cache")
    fit.SECONDS_BETWEEN_CHECKPOINTS = 0.0
    nothing = dying(lambda *_: None, number)
    watch = Watch(warn=lambda text: (folder / "warnings").open("a").write(text + "\n"))
    if moment == "step":
        watch.listeners.append(lambda event: nothing() if event["event"] == "step" else None)
    if moment == "checkpoint":
        checkpoint.replace_bytes = dying(checkpoint.replace_bytes, number)
    if moment == "rename":
        os.replace = dying(os.replace, number)
    if moment == "evaluation":
        fit.evaluate = judge.evaluate = dying(fit.evaluate, number)
    if moment == "frozen layers":
        told = "through the frozen layers"
        watch.progress = lambda what, done, total: nothing() if what == told else None
    train_and_judge(setting, folder, "test", watch)


def survives(setting: Setting, folder: Path, moment: str, number: int, seconds: float) -> bool:
    """Whether a forked attempt came to its end."""
    folder.mkdir(parents=True, exist_ok=True)
    child = os.fork()
    if child == 0:
        try:
            attempt(setting, folder, moment, number)
            os._exit(0)
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(1)
    if moment == "time":
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "an attempt failed"
    return not os.WIFSIGNALED(status)


def damage(folder: Path) -> bool:
    """Cuts the newest of two checkpoints short."""
    files = sorted((folder / "checkpoint").glob("*.pt"))
    if len(files) < 2:
        return False
    files[-1].write_bytes(files[-1].read_bytes()[:-7])
    return True


def left_by(folder: Path) -> list[Any]:
    """What a run leaves, without the times."""
    lines = (folder / "journal.jsonl").read_text().splitlines()
    events = [{k: v for k, v in json.loads(e).items() if k not in TIMES} for e in lines]
    names = ("result.json", "weights.safetensors", "objective.safetensors", "selection.json")
    return [events, *((folder / name).read_bytes() for name in names)]


def main(folder: Path, kills: int, seed: int) -> dict[str, Any]:
    torch.set_num_threads(1)
    draw = random.Random(seed)
    setting = prepare(configs.make(configs.override({}, SETTINGS)))
    began = time.monotonic()
    assert survives(setting, folder / "whole", "never", 0, 0.0)
    whole, seconds = left_by(folder / "whole"), time.monotonic() - began
    killed: Counter[str] = Counter()
    damaged = finished = 0
    while killed.total() < kills:
        run = folder / f"run{finished}"
        moment = MOMENTS[killed.total() % len(MOMENTS)]
        alive = survives(setting, run, moment, draw.randint(1, 4), draw.uniform(0, seconds))
        killed[moment] += not alive
        if not alive and draw.random() < 0.3:
            damaged += damage(run)
        if alive or killed.total() == kills:
            assert alive or survives(setting, run, "never", 0, 0.0)
            assert left_by(run) == whole, f"{run} differs"
            finished += 1
    warnings = sum((run / "warnings").read_text().count("is damaged") for run in warned(folder))
    return {"killed": killed, "finished": finished, "damaged": damaged, "warnings": warnings}


def warned(folder: Path) -> list[Path]:
    return [place.parent for place in folder.glob("run*/warnings")]


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))))
