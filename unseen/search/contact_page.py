"""Images on a page: one HTML file without scripts that opens anywhere."""

import base64
from dataclasses import dataclass, replace
from pathlib import Path

from unseen.core.files import replace_bytes
from unseen.core.html_templates import render
from unseen.data.images.decode import decode
from unseen.evaluation.calibration import Calibration
from unseen.reports.thumbnails import data_uri, fitted
from unseen.search.answers import MATCH, NO_CONCLUSION, SEVERAL, UNKNOWN, Answer, Hit
from unseen.search.groups import Groups
from unseen.search.index import Index

QUERY_SIDE = 256
MOST_OF_A_GROUP, FEW_OF_A_GROUP = 60, 8  # images on its page, and on that of all groups


@dataclass(frozen=True)
class Tile:
    """An image of the index. image: a data URI; word: "right" is framed so."""

    image: str
    name: str
    path: str
    conclusion: str = ""
    word: str = ""


@dataclass(frozen=True)
class Group:
    """A group of `count` images with some of them, the most typical first."""

    file: str
    title: str
    count: int
    tiles: list[Tile]


def write_answer(
    out: Path, index: Index, query: Path, answer: Answer, calibration: Calibration | None
) -> None:
    """The query, the decision and what was found."""
    decision, reason = _decision(answer, calibration)
    html = render(
        "search/answer",
        title=query.name,
        image=data_uri(fitted(decode(query, QUERY_SIDE), QUERY_SIDE)),
        decision=decision,
        reason=reason,
        tiles=[_hit(index, hit) for hit in answer.hits],
    )
    replace_bytes(out, html.encode())


def write_groups(out: Path, index: Index, result: Groups) -> None:
    """A page per group (group-001.html, ...), and index.html, which shows all in short."""
    groups = []
    for number, members in enumerate(result.members, start=1):
        tiles = [_tile(index, int(id)) for id in index.ids[members[:MOST_OF_A_GROUP]]]
        title = f"Group {number}: {len(members):,} images"
        group = Group(f"group-{number:03d}.html", title, len(members), tiles)
        html = render("search/group", title=title, group=group)
        replace_bytes(out / group.file, html.encode())
        groups.append(replace(group, tiles=tiles[:FEW_OF_A_GROUP]))
    count, why = len(index.ids), result.why
    html = render("search/groups", title="groups", groups=groups, count=count, why=why)
    replace_bytes(out / "index.html", html.encode())


def _tile(index: Index, id: int, conclusion: str = "", word: str = "") -> Tile:
    image = index.image(id)
    uri = f"data:image/webp;base64,{base64.b64encode(index.thumbnail(id)).decode()}"
    return Tile(uri, image.label or Path(image.path).name, image.path, conclusion, word)


def _hit(index: Index, hit: Hit) -> Tile:
    conclusion, word = f"{hit.similarity:.3f}", ""
    if hit.probability is not None:
        word = "right" if hit.conclusion == MATCH else ""
        conclusion = f"{hit.conclusion} · {100 * hit.probability:.0f} % · {conclusion}"
    elif hit.compatible:
        conclusion = f"{hit.conclusion} · {conclusion}"
    return _tile(index, hit.id, conclusion, word)


def _decision(answer: Answer, calibration: Calibration | None) -> tuple[str, str]:
    if calibration is None:
        return "Nearest images", "The number is the similarity; the run is not calibrated."
    bound = (
        f"threshold {calibration.threshold:.3f}, reached by at most "
        f"{100 * calibration.bound:.3g}\u00a0% of pairs of different new classes "
        f"({calibration.confidence:.0%} confidence)"
    )
    key = (
        "Under each image: conclusion, probability of the same class, similarity; a match reaches "
        "the threshold and is probable, a maybe is one of both."
    )
    if answer.decision is None:
        return "No conclusion", NO_CONCLUSION
    if answer.decision == UNKNOWN:
        return "Unknown", f"No image reaches the {bound}. {key}"
    if answer.decision == SEVERAL:
        return (
            "Several labels match",
            f"{', '.join(answer.labels)}: each has an image at the {bound}. {key}",
        )
    return str(answer.decision), f"The nearest image reaches the {bound}. {key}"
