"""Who asks at the same time is answered batcher, each its own answer."""

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from starlette.testclient import TestClient

from unseen.search.answers import Answer
from unseen.search.service import request_batching as batches
from unseen.search.service.index_registry import IndexRegistry, Neighbor
from unseen.search.service.request_batching import RequestBatcher


def test_those_that_wait_are_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "MOST", 6)
    sizes, begun, first = [], threading.Event(), threading.Event()

    def answer(request: Sequence[int]) -> list[int | Exception]:
        begun.set()
        first.wait(10)
        sizes.append(len(request))
        return [ValueError(f"{n}") if n % 4 == 3 else 10 * n for n in request]

    async def scene() -> list[int | BaseException]:
        batcher = RequestBatcher[int, int](answer)
        tasks = [asyncio.create_task(batcher.ask(0))]
        while not begun.is_set():
            await asyncio.sleep(0)
        tasks += [asyncio.create_task(batcher.ask(n)) for n in range(1, 10)]
        await asyncio.sleep(0)
        tasks[5].cancel()  # its client has gone
        await asyncio.sleep(0)
        first.set()
        result = await asyncio.gather(*tasks, return_exceptions=True)
        return [*result, await batcher.ask(7 * 4)]

    result = asyncio.run(scene())
    assert sizes == [1, 6, 3, 1]
    assert isinstance(result[5], asyncio.CancelledError)
    assert [str(result[3]), str(result[7])] == ["3", "7"]
    assert [result[n] for n in (0, 1, 2, 4, 6, 8, 9, 10)] == [0, 10, 20, 40, 60, 80, 90, 280]


def test_an_error_of_all_is_everybodys() -> None:
    def answer(request: Sequence[int]) -> list[int | Exception]:
        raise OSError("the disk is gone")

    async def scene() -> list[int | BaseException]:
        batcher = RequestBatcher[int, int](answer)
        request = (batcher.ask(n) for n in range(3))
        return list(await asyncio.gather(*request, return_exceptions=True))

    assert [str(error) for error in asyncio.run(scene())] == ["the disk is gone"] * 3


def test_answers_are_those_of_one_by_one(registry: IndexRegistry) -> None:
    snapshot = registry.snapshot
    label = snapshot.index.image(3).label
    request = [
        Neighbor(3, 4),
        Neighbor(8, 9),
        Neighbor(3, 4, label),
        Neighbor(10**6, 4),
        Neighbor(5, 2, "none such"),
        Neighbor(3, 4),
    ]
    result = snapshot.by_ids(request)
    for one, answer in zip(request, result, strict=True):
        if one.id > 10**5 or one.label == "none such":
            assert isinstance(answer, ValueError)
            continue
        assert isinstance(answer, Answer)
        vector = snapshot.index.vectors([one.id])
        alone = snapshot.by_vector(
            vector, one.k, snapshot.chosen(one.label, None), without=[one.id]
        )
        assert [hit.id for hit in answer.hits] == [hit.id for hit in alone.hits]
        for hit, same in zip(answer.hits, alone.hits, strict=True):  # products may round anew
            assert hit.similarity == pytest.approx(same.similarity, abs=1e-6)
            assert (hit.path, hit.label) == (same.path, same.label)


def test_many_at_once(client: TestClient) -> None:
    wanted = {id: client.get(f"/api/search/{id}?k=5").json() for id in range(1, 31)}
    assert all(len(body["hits"]) == 5 and body["total"] == 29 for body in wanted.values())
    with ThreadPoolExecutor(8) as pool:
        answers = pool.map(lambda id: (id, client.get(f"/api/search/{id}?k=5")), [*wanted] * 3)
        for id, answer in answers:
            result = [hit["id"] for hit in answer.json()["hits"]]
            assert result == [hit["id"] for hit in wanted[id]["hits"]]
            assert answer.headers["content-type"] == "application/json"
    assert client.get("/api/search/999").status_code == 404
    assert client.get("/api/search/1?label=none").status_code == 404
