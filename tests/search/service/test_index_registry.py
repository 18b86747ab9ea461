"""Index, model and calibration change together, while requests come."""

import io
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from starlette.testclient import TestClient

from tests.search.service.conftest import HOSTS
from unseen.runs.trained_run import Trained
from unseen.search.ingest import find, ingest, model_entry
from unseen.search.maintain import rebuild
from unseen.search.service import index_registry as libraries
from unseen.search.service.app import create_app
from unseen.search.service.index_registry import IndexRegistry
from unseen.search.service.middleware import Limits
from unseen.search.writer import Writer


@pytest.fixture(autouse=True)
def _looks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries, "VALIDATE_EVERY", 0.0)


@pytest.fixture
def served(index_folder: Path, tmp_path: Path) -> Path:
    copy = tmp_path / "my.index"
    shutil.copytree(index_folder, copy)
    return copy


def spoilt(folder: Path) -> Trained:
    """The run with other weights, in the same place: its vectors point the other way."""
    changed = Trained.open(folder)
    with torch.no_grad():
        changed.network.head.fc1.weight.mul_(-1)
    changed.folder.write_tensors("weights.safetensors", changed.network.state_dict())
    return Trained.open(folder)


def other_run(run: Path, folder: Path) -> Trained:
    shutil.copytree(run, folder)
    return spoilt(folder)


def client_of(*served: IndexRegistry) -> TestClient:
    return TestClient(create_app(*served, limits=Limits(hosts=HOSTS, per_minute=0, at_once=99)))


def first_hit(client: TestClient, image: Path) -> tuple[str, float]:
    hit = client.post("/api/search?k=1", content=image.read_bytes()).json()["hits"][0]
    return hit["name"], round(hit["similarity"], 3)


def test_the_model_of_a_rebuilt_index_answers(
    served: Path, run: Path, images: Path, tmp_path: Path
) -> None:
    client, query = client_of(IndexRegistry(served)), images / "class 3" / "2.png"
    assert first_hit(client, query) == ("2.png", 1.0)
    rebuild(served, other_run(run, tmp_path / "other"))
    assert first_hit(client, query) == ("2.png", 1.0)


def test_also_when_the_run_was_trained_anew_in_its_place(
    index_folder: Path, run: Path, images: Path, tmp_path: Path
) -> None:
    mine, served = tmp_path / "mine", tmp_path / "i"
    shutil.copytree(run, mine)
    with Writer.create(served, model_entry(Trained.open(mine))) as writer:
        ingest(writer, Trained.open(mine), find([images]))
    client, query = client_of(IndexRegistry(served)), images / "class 3" / "2.png"
    changed = spoilt(mine)
    assert first_hit(client, query) == ("2.png", 1.0)  # the old ones still go together
    rebuild(served, changed)
    assert first_hit(client, query) == ("2.png", 1.0)


def test_no_answer_is_of_two_models_while_they_change(
    served: Path, run: Path, model: Trained, images: Path, tmp_path: Path
) -> None:
    other = other_run(run, tmp_path / "other")
    client, query = client_of(IndexRegistry(served)), images / "class 1" / "4.png"
    done, message = threading.Event(), []

    def asks() -> None:
        while not done.is_set():
            message.append(first_hit(client, query))

    with ThreadPoolExecutor(4) as threads:
        asking = [threads.submit(asks) for _ in range(4)]
        for turn in range(4):
            rebuild(served, (other, model)[turn % 2])
        done.set()
        for one in asking:
            one.result()
    assert len(message) > 4
    assert set(message) == {("4.png", 1.0)}


def test_what_cannot_be_opened_leaves_the_old_one_answering(
    served: Path, run: Path, images: Path, tmp_path: Path
) -> None:
    client, query = client_of(IndexRegistry(served)), images / "class 1" / "4.png"
    rebuild(served, other_run(run, tmp_path / "other"))
    (tmp_path / "other" / "weights.safetensors").write_bytes(b"no weights")
    assert first_hit(client, query) == ("4.png", 1.0)
    shutil.rmtree(served)
    assert first_hit(client, query) == ("4.png", 1.0)
    served.write_text("a file where the folder was")
    assert first_hit(client, query) == ("4.png", 1.0)


def test_an_index_deleted_and_built_anew_is_another(
    served: Path, model: Trained, images: Path
) -> None:
    client = client_of(IndexRegistry(served))
    before = client.get("/api/health").json()
    shutil.rmtree(served)
    with Writer.create(served, model_entry(model)) as writer:
        ingest(writer, model, find([images / "class 0"]))
    after = client.get("/api/health").json()
    assert (after["images"], after["generation"]) == (5, before["generation"])
    assert after["identity"] != before["identity"]


def test_what_changed_is_compared_again_when_an_index_changes(served: Path) -> None:
    registry = IndexRegistry(served)
    client = client_of(registry, registry)
    assert client.get("/api/changes").json()["total"] == 30
    with Writer.open(served) as writer:
        writer.remove([1, 2])
    assert client.get("/api/changes").json()["total"] == 28


@pytest.mark.parametrize("name", ["vectors.npy", "images.jsonl", "thumbnails.bin"])
def test_a_file_cut_in_place_is_reported_and_the_service_goes_on(name: str, served: Path) -> None:
    client = client_of(IndexRegistry(served))
    assert client.get("/api/search/1").status_code == 200
    with next(served.rglob(name)).open("r+b") as file:
        file.truncate(20)
    paths = {"thumbnails.bin": "/api/images/9/thumbnail"}
    refused = client.get(paths.get(name, "/api/search/9"))
    assert refused.status_code == 503
    assert "`unseen index verify` names the file" in refused.json()["detail"]
    assert client.get("/api/health").json()["status"] == "ok"


def test_a_map_that_fails_says_so_and_does_not_draw_for_ever(
    served: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from unseen.search.service import maps

    def fails(*_: object) -> np.ndarray:
        raise FloatingPointError("no place")

    monkeypatch.setattr(maps, "flatten", fails)
    client = client_of(IndexRegistry(served))
    while (response := client.get("/api/map")).status_code == 202:
        pass
    assert response.json() == {"status": "cannot be drawn", "ids": []}


def test_upload_and_file_of_the_index_have_one_vector(served: Path, tmp_path: Path) -> None:
    """A JPEG is reduced while it is decoded, in the same way on both ways in."""
    registry, path = IndexRegistry(served), tmp_path / "large.jpg"
    noise = np.random.default_rng(0).integers(0, 255, (90, 120, 3), dtype=np.uint8)
    Image.fromarray(noise).resize((960, 720)).save(path)
    with Writer.open(served) as writer:
        ingest(writer, registry.snapshot.model, find([path]))
    written = io.BytesIO(path.read_bytes())
    hit = client_of(registry).post("/api/search?k=1", content=written.read()).json()["hits"][0]
    assert hit["name"] == "large.jpg"
    assert hit["similarity"] == pytest.approx(1, abs=1e-6)
