"""Explanations of what was found, by pictures that are sent and by those of the index."""

import base64
import io
from pathlib import Path

from PIL import Image
from starlette.testclient import TestClient


def test_a_found_picture_is_explained(client: TestClient, pictures: Path) -> None:
    content = sorted(pictures.glob("*/*.png"))[3].read_bytes()
    (hit,) = client.post("/api/search?k=1", content=content).json()["hits"]
    sent = client.post(f"/api/why/{hit['id']}", content=content).json()
    similarity = f"{hit['similarity']:.3f}"
    assert sent["sentences"][0].startswith(f"Similarity {similarity}, exact")
    assert Image.open(io.BytesIO(base64.b64decode(sent["picture"]))).width > 600
    own = client.get(f"/api/why/{hit['id']}?asked={hit['id']}").json()
    assert own == sent, "the picture that was sent is this one"
    box = "box=0.2,0.2,0.5,0.5"
    part = client.post(f"/api/why/{hit['id']}?{box}", content=content).json()
    assert part != sent
    assert client.get(f"/api/why/{hit['id']}?asked={hit['id']}&{box}").json() == part


def test_what_cannot_be_explained(client: TestClient) -> None:
    assert client.post("/api/why/3", content=b"no picture").status_code == 400
    assert client.post("/api/why/999", content=b"").status_code == 404
    assert client.get("/api/why/3?asked=999").status_code == 404
    assert client.get("/api/why/3").status_code == 422
