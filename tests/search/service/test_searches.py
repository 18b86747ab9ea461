"""Searching by several images, by forms, with what was called right or wrong, in pages."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from starlette.testclient import TestClient

from tests.search.service.conftest import HOSTS, calibration
from unseen.export.agreement import MODES, write_files
from unseen.search.feedback import mean, rocchio
from unseen.search.service.app import create_app
from unseen.search.service.index_registry import IndexRegistry, Neighbor
from unseen.search.service.middleware import Limits
from unseen.search.service.parameters import Wanted
from unseen.search.service.searches import _result


def contents(images: Path, count: int) -> list[bytes]:
    return [path.read_bytes() for path in sorted(images.glob("*/*.png"))[::7][:count]]


def form(sent: list[bytes]) -> list[tuple[str, tuple[str, bytes]]]:
    return [("file", (f"{place}.png", content)) for place, content in enumerate(sent)]


def ids(response: object) -> list[int]:
    return [hit["id"] for hit in response.json()["hits"]]  # type: ignore[attr-defined]


def test_a_form_is_searched_as_the_bytes_are(client: TestClient, images: Path) -> None:
    """`curl -F file=@x.jpg`, whatever the field is called."""
    (content,) = contents(images, 1)
    expected = client.post("/api/search?k=5", content=content).json()
    assert client.post("/api/search?k=5", files=form([content])).json() == expected
    assert client.post("/api/search?k=5", files={"image": content}).json() == expected


def test_an_upload_of_any_mode_asks_as_its_file_does(
    client: TestClient, registry: IndexRegistry, tmp_path: Path
) -> None:
    """The child that decodes uploads and the toolkit see the same pixels."""
    levels = np.random.default_rng(0).normal(128, 40, (1, 3, 40, 40)).clip(0, 255)
    files = write_files(tmp_path, torch.from_numpy(levels))
    vectors = registry.snapshot.model.embed(files)
    for mode, file, vector in zip(MODES, files, vectors, strict=True):
        expected = registry.snapshot.by_vector(vector.numpy(), 30, None).hits
        hits = client.post("/api/search?k=30", content=file.read_bytes()).json()["hits"]
        found = {hit["id"]: hit["similarity"] for hit in hits}
        wanted = {hit.id: pytest.approx(hit.similarity, abs=1e-3) for hit in expected}
        assert found == wanted, mode


def test_several_images_ask_by_their_mean(
    client: TestClient, registry: IndexRegistry, images: Path
) -> None:
    sent, snapshot = contents(images, 3), registry.snapshot
    query = mean(snapshot.model.embed(sent).numpy())
    result = client.post("/api/search?k=9", files=form(sent))
    assert ids(result) == [hit.id for hit in snapshot.by_vector(query, 9, None).hits]
    assert result.json()["decision"] is None


def test_several_images_of_the_index_ask_by_their_mean(
    client: TestClient, registry: IndexRegistry
) -> None:
    snapshot = registry.snapshot
    query = mean(snapshot.index.vectors([3, 17]))
    expected = snapshot.by_vector(query, 8, None, without=[3, 17])
    assert ids(client.get("/api/search?ids=3,17&k=8")) == [hit.id for hit in expected.hits]
    one = client.get("/api/search?ids=3&k=8").json()
    assert one == client.get("/api/search/3?k=8").json()


def test_what_was_called_right_or_wrong_moves_the_query(
    client: TestClient, registry: IndexRegistry
) -> None:
    index = registry.snapshot.index
    query = rocchio(index.vectors([3]), index.vectors([8, 9]), index.vectors([20]))
    expected = registry.snapshot.by_vector(query, 8, None, without=[3, 20])
    result = client.get("/api/search?ids=3&k=8&right=8,9&wrong=20")
    assert ids(result) == [hit.id for hit in expected.hits]
    assert 20 not in ids(client.get("/api/search?ids=3&k=30&wrong=20"))
    assert client.get("/api/search?ids=3&wrong=999").status_code == 404


def test_pages_join_to_the_whole(client: TestClient) -> None:
    whole = client.get("/api/search?ids=3&k=29").json()
    pages = [client.get(f"/api/search?ids=3&k=10&start={start}") for start in (0, 10, 20)]
    assert [id for page in pages for id in ids(page)] == [hit["id"] for hit in whole["hits"]]
    assert {page.json()["total"] for page in pages} == {29}


def test_a_box_of_a_image_of_the_index_is_a_box_of_its_file(
    client: TestClient, registry: IndexRegistry, images: Path
) -> None:
    content = Path(registry.snapshot.index.image(3).path).read_bytes()
    box = "box=0.25,0.5,0.5,0.5"
    sent = [id for id in ids(client.post(f"/api/search?{box}&k=30", content=content)) if id != 3]
    assert ids(client.get(f"/api/search?ids=3&{box}&k=29")) == sent
    assert client.get(f"/api/search?ids=3,4&{box}").status_code == 422
    assert client.post(f"/api/search?{box}", files=form(contents(images, 2))).status_code == 422


@pytest.mark.parametrize(
    "text", ["", "x", "1,,b", "-3", "1-99999999", "1-2-3", "1e3", "٣", "1," * 5000, "9" * 40]
)
def test_ids_that_are_none(text: str, client: TestClient) -> None:
    for path in (
        f"ids={text}",
        f"ids=1&wrong={text or 'x'}",
        f"ids=1&right={text or 'x'}",
    ):
        assert client.get(f"/api/search?{path}").status_code in (200, 404, 422), path
    assert client.get("/api/search").status_code == 422


@pytest.mark.parametrize(
    "kind", ["multipart/form-data", "multipart/form-data; boundary=x", "Multipart/Form-Data; b=1"]
)
def test_forms_that_are_none(kind: str, client: TestClient) -> None:
    for body in (b"", b"--x", b"--x\r\n\r\n\r\n--x--", b"[" * 9999):
        response = client.post("/api/search", content=body, headers={"content-type": kind})
        assert response.status_code == 400


def test_at_most_eight_images_and_each_counts(registry: IndexRegistry, images: Path) -> None:
    limits = Limits(hosts=HOSTS, per_minute=12)
    client = TestClient(create_app(registry, None, limits))
    (content,) = contents(images, 1)
    assert client.post("/api/search", files=form([content] * 9)).status_code == 400
    assert client.post("/api/search", files=form([content] * 8)).status_code == 200  # 9 of 12
    assert client.post("/api/search", files=form([content] * 4)).status_code == 429


def test_one_conclusion_with_its_reason(registry: IndexRegistry) -> None:
    """Below the threshold but probable, or the other way round: maybe, never both words."""
    snapshot = replace(
        registry.snapshot, calibration=calibration(threshold=0.9, weights=[-5.0, 10.0, 0])
    )
    result = _result(snapshot, snapshot.index.vectors([3]), Wanted(k=29), [3]).hits
    expected = {True: "match", False: "no match"}
    for hit in result:
        probable = hit.similarity >= 0.5  # where -5 + 10 s is 0
        agree = probable == (hit.similarity >= 0.9)
        assert hit.conclusion == (expected[probable] if agree else "maybe")
        assert hit.reason is not None
        assert f"Similarity {hit.similarity:.3f}" in hit.reason
    assert {"match", "maybe"} <= {hit.conclusion for hit in result}
    confused = replace(snapshot, calibration=calibration(threshold=-1.0, weights=[0.0, 0.0, 0.0]))
    body = _result(confused, snapshot.index.vectors([3]), Wanted(k=1), [3])
    assert body.decision == "several labels"
    assert (len(body.hits), len(set(body.labels))) == (1, len(body.labels))
    assert confused.by_ids([Neighbor(3, 1)])[0].labels == tuple(body.labels)
    together = _result(snapshot, snapshot.index.vectors([3, 4]), Wanted())
    assert together.decision is None  # conclusions hold for one image as it is
    assert {hit.conclusion for hit in together.hits} == {None}


@pytest.mark.parametrize("way", ["/api/search/1?", "/api/search?ids=1&", "/api/images?"])
def test_a_filter_is_kept_to_by_every_route(client: TestClient, way: str) -> None:
    answer = client.get(way + "where=level_1 in ('class 2', 'class 4')").json()
    hits = answer.get("hits", answer.get("images"))
    assert {hit["label"] for hit in hits} == {"class 2", "class 4"}
    assert answer["total"] == len(hits) == 10
    answer = client.get(way + "where=level_1 < 'class 3'&label=class 2").json()
    assert answer["total"] == 5
    assert client.get(way + "where=level_1='none'").json()["total"] == 0
    for wrong in (
        "path like '/%'",
        "prize < 3",
        "1) or (1",
        "level_1 in (select label from images)",
    ):
        refused = client.get(way + f"where={wrong}")
        assert refused.status_code == 422
        assert refused.json()["detail"].startswith("cannot filter by")


def test_what_is_known_of_an_image_has_its_columns(client: TestClient) -> None:
    assert client.get("/api/images/8/metadata").json()["columns"] == {"level_1": "class 1"}


@pytest.mark.parametrize("kind", ["k-reciprocal", "expansion", "local"])
def test_the_first_images_come_in_another_order(
    client: TestClient, images: Path, kind: str
) -> None:
    content = contents(images, 1)[0]
    plain = client.post("/api/search?k=30", content=content)
    other = client.post(f"/api/search?k=30&rerank={kind}", content=content)
    assert sorted(ids(other)) == sorted(ids(plain))
    page = client.post(f"/api/search?k=5&start=4&rerank={kind}", content=content)
    assert ids(page) == ids(other)[4:9]
    own = client.get(f"/api/search?ids=3&k=9&rerank={kind}")
    assert (own.status_code, len(ids(own)), 3 in ids(own)) == (200, 9, False)
    refused = client.get(f"/api/search?ids=3,4&rerank={kind}")
    assert refused.status_code == (422 if kind == "local" else 200)
    assert client.get("/api/search?ids=3&rerank=best").status_code == 422


def test_places_count_as_the_images_they_are_compared_with(
    registry: IndexRegistry, images: Path
) -> None:
    guarded = create_app(registry, None, Limits(hosts=HOSTS, per_minute=150))
    client, content = TestClient(guarded), contents(images, 1)[0]
    codes = [client.post("/api/search?rerank=local", content=content).status_code for _ in range(2)]
    assert codes == [200, 429]
