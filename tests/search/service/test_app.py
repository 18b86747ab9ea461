"""The JSON interface: the same answers as the index gives, and nothing that was not asked for."""

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image
from starlette.testclient import TestClient

from unseen.search.answers import ask
from unseen.search.index import Index
from unseen.search.service.changes import changes
from unseen.search.service.index_registry import IndexRegistry
from unseen.search.service.maps import map_of


def first_image(images: Path) -> Path:
    return sorted(images.glob("*/*.png"))[0]


def test_health_and_metadata(client: TestClient) -> None:
    assert client.get("/api/health").json()["images"] == 30
    metadata = client.get("/api/index").json()
    assert (metadata["images"], metadata["labels"], metadata["labelled"]) == (30, 6, 30)
    assert metadata["model"]["run"] == "tiny"
    assert metadata["model"]["precision"] == "float32"
    assert metadata["search"] == {"backend": "exact", "recall": 1.0}
    assert metadata["changed"].endswith("+00:00")
    assert metadata["calibration"] is None
    assert "unseen calibrate" in metadata["uncalibrated"]


def test_an_upload_finds_what_the_index_finds(
    client: TestClient, registry: IndexRegistry, images: Path
) -> None:
    path = first_image(images)
    result = client.post("/api/search?k=7", content=path.read_bytes()).json()
    expected = ask(registry.snapshot.index, registry.snapshot.model.embed([path]), 7)[0]
    assert [hit["id"] for hit in result["hits"]] == [hit.id for hit in expected.hits]
    assert result["hits"][0]["name"] == path.name
    assert result["decision"] is None


def test_no_path_leaves_the_service(client: TestClient, images: Path) -> None:
    result = client.post("/api/search", content=first_image(images).read_bytes()).text
    assert str(images) not in result + client.get("/api/search/1").text
    assert str(images) not in client.get("/api/index").text


def test_by_id_leaves_the_image_itself_out(client: TestClient) -> None:
    result = client.get("/api/search/3?k=29").json()["hits"]
    assert len(result) == 29
    assert 3 not in [hit["id"] for hit in result]


def test_only_one_label(client: TestClient) -> None:
    for k in (6, 24, 50):  # fewer than the index holds, and more
        result = client.get("/api/search/1", params={"label": "class 2", "k": k}).json()["hits"]
        assert [hit["label"] for hit in result] == ["class 2"] * 5
    assert client.get("/api/search/1?label=nobody").status_code == 404


def test_a_box_is_searched_as_the_part_it_is(
    client: TestClient, registry: IndexRegistry, images: Path
) -> None:
    whole = Image.open(first_image(images))
    part, written = whole.crop((15, 30, 45, 60)), io.BytesIO()
    part.save(written, "PNG")
    by_box = client.post(
        "/api/search?box=0.25,0.5,0.5,0.9", content=first_image(images).read_bytes()
    )
    by_part = client.post("/api/search", content=written.getvalue())
    assert by_box.json() == by_part.json()


@pytest.mark.parametrize(
    "box", ["1,2,3", "a,b,c,d", "0,0,0,0", "nan,0,1,1", "-1,0,1,1", "0,0,inf,1"]
)
def test_boxes_that_are_none(box: str, client: TestClient, images: Path) -> None:
    content = first_image(images).read_bytes()
    assert client.post(f"/api/search?box={box}", content=content).status_code == 422


@pytest.mark.parametrize("content", [b"", b"GIF89a", b"\x00" * 1000, b"<svg/>", b"%PDF-1.4"])
def test_what_is_no_image(content: bytes, client: TestClient) -> None:
    response = client.post("/api/search", content=content)
    assert response.status_code == 400
    assert response.json()["detail"].startswith("this is no image")


def test_images_by_id(client: TestClient, registry: IndexRegistry, images: Path) -> None:
    small = client.get("/api/images/1/thumbnail")
    assert small.headers["content-type"] == "image/webp"
    large = Image.open(io.BytesIO(client.get("/api/images/1").content))
    assert large.size == (60, 60)
    for wrong in ("999", "-1", "1.5", "x", "..%2f..%2fetc%2fpasswd", str(2**70)):
        for path in (f"/api/images/{wrong}", f"/api/images/{wrong}/thumbnail"):
            assert client.get(path).status_code in (404, 422), path


