"""Trainings that start at the same moment without --out, for test_train.py.

    python double_starts.py FOLDER ROUNDS

Each round forks three: two that differ in `lr` only, and the first once more. Prints for each round
the exit codes, and for each folder the learning rate of its config and of the checkpoint's
optimiser.
"""

import contextlib
import io
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch

from unseen.cli.train import run
from unseen.cli.user_errors import guarded
from unseen.config import schema as configs
from unseen.reports import run_page
from unseen.runs.prepare import prepare
from unseen.training.checkpoint import Checkpoints

SETTINGS = [
    "data.max_classes=24",
    "data.size=16",
    "batch_size=16",
    "embedding_size=16",
    "epochs=1",
    "sampler.steps=3",
    "workers=0",
    "threads=1",
    'metrics=["recall@1"]',
]
RATES = ("0.001", "0.002", "0.001")


def start(place: Path, number: int, lr: str, begin: float) -> int:
    """A forked training; returns its process id."""
    child = os.fork()
    if child:
        return child
    code = 1
    os.chdir(place)
    run_page.write = lambda *_: Path("left out")
    try:
        with (place / f"told{number}").open("w") as message:
            sys.stderr = message
            os.dup2(message.fileno(), 2)
            time.sleep(max(0.0, begin - time.monotonic()))
            with contextlib.redirect_stdout(io.StringIO()):
                config = configs.make(configs.override({}, [*SETTINGS, f"lr={lr}"]))
                guarded(lambda: run(config, None))
        code = 0
    except SystemExit as ended:
        code = int(ended.code or 0)
    finally:
        os._exit(code)


def double_start(place: Path) -> dict[str, Any]:
    place.mkdir(parents=True)
    begin = time.monotonic() + 0.2
    children = [start(place, number, lr, begin) for number, lr in enumerate(RATES)]
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    rates = {}
    for folder in sorted((place / "runs").iterdir()):
        state = Checkpoints(folder / "checkpoint").newest(print)
        assert state is not None
        used = state["trainer"]["scheduled_optimizer"]["optimizer"]["param_groups"][0]["lr"]
        finished = json.loads((folder / "manifest.json").read_text())["finished"]
        assert finished, f"{folder} is not finished"
        rates[folder.name] = [configs.load(folder / "config.toml")["optimizer"]["lr"], used]
    message = [(place / f"told{number}").read_text() for number in range(len(RATES))]
    return {"codes": codes, "rates": rates, "told": message}


if __name__ == "__main__":
    torch.set_num_threads(1)
    prepare(configs.make(configs.override({}, SETTINGS)))  # what is drawn is in the cache
    for number in range(int(sys.argv[2])):
        print(json.dumps(double_start(Path(sys.argv[1]) / str(number))))
