"""The JSON interface: the same answers as the index gives, and nothing that was not asked for."""

import io
import json
from pathlib import Path

import pytest
from PIL import Image
from starlette.testclient import TestClient

from unseen.search.answers import ask
from unseen.search.index import Index, Picture
from unseen.search.service.changes import changes
from unseen.search.service.library import Library
from unseen.search.service.maps import map_of


def first_picture(pictures: Path) -> Path:
    return sorted(pictures.glob("*/*.png"))[0]


def test_health_and_facts(client: TestClient) -> None:
    assert client.get("/api/health").json()["pictures"] == 30
    facts = client.get("/api/index").json()
    assert (facts["pictures"], facts["labels"], facts["labelled"]) == (30, 6, 30)
    assert facts["model"]["run"] == "tiny"
    assert (facts["model"]["precision"], facts["model"]["vectors"]) == ("float32", "float32")
    assert facts["search"] == {"store": "exact", "recall": 1.0}
    assert facts["changed"].endswith("+00:00")
    assert facts["calibration"] is None
    assert "unseen calibrate" in facts["uncalibrated"]


def test_an_upload_finds_what_the_index_finds(
    client: TestClient, library: Library, pictures: Path
) -> None:
    path = first_picture(pictures)
    found = client.post("/api/search?k=7", content=path.read_bytes()).json()
    expected = ask(library.shelf.index, library.shelf.model.embed([path]), 7)[0]
    assert [hit["id"] for hit in found["hits"]] == [hit.id for hit in expected.hits]
    assert found["hits"][0]["name"] == path.name
    assert found["decision"] is None


def test_no_path_leaves_the_service(client: TestClient, pictures: Path) -> None:
    found = client.post("/api/search", content=first_picture(pictures).read_bytes()).text
    assert str(pictures) not in found + client.get("/api/search/1").text
    assert str(pictures) not in client.get("/api/index").text


def test_by_id_leaves_the_picture_itself_out(client: TestClient) -> None:
    found = client.get("/api/search/3?k=29").json()["hits"]
    assert len(found) == 29
    assert 3 not in [hit["id"] for hit in found]


def test_only_one_label(client: TestClient) -> None:
    for k in (6, 24, 50):  # fewer than the index holds, and more
        found = client.get("/api/search/1", params={"label": "class 2", "k": k}).json()["hits"]
        assert [hit["label"] for hit in found] == ["class 2"] * 5
    assert client.get("/api/search/1?label=nobody").status_code == 404


def test_a_box_is_searched_as_the_part_it_is(
    client: TestClient, library: Library, pictures: Path
) -> None:
    whole = Image.open(first_picture(pictures))
    part, written = whole.crop((15, 30, 45, 60)), io.BytesIO()
    part.save(written, "PNG")
    by_box = client.post(
        "/api/search?box=0.25,0.5,0.5,0.9", content=first_picture(pictures).read_bytes()
    )
    by_part = client.post("/api/search", content=written.getvalue())
    assert by_box.json() == by_part.json()


@pytest.mark.parametrize(
    "box", ["1,2,3", "a,b,c,d", "0,0,0,0", "nan,0,1,1", "-1,0,1,1", "0,0,inf,1"]
)
def test_boxes_that_are_none(box: str, client: TestClient, pictures: Path) -> None:
    content = first_picture(pictures).read_bytes()
    assert client.post(f"/api/search?box={box}", content=content).status_code == 422


@pytest.mark.parametrize("content", [b"", b"GIF89a", b"\x00" * 1000, b"<svg/>", b"%PDF-1.4"])
def test_what_is_no_picture(content: bytes, client: TestClient) -> None:
    response = client.post("/api/search", content=content)
    assert response.status_code == 400
    assert response.json()["detail"].startswith("this is no picture")


def test_pictures_by_id(client: TestClient, library: Library, pictures: Path) -> None:
    small = client.get("/api/pictures/1/thumbnail")
    assert small.headers["content-type"] == "image/webp"
    large = Image.open(io.BytesIO(client.get("/api/pictures/1").content))
    assert large.size == (60, 60)
    for wrong in ("999", "-1", "1.5", "x", "..%2f..%2fetc%2fpasswd", str(2**70)):
        for path in (f"/api/pictures/{wrong}", f"/api/pictures/{wrong}/thumbnail"):
            assert client.get(path).status_code in (404, 422), path


def test_a_picture_whose_file_is_gone_is_shown_small(
    client: TestClient, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = Picture(1, "/no/such/file.png", None)
    monkeypatch.setattr(Index, "picture", lambda self, id: gone)
    assert client.get("/api/pictures/1").headers["content-type"] == "image/webp"


def test_static_files_are_a_fixed_list(client: TestClient) -> None:
    assert client.get("/static/main.js").headers["content-type"].startswith("text/javascript")
    assert "--accent" in client.get("/static/look.css").text
    for wrong in ("app.py", "..%2fapp.py", "%2e%2e/app.py", "page.css/../app.py"):
        assert client.get(f"/static/{wrong}").status_code == 404


def test_the_map_is_drawn_once_and_kept(client: TestClient, library: Library) -> None:
    while (response := client.get("/api/map")).status_code == 202:
        pass
    drawn = response.json()
    assert drawn == json.loads(json.dumps(map_of(library.shelf.index)))
    assert sorted(drawn["ids"]) == library.shelf.index.ids.tolist()
    assert max(map(abs, drawn["x"] + drawn["y"])) == pytest.approx(1.0)


def test_nothing_changed_against_itself(library: Library) -> None:
    index = library.shelf.index
    found = changes(index, index)
    assert len(found) == 30
    assert all(change.shared == 10 and change.right == change.other_right for change in found)
    assert len(changes(index, index, most=7)) <= 7


def test_an_index_that_grew_is_seen(
    index_folder: Path, tmp_path: Path, pictures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import shutil

    from unseen.search.ingest import find, ingest
    from unseen.search.service import library as libraries
    from unseen.search.writer import Writer

    copy = tmp_path / "grown.index"
    shutil.copytree(index_folder, copy)
    monkeypatch.setattr(libraries, "LOOK_EVERY", 0.0)
    library = Library(copy)
    new = tmp_path / "new" / "newcomer"
    new.mkdir(parents=True)
    shutil.copy(first_picture(pictures), new / "one.png")
    with Writer.open(copy) as writer:
        ingest(writer, library.shelf.model, find([new.parent]))
    assert len(library.shelf.index) == 31
    assert "newcomer" in library.shelf.by_label
