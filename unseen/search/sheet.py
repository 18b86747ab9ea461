"""Pictures on a page: one HTML file without scripts that opens anywhere."""

import base64
from dataclasses import dataclass, replace
from pathlib import Path

from unseen.data.pictures.decode import decode
from unseen.evaluation.calibrate import Calibration
from unseen.files import replace_bytes
from unseen.pages import render
from unseen.reports.thumbnails import data_uri, fitted
from unseen.search.answers import MATCH, UNJUDGED, UNKNOWN, Answer, Hit
from unseen.search.groups import Groups
from unseen.search.index import Index

QUERY_SIDE = 256
MOST_OF_A_GROUP, FEW_OF_A_GROUP = 60, 8  # pictures on its page, and on that of all groups


@dataclass(frozen=True)
class Tile:
    """A picture of the index. picture: a data URI; word: "right" is framed so."""

    picture: str
    name: str
    path: str
    verdict: str = ""
    word: str = ""


@dataclass(frozen=True)
class Group:
    """A group of `count` pictures with some of them, the most typical first."""

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
        picture=data_uri(fitted(decode(query, QUERY_SIDE), QUERY_SIDE)),
        decision=decision,
        reason=reason,
        tiles=[_hit(index, hit) for hit in answer.hits],
    )
    replace_bytes(out, html.encode())


def write_groups(out: Path, index: Index, found: Groups) -> None:
    """A page per group (group-001.html, ...), and index.html, which shows all in short."""
    groups = []
    for number, members in enumerate(found.members, start=1):
        tiles = [_tile(index, int(id)) for id in index.ids[members[:MOST_OF_A_GROUP]]]
        title = f"Group {number}: {len(members):,} pictures"
        group = Group(f"group-{number:03d}.html", title, len(members), tiles)
        html = render("search/group", title=title, group=group)
        replace_bytes(out / group.file, html.encode())
        groups.append(replace(group, tiles=tiles[:FEW_OF_A_GROUP]))
    count, why = len(index.ids), found.why
    html = render("search/groups", title="groups", groups=groups, count=count, why=why)
    replace_bytes(out / "index.html", html.encode())


def _tile(index: Index, id: int, verdict: str = "", word: str = "") -> Tile:
    picture = index.picture(id)
    uri = f"data:image/webp;base64,{base64.b64encode(index.thumbnail(id)).decode()}"
    return Tile(uri, picture.label or Path(picture.path).name, picture.path, verdict, word)


def _hit(index: Index, hit: Hit) -> Tile:
    verdict, word = f"{hit.similarity:.3f}", ""
    if hit.probability is not None:
        word = "right" if hit.verdict == MATCH else ""
        verdict = f"{hit.verdict} · {100 * hit.probability:.0f} % · {verdict}"
    elif hit.mapped:
        verdict = f"{hit.verdict} · {verdict}"
    return _tile(index, hit.id, verdict, word)


def _decision(answer: Answer, calibration: Calibration | None) -> tuple[str, str]:
    if calibration is None:
        return "Nearest pictures", "The number is the similarity; the run is not calibrated."
    bound = (
        f"threshold {calibration.threshold:.3f}, reached by at most "
        f"{100 * calibration.bound:.3g}\u00a0% of pairs of different new classes "
        f"({calibration.confidence:.0%} confidence)"
    )
    key = (
        "Under each picture: verdict, probability of the same class, similarity; a match reaches "
        "the threshold and is probable, a maybe is one of both."
    )
    if answer.decision is None:
        return "No verdict", UNJUDGED
    if answer.decision == UNKNOWN:
        return "Unknown", f"No picture reaches the {bound}. {key}"
    return str(answer.decision), f"The nearest picture reaches the {bound}. {key}"
