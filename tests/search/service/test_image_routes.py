"""What is in the index, in pages."""

import pytest
from starlette.testclient import TestClient

from unseen.search.service.index_registry import IndexRegistry


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


def test_labels_are_result_by_a_part(client: TestClient) -> None:
    result = client.get("/api/labels?q=S 3").json()
    assert result["total"] == 1
    assert result["labels"][0]["name"] == "class 3"
    assert result["labels"][0]["images"] == 5
    names = [label["name"] for label in client.get("/api/labels?start=2&count=3").json()["labels"]]
    assert names == ["class 2", "class 3", "class 4"]
    assert client.get("/api/labels?q=nobody").json() == {"total": 0, "labels": []}


def test_metadata_of_a_image_without_its_path(client: TestClient, registry: IndexRegistry) -> None:
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
