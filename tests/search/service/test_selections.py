"""Many images at once: changes only with a token, and whole."""

import io
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from tests.search.service.conftest import HOSTS
from unseen.search.index import Index
from unseen.search.service.app import create_app
from unseen.search.service.index_registry import IndexRegistry
from unseen.search.service.middleware import Limits
from unseen.search.verify import verify
from unseen.search.writer import Writer

TOKEN = "a-secret-word"


@pytest.fixture
def served(index_folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(index_folder, tmp_path / "my.index"))


@pytest.fixture
def holder(served: Path) -> Iterator[TestClient]:
    """Somebody who knows the token."""
    limits = Limits(hosts=HOSTS, per_minute=0, token=TOKEN)
    with TestClient(create_app(IndexRegistry(served), None, limits)) as client:
        client.headers["authorization"] = f"Bearer {TOKEN}"
        yield client


def test_a_label_is_given_and_seen_at_once(holder: TestClient, served: Path) -> None:
    before = Index.open(served)
    changed = holder.post("/api/label", json={"ids": [1, 2, 30, 1], "label": " new "})
    assert changed.json() == {"changed": 3}
    assert [p["id"] for p in holder.get("/api/images?label=new").json()["images"]] == [30, 2, 1]
    after = Index.open(served)
    assert (after.vectors([1, 2, 30]) == before.vectors([1, 2, 30])).all()
    assert after.thumbnail(2) == before.thumbnail(2)
    assert sorted(after.ids.tolist()) == before.ids.tolist()
    assert not verify(served)
    again = holder.post("/api/label", json={"ids": [1, 2, 30], "label": "new"})
    assert again.json() == {"changed": 0}
    assert holder.post("/api/label", json={"ids": [1], "label": None}).json() == {"changed": 1}
    assert Index.open(served).image(1).label is None


def test_removed_images_are_gone_from_the_index_not_from_the_disk(
    holder: TestClient, served: Path
) -> None:
    path = Path(Index.open(served).image(4).path)
    assert holder.post("/api/remove", json={"ids": [4, 5, 999]}).json() == {"changed": 2}
    assert holder.get("/api/search/4").status_code == 404
    assert holder.get("/api/index").json()["images"] == 28
    assert path.exists()


def test_files_are_taken_out_as_they_are(holder: TestClient, served: Path) -> None:
    content = holder.get("/api/export.zip?ids=3-5").content
    with zipfile.ZipFile(io.BytesIO(content)) as unpacked:
        result = {unpacked.read(name) for name in unpacked.namelist() if name != "images.csv"}
    index = Index.open(served)
    assert result == {Path(index.image(id).path).read_bytes() for id in (3, 4, 5)}


def test_too_many_bytes_are_refused(holder: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unseen.search.service.selections.MOST_BYTES", 10)
    assert holder.get("/api/export.zip?ids=3-5").status_code == 413


def test_without_a_token_nothing_changes_and_no_file_leaves(
    client: TestClient, index_folder: Path
) -> None:
    before = Index.open(index_folder).manifest
    for path, body in (("label", {"ids": [1], "label": "x"}), ("remove", {"ids": [1]})):
        refused = client.post(f"/api/{path}", json=body)
        assert refused.status_code == 403
        assert "--token" in refused.json()["detail"]
    assert client.get("/api/export.zip?ids=1").status_code == 403
    assert not client.get("/api/index").json()["may_change"]
    assert Index.open(index_folder).manifest == before
    listed = client.get("/api/export.csv?ids=1,2").text
    assert listed.splitlines()[0] == "id,name,label,file"


def test_a_page_of_another_site_changes_nothing(holder: TestClient, served: Path) -> None:
    before = Index.open(served).manifest
    headers = {"sec-fetch-site": "cross-site"}
    body = {"ids": [1]}
    assert holder.post("/api/remove", json=body, headers=headers).status_code == 403
    assert Index.open(served).manifest == before


def test_two_writers_at_once(holder: TestClient, served: Path) -> None:
    with Writer.open(served):
        assert holder.post("/api/remove", json={"ids": [1]}).status_code == 409
    assert holder.post("/api/remove", json={"ids": [1]}).status_code == 200


def test_orders_that_are_none(holder: TestClient) -> None:
    for body in (
        {},
        {"ids": "1"},
        {"ids": [1], "label": ""},
        {"ids": [1], "label": "  "},
        {"ids": [-1], "label": "x"},
        {"ids": [1], "label": "x" * 501},
        {"ids": list(range(1001)), "label": "x"},
    ):
        assert holder.post("/api/label", json=body).status_code == 422, body
    assert holder.post("/api/label", content=b'{"ids":[1],"label":"\\ud800"}').status_code == 422


def test_an_unknown_image_changes_nothing(holder: TestClient, served: Path) -> None:
    assert holder.post("/api/label", json={"ids": [1, 999], "label": "x"}).status_code == 404
    assert Index.open(served).image(1).label == "class 0"
