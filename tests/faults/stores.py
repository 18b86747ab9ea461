"""More of what faults are tried on: packed images, indexes, studies. See `subjects`."""

import os
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from tests.faults.subjects import EVERYWHERE, TINY, Moments, Readers, Run
from tests.studies import stub
from unseen.config import schema as configs
from unseen.data import packed
from unseen.data.folder import Folder
from unseen.data.packed import Packed
from unseen.runs.prepare import reopen
from unseen.runs.run import run_config
from unseen.runs.trained_run import Trained
from unseen.search import ingest as ingesting
from unseen.search import maintain, segment, upgrade
from unseen.search import manifest as manifests
from unseen.search.backends import milvus
from unseen.search.backends.by_name import parse
from unseen.search.index import Index
from unseen.search.writer import Writer
from unseen.studies import engine, results, study_tables
from unseen.studies import study_file as plans
from unseen.studies.engine import collect, local_storage
from unseen.studies.run_queue import Queue
from unseen.studies.worker import Worker
from unseen.training.run_folder import RunFolder

QUERIES = np.random.default_rng(0).normal(size=(5, 8)).astype(np.float32)
DIGITS = 5  # of a similarity: stores that stand in for each other round in their own ways
REMOVED = ("class 00/3.bmp", "class 01/3.bmp")


class Study:
    """Six cells that train in no time."""

    name = "study"
    optional: tuple[str, ...] = ()
    moments: Moments = EVERYWHERE | {
        "claim": (Queue, "claim"),
        "cell": (Worker, "_outcome"),
        "report": (Queue, "finish"),
    }

    def before(self, place: Path) -> None:
        pass

    def make(self, place: Path) -> None:
        Worker._train = stub.instant  # type: ignore[method-assign]
        plan, out = stub.small_plan(seeds=[0]), place / "study"
        RunFolder(out).write_text("study.toml", plan.to_toml())
        worker = Worker(plan, local_storage(out), out)
        worker.queues[""].study.set_user_attr("plan", plan.to_toml())
        worker.work()
        collect(plan.name, local_storage(out), out, only_lost=True)

    def finish(self, place: Path) -> None:
        """Closes the database as a process does that comes to its end."""
        connection = sqlite3.connect(place / "study" / "study.db")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.close()

    def readers(self, place: Path) -> Readers:
        def resumed() -> Any:
            self.make(place)
            return study_tables.markdown(results.read(place / "study"))

        return {
            "table": lambda: study_tables.markdown(results.read(place / "study")),
            "runs": lambda: [
                (run.state, run.result, run.selection, run.per_class, run.parameters)
                for run in results.read(place / "study").runs
            ],
            "run again": resumed,
        }

    def kept(self, place: Path) -> Readers:
        return {"table": lambda: study_tables.markdown(results.read(place / "study"))}

    def files(self, place: Path) -> dict[str, list[Path]]:
        kinds: dict[str, list[Path]] = {}
        for file in sorted((place / "study").rglob("*")):
            if file.is_file():
                kinds.setdefault(file.name, []).append(file)
        return kinds


class ImageStudy(Study):
    """Two real trainings that are compared."""

    name = "study of images"

    def make(self, place: Path, losses: Sequence[str] = ("margin", "triplet")) -> None:
        os.environ["UNSEEN_CACHE"] = str(place / "cache")
        data = {"data": {"name": "folder", "root": str(place / "photos")}}
        words = [word for word in TINY if not word.startswith("loss=")]
        values = {"name": "images", "seeds": [0], "factors": {"loss": list(losses)}}
        plan = plans.make(values | {"config": configs.override(data, words)})
        with patch.object(engine, "_supervise", lambda watcher, *rest: watcher.work()):
            engine.Study(plan).run(place / "study")


class Pack:
    """A packed copy of the images."""

    name = "pack"
    optional: tuple[str, ...] = ()
    moments: Moments = EVERYWHERE | {"record": (packed, "_append")}

    def before(self, place: Path) -> None:
        pass

    def make(self, place: Path) -> None:
        os.environ["UNSEEN_CACHE"] = str(place / "cache")
        packed.write(packed.Packing(Folder(place / "photos"), 16), place / "photos.pack")

    def finish(self, place: Path) -> None:
        pass

    def readers(self, place: Path) -> Readers:
        def read() -> Any:
            data = Packed(place / "photos.pack")
            images = [np.asarray(data.image(i)) for i in range(len(data))]
            message = (
                data.labels,
                data.label_names,
                data.item_ids(),
                data.digests(),
                data.describe(),
            )
            return images, message, data.name, data.fingerprint()

        return {"data set": read}

    kept = readers

    def files(self, place: Path) -> dict[str, list[Path]]:
        return {"photos.pack": [place / "photos.pack"]}


