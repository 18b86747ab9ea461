import threading
from collections.abc import Iterator

import pytest
import torch

from unseen.evaluation.evaluate import evaluate
from unseen.neighbors.nearest import nearest
from unseen.neighbors.space import make_space
from unseen.neighbors.threads import in_parallel

CPU = torch.device("cpu")


@pytest.fixture
def _three_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("_three_threads")
def test_every_task_once_and_threads_work_alone() -> None:
    seen: list[tuple[int, int, bool]] = []
    main = threading.get_ident()
    in_parallel(
        range(50),
        lambda i: seen.append((i, torch.get_num_threads(), threading.get_ident() == main)),
        CPU,
    )
    assert sorted(i for i, *_ in seen) == list(range(50))
    assert {(threads, is_main) for _, threads, is_main in seen} == {(1, False)}
    assert torch.get_num_threads() == 3


@pytest.mark.usefixtures("_three_threads")
def test_an_error_stops_the_rest_and_is_raised() -> None:
    done: list[int] = []

    def work(i: int) -> None:
        if i == 5:
            raise ValueError("the fifth")
        done.append(i)

    with pytest.raises(ValueError, match="the fifth"):
        in_parallel(range(100_000), work, CPU)
    assert len(done) < 100_000
    assert torch.get_num_threads() == 3


def test_one_thread_works_here_and_in_order() -> None:
    seen: list[tuple[int, int]] = []
    in_parallel(range(4), lambda i: seen.append((i, threading.get_ident())), CPU)
    assert seen == [(i, threading.get_ident()) for i in range(4)]
    in_parallel([], lambda i: seen.append((i, 0)), CPU)
    assert len(seen) == 4


@pytest.mark.usefixtures("_three_threads")
@pytest.mark.parametrize("memory", [2**30, 0])
def test_threads_change_no_list(memory: int) -> None:
    x = torch.randn(500, 16, generator=torch.Generator().manual_seed(0))
    together = nearest(make_space(x), 9, block=32, memory=memory)
    torch.set_num_threads(1)
    alone = nearest(make_space(x), 9, block=32, memory=memory)
    assert torch.equal(together[0], alone[0])
    assert torch.equal(together[1], alone[1])


@pytest.mark.usefixtures("_three_threads")
def test_threads_change_no_score() -> None:
    """Copies everywhere: which of them ends a list depends on the threads, a score does not."""
    x = torch.randn(40, 4, generator=torch.Generator().manual_seed(0)).repeat(80, 1)
    y = torch.arange(3200) * 7 % 50
    names = ("recall@1", "recall@8", "map_at_r", "map")
    together = [evaluate(x, y, metrics=names, resamples=0).per_query for _ in range(2)]
    torch.set_num_threads(1)
    alone = evaluate(x, y, metrics=names, resamples=0).per_query
    for name in names:
        assert torch.equal(together[0][name], alone[name])
        assert torch.equal(together[1][name], alone[name])


@pytest.mark.usefixtures("_three_threads")
def test_inside_inference_mode() -> None:
    x = torch.randn(3000, 4, generator=torch.Generator().manual_seed(0))
    y = torch.arange(3000) % 100
    expected = evaluate(x, y, metrics=("map_at_r",), resamples=0).values
    with torch.inference_mode():
        inside = x.clone()
        assert evaluate(inside, y, metrics=("map_at_r",), resamples=0).values == expected