def test_a_image_whose_file_is_gone_is_shown_small(
    client: TestClient, registry: IndexRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = replace(registry.snapshot.index.metadata(1), path="/no/such/file.png")
    monkeypatch.setattr(Index, "metadata", lambda self, id: gone)
    assert client.get("/api/images/1").headers["content-type"] == "image/webp"


def test_static_files_are_a_fixed_list(client: TestClient) -> None:
    assert client.get("/static/main.js").headers["content-type"].startswith("text/javascript")
    assert "--accent" in client.get("/static/style.css").text
    for wrong in ("app.py", "..%2fapp.py", "%2e%2e/app.py", "page.css/../app.py"):
        assert client.get(f"/static/{wrong}").status_code == 404


def test_the_map_is_drawn_once_and_kept(client: TestClient, registry: IndexRegistry) -> None:
    while (response := client.get("/api/map")).status_code == 202:
        pass
    drawn = response.json()
    assert drawn == json.loads(json.dumps(map_of(registry.snapshot.index)))
    assert sorted(drawn["ids"]) == registry.snapshot.index.ids.tolist()
    assert max(map(abs, drawn["x"] + drawn["y"])) == pytest.approx(1.0)


def test_nothing_changed_against_itself(registry: IndexRegistry) -> None:
    index = registry.snapshot.index
    result = changes(index, index)
    assert len(result) == 30
    assert all(change.shared == 10 and change.right == change.other_right for change in result)
    assert len(changes(index, index, most=7)) <= 7


def test_an_index_that_grew_is_seen(
    index_folder: Path, tmp_path: Path, images: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import shutil

    from unseen.search.ingest import find, ingest
    from unseen.search.service import index_registry as libraries
    from unseen.search.writer import Writer

    copy = tmp_path / "grown.index"
    shutil.copytree(index_folder, copy)
    monkeypatch.setattr(libraries, "VALIDATE_EVERY", 0.0)
    registry = IndexRegistry(copy)
    new = tmp_path / "new" / "newcomer"
    new.mkdir(parents=True)
    shutil.copy(first_image(images), new / "one.png")
    with Writer.open(copy) as writer:
        ingest(writer, registry.snapshot.model, find([new.parent]))
    assert len(registry.snapshot.index) == 31
    assert "newcomer" in registry.snapshot.by_label


@pytest.mark.parametrize(
    "body",
    [
        '{"ids": [Infinity], "label": "a"}',
        '{"ids": [NaN], "label": "a"}',
        '{"ids": [1e999], "label": "a"}',
        '{"ids": [1], "label": "very own words \\ud800"}',
        '{"ids": ["very own words"], "label": "a"}',
        '{"ids": [1], "label": ' + "[" * 400 + '"very own words"' + "]" * 400 + "}",
        '{"ids": ' + "[" * 400 + "1" + "]" * 400 + "}",
        '{"ids": ' + "[" * 100_000,
        '{"ids": [%s]}' % ("9" * 5000),
        '{"ids": {"very own words": 1}, "very own words": Infinity}',
        "\ud800",
        "very own words",
    ],
)
@pytest.mark.parametrize("path", ["/api/label", "/api/remove"])
def test_values_that_no_json_writer_makes(path: str, body: str, client: TestClient) -> None:
    """One line says which value is wrong, without the value."""
    headers = {"content-type": "application/json"}
    content = body.encode("utf-8", "surrogatepass")
    response = client.post(path, content=content, headers=headers)
    assert response.status_code in (400, 403, 422), body[:80]
    detail = response.json()["detail"]
    assert isinstance(detail, str)
    assert "very own words" not in response.text
    assert "\n" not in detail
    assert len(detail) < 200


def test_a_wrong_value_is_named_and_not_echoed(client: TestClient) -> None:
    for path, detail in [
        ("/api/search/Infinity", "id: Input should be a valid integer"),
        ("/api/search/1?k=secret", "k: Input should be a valid integer"),
        ("/api/search?ids=1&k=0", "k: Input should be greater than or equal to 1"),
        ("/api/images?order=secret", "order: Input should be 'recent' or 'random'"),
    ]:
        response = client.get(path)
        assert response.status_code == 422
        assert response.json()["detail"].startswith(detail)
        assert "secret" not in response.text
