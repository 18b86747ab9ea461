"""What is in the index, in pages."""

import io
import shutil
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from starlette.testclient import TestClient

from unseen.core.files import sha256
from unseen.search.index import Index
from unseen.search.service.app import create_app
from unseen.search.service.index_registry import IndexRegistry
from unseen.search.service.middleware import Limits
from unseen.search.writer import Writer


def shown(client: TestClient, query: str) -> list[int]:
    return [image["id"] for image in client.get(f"/api/images?{query}").json()["images"]]


def test_recent_images_in_pages(client: TestClient, registry: IndexRegistry) -> None:
    newest = registry.snapshot.index.ids[::-1].tolist()
    assert shown(client, "count=7") + shown(client, "start=7&count=50") == newest
    assert shown(client, "start=30") == []


def test_a_random_order_is_one_for_a_seed(client: TestClient) -> None:
    first = shown(client, "order=random&seed=4&count=30")
    assert sorted(first) == sorted(shown(client, "count=30"))
    assert first == shown(client, "order=random&seed=4&count=30")
    assert first != shown(client, "order=random&seed=5&count=30")


def test_images_of_a_label_or_by_id(client: TestClient, registry: IndexRegistry) -> None:
    expected = registry.snapshot.by_label["class 2"].tolist()
    assert sorted(shown(client, "label=class 2")) == expected
    assert shown(client, "ids=4,9,2-3") == [4, 9, 2, 3]
    assert client.get("/api/images?label=nobody").status_code == 404
    assert client.get("/api/images?ids=4,999").status_code == 404


def test_labels_are_found_by_a_part(client: TestClient) -> None:
    result = client.get("/api/labels?q=S 3").json()
    assert result["total"] == 1
    assert result["labels"][0]["name"] == "class 3"
    assert result["labels"][0]["images"] == 5
    names = [label["name"] for label in client.get("/api/labels?start=2&count=3").json()["labels"]]
    assert names == ["class 2", "class 3", "class 4"]
    assert client.get("/api/labels?q=nobody").json() == {"total": 0, "labels": []}


def test_metadata_of_an_image_without_its_path(client: TestClient, registry: IndexRegistry) -> None:
    known = registry.snapshot.index.metadata(3)
    metadata = client.get("/api/images/3/metadata").json()
    assert metadata["label"] == known.label
    assert metadata["num_bytes"] == known.num_bytes
    assert metadata["same_label"] == 5
    assert "/" not in metadata["name"]
    assert client.get("/api/images/999/metadata").status_code == 404


@pytest.mark.parametrize("wrong", ["order=best", "seed=-1", "count=0", "count=999", "start=-1"])
def test_values_out_of_bounds(wrong: str, client: TestClient) -> None:
    assert client.get(f"/api/images?{wrong}").status_code == 422


def private_image(folder: Path) -> dict[str, Any]:
    """Of somebody else, whose size the attacker guessed."""
    Image.effect_noise((40, 40), 99).save(folder / "private.png")
    return {
        "path": str(folder / "private.png"),
        "num_bytes": (folder / "private.png").stat().st_size,
    }


def link(folder: Path) -> dict[str, Any]:
    (folder / "link.png").symlink_to("/etc/passwd")
    return {"path": str(folder / "link.png")}


RECEIVED = {
    "a text": lambda folder: {
        "path": "/etc/passwd",
        "num_bytes": Path("/etc/passwd").stat().st_size,
    },
    "a link": link,
    "a device": lambda folder: {"path": "/dev/zero", "num_bytes": 0},
    "a private image": private_image,
    "without a digest": lambda folder: private_image(folder) | {"digest": ""},
    "elsewhere": lambda folder: {"path": "https://127.0.0.1:9/a.png"},
    "an item of a file": lambda folder: {"path": "/etc/passwd::a.png"},
}


def test_only_what_was_embedded_leaves_a_received_index(index_folder: Path, tmp_path: Path) -> None:
    shutil.copytree(index_folder, tmp_path / "received.index")
    received = Index.open(tmp_path / "received.index")
    own, *others = received.ids[: len(RECEIVED) + 1].tolist()
    rows = [received.row(id) for id in others]
    attacks = [attack(tmp_path) for attack in RECEIVED.values()]
    with Writer.open(received.path) as writer:
        writer.add(
            [
                replace(row, metadata=replace(row.metadata, **attack))
                for row, attack in zip(rows, attacks, strict=True)
            ]
        )
    limits = Limits(hosts=("testserver",), per_minute=0, token="t" * 32)
    with TestClient(create_app(IndexRegistry(received.path), None, limits)) as client:
        client.headers["authorization"] = f"Bearer {'t' * 32}"
        for name, id in zip(RECEIVED, others, strict=True):
            thumbnail = client.get(f"/api/images/{id}/thumbnail").content
            assert client.get(f"/api/images/{id}").content == thumbnail, name
            assert client.get(f"/api/why/{own}?query={id}").status_code == 400, name
            assert client.get(f"/api/why/{id}?query={own}").status_code == 400, name
            assert client.get(f"/api/search?ids={id}&box=0,0,0.5,0.5").status_code == 404, name
        assert client.get(f"/api/images/{own}").headers["content-type"] == "image/jpeg"
        assert client.get(f"/api/search?ids={own}&box=0,0,0.5,0.5").status_code == 200
        content = client.get(f"/api/export.zip?ids={','.join(map(str, [*others, own]))}").content
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert len(archive.namelist()) == 2
        path = Path(received.metadata(own).path)
        assert archive.read(archive.namelist()[1]) == path.read_bytes()
        assert sha256(path) == received.metadata(own).digest
