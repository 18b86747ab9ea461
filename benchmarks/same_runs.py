"""Do two versions of the code train, evaluate and search alike, bit for bit?

    python benchmarks/same_runs.py record DIR         # small runs of every kind, and what they did
    python benchmarks/same_runs.py compare DIR DIR    # exit code 1 where something differs
    python benchmarks/same_runs.py tables DIR         # tables of the docs from evidence/*.txz

Of each run NAME.npz and NAME.json hold the loss and the batch of every step, the terms of the loss,
scores of every validation, the final embeddings, per-query values and scores, and SHA-256 of the
final weights. Nothing in them depends on a word of the project: same_words.py alone names
keys, modules and files. Takes 40 seconds of one core that is free.
"""

import argparse
import contextlib
import functools
import hashlib
import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ |= {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}

import numpy as np
import same_words as words
from PIL import Image
from safetensors import safe_open
from same_differences import compare, differences

HERE = Path(__file__).resolve()
Json = dict[str, Any]


class StoppedError(Exception):
    """A crash at a chosen step."""


class Trace:
    """What every step did, while the block runs; stop_at: the step that crashes."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.totals: list[float] = []
        self.terms: list[list[float]] = []
        self.batches: list[list[int]] = []
        self.stop_at = stop_at

    def __enter__(self) -> "Trace":
        module, owner, name = words.STEP
        self.owner, self.name = getattr(importlib.import_module(module), owner), name
        self.original: Callable[..., Any] = getattr(self.owner, name)

        @functools.wraps(self.original)
        def message(trainer: Any, batch: Any) -> Any:
            if len(self.totals) == self.stop_at:
                raise StoppedError
            terms = self.original(trainer, batch)
            self.totals.append(terms[words.TOTAL].item())
            self.terms.append(sorted(value.item() for value in terms.values()))
            self.batches.append(getattr(batch, words.INDICES).tolist())
            return terms

        setattr(self.owner, name, message)
        return self

    def __exit__(self, *_: object) -> None:
        setattr(self.owner, self.name, self.original)

    def arrays(self, of: str = "") -> Json:
        return {
            f"losses{of}": np.array(self.totals, dtype=np.float64),
            f"terms{of}": np.array([x for step in self.terms for x in step], dtype=np.float64),
            f"batch sizes{of}": np.array([len(each) for each in self.batches]),
            f"batches{of}": np.array([i for each in self.batches for i in each], dtype=np.int64),
        }


def left_by(folder: Path, of: str = "") -> Json:
    """What a run folder holds, without its words."""
    with np.load(folder / words.EMBEDDINGS) as tested, np.load(folder / words.PER_QUERY) as values:
        result = {f"embeddings{of}": tested[words.VECTORS]}
        for name in values.files:
            plain = " ".join(words.ROWS.get(word, word) for word in name.split("/"))
            result[f"per query{of} {plain}"] = values[name]
    scores = json.loads((folder / words.RESULT).read_text())[words.SCORES]
    result[f"scores{of}"] = np.array(sorted(numbers(scores)))
    looks = sorted(validations(path) for path in folder.rglob(words.EVENT_LOG))
    result[f"validations{of}"] = np.array([x for each in looks for x in each])
    return result


def numbers(content: Any) -> Iterator[float]:
    """All numbers in a JSON value."""
    if isinstance(content, dict | list):
        for each in content.values() if isinstance(content, dict) else content:
            yield from numbers(each)
    elif isinstance(content, int | float) and not isinstance(content, bool):
        yield float(content)


def validations(event_log: Path) -> list[float]:
    events = [json.loads(line) for line in event_log.read_text().splitlines()]
    return [x for event in events for x in sorted(numbers(event.get(words.VALIDATION, {})))]


def digests(folder: Path, of: str = "") -> dict[str, list[str]]:
    """SHA-256 of every tensor with its shape, sorted: neither names nor their order matter."""
    result = {}
    for kind, name in (("weights", words.WEIGHTS), ("weights of the loss", words.LOSS_WEIGHTS)):
        with safe_open(folder / name, "np") as file:
            tensors = [np.ascontiguousarray(file.get_tensor(key)) for key in file.keys()]  # noqa: SIM118
        result[f"{kind}{of}"] = sorted(
            f"{list(each.shape)} {hashlib.sha256(each.tobytes()).hexdigest()}" for each in tensors
        )
    return result


class Recorder:
    """Makes the runs in a folder that is thrown away; writes what they did to another."""

    def __init__(self, aside: Path, out: Path) -> None:
        self.aside, self.out = aside, out
        self.data = draw(aside)

    def write(self, name: str, arrays: Json, weights: dict[str, list[str]]) -> None:
        self.out.mkdir(parents=True, exist_ok=True)
        place = self.out / name.replace(" ", "_")
        np.savez_compressed(place.with_suffix(".npz"), **arrays)
        place.with_suffix(".json").write_text(json.dumps(weights, indent=1) + "\n")
        print(
            f"{name}: {sum(a.size for k, a in arrays.items() if 'losses' in k)} steps", flush=True
        )

    def data_of(self, key: Any) -> Any:
        return key if isinstance(key, dict) else self.data[key]

    def run(self, name: str, key: Any, settings: Json) -> Any:
        folder = self.aside / "runs" / name
        with Trace() as trace:
            run = words.fitted(self.data_of(key), folder, settings)
        self.write(name, trace.arrays() | left_by(folder), digests(folder))
        return run

    def all(self) -> None:
        made = {name: self.run(name, *how) for name, how in words.RUNS.items()}
        names = importlib.import_module(words.CATALOGUE).names(words.SAMPLERS)
        assert set(names) == set(words.NAMED), "a sampler is not recorded"
        for name, plain in words.NAMED.items():
            if plain:
                self.run(plain, "arrays", words.sampler_settings(name))
        self.stopped("several")
        self.two_processes("several")
        self.study()
        result = words.searched(made["default loss"], self.data["images"], self.aside / "my.index")
        self.write("index", result, {})

    def stopped(self, name: str) -> None:
        """Crashes amid the second epoch and resumes: as if never stopped."""
        key, settings = words.RUNS[name]
        folder, (module, constant) = self.aside / "runs" / "stopped", words.CHECKPOINTS
        owner = importlib.import_module(module)
        before = getattr(owner, constant)
        setattr(owner, constant, 0.0)
        with contextlib.suppress(StoppedError), Trace(stop_at=11) as first:
            words.fitted(self.data_of(key), folder, settings)
        with Trace() as second:
            words.fitted(self.data_of(key), folder, settings)
        setattr(owner, constant, before)
        assert (len(first.totals), len(second.totals)) == (11, 5), "it did not resume at step 11"
        for field in ("totals", "terms", "batches"):
            setattr(second, field, getattr(first, field) + getattr(second, field))
        self.write("stopped", second.arrays() | left_by(folder), digests(folder))
        for difference in differences(self.out / name, self.out / "stopped"):
            raise SystemExit(f"a run that was stopped differs from one that was not: {difference}")

    def two_processes(self, name: str) -> None:
        folder = self.aside / "runs" / "pair"
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        command += ["--nproc-per-node", "2", str(HERE), "rank", name, str(folder)]
        paths = os.pathsep.join([str(HERE.parents[1]), os.environ.get("PYTHONPATH", "")])
        done = subprocess.run(
            command,
            env=os.environ | {"PYTHONPATH": paths},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        arrays = left_by(folder)
        for rank in range(2):
            with np.load(f"{folder}-{rank}.npz") as traced:
                arrays |= {f"{key} of process {rank}": traced[key] for key in traced.files}
        self.write("two processes", arrays, digests(folder))

    def study(self) -> None:
        arrays: Json = {}
        weights: dict[str, list[str]] = {}
        folders = words.studied(words.study_plan(self.data["npz"]), self.aside / "study")
        for number, folder in enumerate(folders):
            if (folder / words.PER_QUERY).exists():
                arrays |= left_by(folder, f" of run {number}")
                weights |= digests(folder, f" of run {number}")
            for event_log in folder.glob(words.EVENT_LOG):
                arrays[f"losses of run {number}"] = np.array(logged(event_log))
        self.write("study", arrays, weights)


def logged(event_log: Path) -> list[float]:
    """Totals as an event log rounds them."""
    events = [json.loads(line) for line in event_log.read_text().splitlines()]
    return [
        event[words.TERMS][words.TOTAL]
        for event in events
        if event[words.EVENT] == words.STEP_EVENT
    ]


def draw(aside: Path) -> Json:
    """Images in folders, and features in arrays and in a file."""
    rng = np.random.default_rng(0)
    for kind, classes in (("images", 20), ("one", 10), ("other", 12)):
        for c in range(classes):
            place = aside / kind / f"{kind} {c:02}"
            place.mkdir(parents=True)
            color, slope = rng.uniform(60, 200, 3), rng.uniform(-60, 60, (2, 1, 1, 1))
            ramp = np.linspace(-1, 1, 40)
            plane = slope[0] * ramp[:, None, None] + slope[1] * ramp[None, :, None]
            for i in range(6):
                pixels = color + plane + rng.normal(0, 25, (40, 40, 3))
                image = Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))
                image.save(place / f"{i}.png")
    labels = np.repeat(np.arange(40), 8)
    features = rng.normal(size=(40, 24))[labels] + 2.0 * rng.normal(size=(320, 24))
    np.savez(aside / "features.npz", features=features.astype(np.float32), labels=labels)
    return {
        "images": aside / "images",
        "domains": [str(aside / "one"), str(aside / "other")],
        "arrays": (features.astype(np.float32), labels),
        "npz": aside / "features.npz",
    }


def record(out: Path) -> None:
    import torch

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        os.environ[words.CACHE] = f"{name}/cache"
        Recorder(Path(name).resolve(), out).all()


def one_of_several(name: str, folder: Path) -> None:
    """What each of two processes does."""
    key, settings = words.RUNS[name]
    with Trace() as trace:
        words.fitted(key, folder, settings)
    np.savez(f"{folder}-{os.environ['RANK']}.npz", **trace.arrays())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("command", choices=["record", "compare", "tables", "rank"])
    parser.add_argument("places", nargs="+")
    given = parser.parse_args()
    if given.command == "rank":  # started by `two_processes`
        one_of_several(given.places[0], Path(given.places[1]))
    elif given.command == "record":
        record(Path(given.places[0]))
    elif given.command == "tables":
        from same_tables import write

        write(Path(given.places[0]))
    else:
        one, other = map(Path, given.places)
        sys.exit(0 if compare(one, other) else 1)


if __name__ == "__main__":
    main()