class Indexed:
    """An index of the images, in the store of that name."""

    def __init__(self, store: str) -> None:
        self.store = store
        self.optional: tuple[str, ...] = ()
        self.name = f"index, {store}"
        self.moments: Moments = EVERYWHERE | {
            "segment": (segment, "write"),
            "manifest": (manifests, "replace_bytes"),
        }
        if store == "milvus":
            self.moments["bring"] = (milvus.Milvus, "bring")

    def make(self, place: Path) -> None:
        os.environ["UNSEEN_CACHE"] = str(place / "cache")
        ingesting.BATCH, ingesting.COMMIT = 1, 16  # a vector does not depend on its neighbours
        model, out = Trained.open(place / "run"), place / "index"
        exists = (out / "manifest.json").exists()
        entry = ingesting.model_entry(model)
        with Writer.open(out) if exists else Writer.create(out, entry) as writer:
            if self.store == "milvus" and writer.manifest.external is None:
                writer.use_backend(parse("milvus:", out))
            sources = ingesting.find([place / "photos"])
            if exists:
                maintain.update(writer, model, sources)
            else:
                ingesting.ingest(writer, model, sources)
            gone = [
                id for id, metadata in writer.index().every() if metadata.path.endswith(REMOVED)
            ]
            writer.remove(gone)
            writer.refresh_backend(approximate_above=0 if self.store == "faiss" else 10**6)

    def before(self, place: Path) -> None:
        Run("model").make(place)

    def finish(self, place: Path) -> None:
        pass

    def readers(self, place: Path) -> Readers:
        opened: Callable[[], Index] = lambda: Index.open(place / "index")  # noqa: E731

        def search() -> Any:
            result = opened().search(QUERIES, k=7)
            return result.ids, result.similarities.round(DIGITS)

        ids = lambda index: index.ids.tolist()  # noqa: E731
        return {
            "search": search,
            "metadata": lambda: list(opened().every()),
            "vectors": lambda: opened().vectors(),
            "thumbnails": lambda: [i.thumbnail(id) for i in [opened()] for id in ids(i)],
        }

    def kept(self, place: Path) -> Readers:
        """Images by their path: which id one has may depend on when it came."""

        def images() -> Any:
            index = Index.open(place / "index")
            rows = zip(index.every(), index.vectors(), strict=True)
            result = [(f.path, f.label, v, index.thumbnail(id)) for (id, f), v in rows]
            return sorted(result, key=lambda row: row[0])

        def search() -> Any:
            index = Index.open(place / "index")
            result = index.search(QUERIES, k=7)
            paths = [[index.image(id).path for id in row] for row in result.ids]
            return paths, result.similarities.round(DIGITS)

        return {"images": images, "search": search}

    def files(self, place: Path) -> dict[str, list[Path]]:
        kinds: dict[str, list[Path]] = {}
        for root in ("index", "index.milvus.db"):
            for file in sorted((place / root).rglob("*")):
                if file.is_file() and file.stat().st_size:
                    name = f"milvus/{file.suffix or file.name}" if "." in root else _kind(file.name)
                    kinds.setdefault(name, []).append(file)
        return kinds


class Upgraded(Indexed):
    """An index that gets another model: mapped vectors, then new ones."""

    def __init__(self) -> None:
        super().__init__("exact")
        self.name = "index, upgrade"
        self.moments |= {"commit": (Writer, "add")}

    def before(self, place: Path) -> None:
        super().before(place)
        super().make(place)
        run_config(Run("newer", "seed=5").config(place), place / "newer", "unseen train photos")

    def make(self, place: Path) -> None:
        os.environ["UNSEEN_CACHE"] = str(place / "cache")
        ingesting.BATCH, ingesting.COMMIT, upgrade.PORTION = 1, 4, 12
        new, path = Trained.open(place / "newer"), place / "index"
        if manifests.read(path).model.fingerprint != new.fingerprint:
            context = reopen(place / "newer")[0]
            fitted = upgrade.fit(context, maintain.model_of(path), new)
            upgrade.serve_compatible(path, fitted.map, new)
        upgrade.embed_again(path, new)


def _kind(name: str) -> str:
    return f"dead{name[13:]}" if name.startswith("dead") else name
