"""What the routes take and give: bounds of every value, bodies of the answers. Paths stay on this
side: a client sees ids, labels and the names of files."""

import math
import re
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import HTTPException, Path, Query
from pydantic import BaseModel, Field

from unseen.evaluation.calibration import Calibration
from unseen.search.answers import Answer, reason
from unseen.search.filters import MOST_LETTERS, FilterError
from unseen.search.manifest import DamagedError
from unseen.search.rerank import Kind
from unseen.search.service.decoding import Box

MOST = 100  # images of one answer
DEEPEST = 1000  # results of one search, in pages
MOST_IDS = 1000  # images named in one request
MOST_CALLED = 50  # images called right, and wrong
RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")

Responses = dict[int | str, dict[str, Any]]


class DetailBody(BaseModel):
    """Why a request is refused."""

    detail: str


Id = Annotated[int, Path(ge=0, le=2**62, description="of an image of the index")]
K = Annotated[int, Query(ge=1, le=MOST, description="how many images")]
Start = Annotated[int, Query(ge=0, le=2**31, description="how many to pass over first")]
Label = Annotated[str | None, Query(max_length=500, description="only images with this label")]
Where = Annotated[
    str | None, Query(max_length=MOST_LETTERS, description="only images it is true of: price < 20")
]
IdList = Annotated[str, Query(max_length=20_000, description="ids, such as 3,8,20-24")]
WRONG: Responses = {422: {"model": DetailBody, "description": "a wrong value"}}
MISSING: Responses = {404: {"description": "no such image or label"}}


class Wanted(BaseModel):
    """Which of the nearest images."""

    k: int = Field(24, ge=1, le=MOST, description="how many images")
    start: int = Field(0, ge=0, lt=DEEPEST, description="how many to pass over first")
    label: str | None = Field(None, max_length=500, description="only images with this label")
    where: str | None = Field(
        None, max_length=MOST_LETTERS, description="only images it is true of: price < 20"
    )
    box: str | None = Field(
        None, max_length=100, description="left,top,width,height, shares of the image"
    )
    rerank: Kind | None = Field(None, description="another order of the first 100 images")
    right: str = Field("", max_length=1000, description="ids of images that are called right")
    wrong: str = Field("", max_length=1000, description="ids of images that are called wrong")


class ImageBody(BaseModel):
    id: int
    name: str
    label: str | None


class HitBody(ImageBody):
    """An image that was found; without a calibration no probability and no conclusion. reason: why
    the conclusion is what it is. compatible: its vector comes from an older model, without a
    conclusion."""

    similarity: float
    probability: float | None
    matched: bool | None
    conclusion: str | None
    reason: str | None
    compatible: bool


class AnswerBody(BaseModel):
    """Nearest images first. decision: a label, "unlabelled", "several labels" (that match),
    "unknown", or null without a calibration, or where several images ask together. labels: of the
    images that match. total: how many can be asked for."""

    decision: str | None
    labels: list[str]
    total: int
    hits: list[HitBody]


def answer_body(
    answer: Answer, calibration: Calibration | None, total: int, start: int = 0
) -> AnswerBody:
    """The decision is that of all that was found, the hits those from `start` on."""
    hits = [
        HitBody(
            **vars(hit),
            name=name_of(hit.path),
            conclusion=hit.conclusion,
            reason=reason(hit, calibration) if hit.conclusion and calibration else None,
        )
        for hit in answer.hits[start:]
    ]
    return AnswerBody(
        decision=answer.decision, labels=list(answer.labels), total=min(total, DEEPEST), hits=hits
    )


def name_of(path: str) -> str:
    return path.replace("\\", "/").rpartition("/")[2]


def ids_in(text: str, most: int = MOST_IDS) -> list[int]:
    """3,8,20-24 as numbers, each once."""
    result: dict[int, None] = {}
    for word in filter(None, text.split(",")):
        known = RANGE.fullmatch(word)
        if known is None:
            raise HTTPException(422, "ids must be numbers, such as 3,8,20-24")
        first, last = int(known[1]), int(known[2] or known[1])
        if last - first < most:
            result.update(dict.fromkeys(range(first, last + 1)))
        if last - first >= most or len(result) > most:
            raise HTTPException(422, f"at most {most} images at once")
    return list(result)


def box_in(text: str | None) -> Box | None:
    if text is None:
        return None
    try:
        left, top, width, height = (float(word) for word in text.split(","))
    except ValueError:
        raise HTTPException(422, "box must be left,top,width,height") from None
    if not all(map(math.isfinite, (left, top, width, height))) or not (
        0 <= left < 1 and 0 <= top < 1 and width > 0 and height > 0
    ):
        raise HTTPException(422, "box must lie within the image, as shares from 0 to 1")
    return left, top, min(width, 1 - left), min(height, 1 - top)


def or_404(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except DamagedError:
        raise
    except ValueError as error:
        raise http_error(error) from error


def http_error(error: Exception) -> HTTPException:
    """An expression that is none is wrong; anything else is not there."""
    if isinstance(error, FilterError):
        return HTTPException(422, str(error))
    return HTTPException(404, "no such image or label")
