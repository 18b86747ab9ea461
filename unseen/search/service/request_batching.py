"""Requests that come at the same time are answered together: one product for all their queries, and
one change of threads.

While a thread answers some, those that come meanwhile wait, and are the next it answers. A single
request waits for nobody.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from fastapi.concurrency import run_in_threadpool

MOST = 32  # answered at once

Request = TypeVar("Request")
Answered = TypeVar("Answered")


class RequestBatcher(Generic[Request, Answered]):
    """answer: one answer, or error, for each question, in their order; called in a thread."""

    def __init__(
        self, answer: Callable[[Sequence[Request]], Sequence[Answered | Exception]]
    ) -> None:
        self.answer = answer
        self._waiting: list[tuple[Request, asyncio.Future[Answered]]] = []
        self._work: asyncio.Task[None] | None = None

    async def ask(self, request: Request) -> Answered:
        future = asyncio.get_running_loop().create_future()
        self._waiting.append((request, future))
        if self._work is None:
            self._work = asyncio.create_task(self._answer_all())
        answered: Answered = await future
        return answered

    async def _answer_all(self) -> None:
        while self._waiting:
            some, self._waiting = self._waiting[:MOST], self._waiting[MOST:]
            answers = await self._answers([request for request, _ in some])
            for (_, future), answer in zip(some, answers, strict=True):
                if future.done():  # who asked has gone
                    continue
                if isinstance(answer, Exception):
                    future.set_exception(answer)
                else:
                    future.set_result(answer)
        self._work = None

    async def _answers(self, request: list[Request]) -> Sequence[Answered | Exception]:
        try:
            return await run_in_threadpool(self.answer, request)
        except Exception as error:  # everybody's
            return [error] * len(request)
