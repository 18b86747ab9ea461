"""Explanations of what was found, by images that are sent and by those of the index."""

import base64
import io
from pathlib import Path

from PIL import Image
from starlette.testclient import TestClient


def test_an_answer_is_explained(client: TestClient, images: Path) -> None:
    content = sorted(images.glob("*/*.png"))[3].read_bytes()
    (hit,) = client.post("/api/search?k=1", content=content).json()["hits"]
    sent = client.post(f"/api/why/{hit['id']}", content=content).json()
    similarity = f"{hit['similarity']:.3f}"
    assert sent["sentences"][0].startswith(f"Similarity {similarity}, exact")
    assert Image.open(io.BytesIO(base64.b64decode(sent["image"]))).width > 600
    own = client.get(f"/api/why/{hit['id']}?query={hit['id']}").json()
    assert own == sent, "the image that was sent is this one"
    box = "box=0.2,0.2,0.5,0.5"
    part = client.post(f"/api/why/{hit['id']}?{box}", content=content).json()
    assert part != sent
    assert client.get(f"/api/why/{hit['id']}?query={hit['id']}&{box}").json() == part


def test_what_cannot_be_explained(client: TestClient) -> None:
    assert client.post("/api/why/3", content=b"no image").status_code == 400
    assert client.post("/api/why/999", content=b"").status_code == 404
    assert client.get("/api/why/3?query=999").status_code == 404
    assert client.get("/api/why/3").status_code == 422
