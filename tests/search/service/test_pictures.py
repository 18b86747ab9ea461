"""What is in the index, in pages."""

import pytest
from starlette.testclient import TestClient

from unseen.search.service.library import Library


def shown(client: TestClient, query: str) -> list[int]:
    return [picture["id"] for picture in client.get(f"/api/pictures?{query}").json()["pictures"]]


def test_recent_pictures_in_pages(client: TestClient, library: Library) -> None:
    newest = library.shelf.index.ids[::-1].tolist()
    assert shown(client, "count=7") + shown(client, "start=7&count=50") == newest
    assert shown(client, "start=30") == []


def test_a_random_order_is_one_for_a_seed(client: TestClient) -> None:
    first = shown(client, "order=random&seed=4&count=30")
    assert sorted(first) == sorted(shown(client, "count=30"))
    assert first == shown(client, "order=random&seed=4&count=30")
    assert first != shown(client, "order=random&seed=5&count=30")


def test_pictures_of_a_label_or_by_id(client: TestClient, library: Library) -> None:
    expected = library.shelf.by_label["class 2"].tolist()
    assert sorted(shown(client, "label=class 2")) == expected
    assert shown(client, "ids=4,9,2-3") == [4, 9, 2, 3]
    assert client.get("/api/pictures?label=nobody").status_code == 404
    assert client.get("/api/pictures?ids=4,999").status_code == 404


def test_labels_are_found_by_a_part(client: TestClient) -> None:
    found = client.get("/api/labels?q=S 3").json()
    assert found["total"] == 1
    assert found["labels"][0]["name"] == "class 3"
    assert found["labels"][0]["pictures"] == 5
    names = [label["name"] for label in client.get("/api/labels?start=2&count=3").json()["labels"]]
    assert names == ["class 2", "class 3", "class 4"]
    assert client.get("/api/labels?q=nobody").json() == {"total": 0, "labels": []}


def test_facts_of_a_picture_without_its_path(client: TestClient, library: Library) -> None:
    known = library.shelf.index.facts(3)
    facts = client.get("/api/pictures/3/facts").json()
    assert facts["label"] == known.label
    assert facts["num_bytes"] == known.num_bytes
    assert facts["same_label"] == 5
    assert "/" not in facts["name"]
    assert client.get("/api/pictures/999/facts").status_code == 404


@pytest.mark.parametrize("wrong", ["order=best", "seed=-1", "count=0", "count=999", "start=-1"])
def test_values_out_of_bounds(wrong: str, client: TestClient) -> None:
    assert client.get(f"/api/pictures?{wrong}").status_code == 422
