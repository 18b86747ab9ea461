"""Filters keep exactly the images they are true of, whatever share that is, and can do no harm."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from unseen.data.images.exif import taken
from unseen.search import filters
from unseen.search.backends import approximate
from unseen.search.filters import FilterError, MetadataTable
from unseen.search.image_sources import find
from unseen.search.index import Index
from unseen.search.manifest import ModelEntry
from unseen.search.segment import Metadata, NewImage
from unseen.search.writer import Writer

Rows = Callable[..., list[NewImage]]
COUNT = 6000


@pytest.fixture(scope="module")
def priced(tmp_path_factory: pytest.TempPathFactory, rows: Rows) -> tuple[Path, list[NewImage]]:
    """Images with a price that rises from 0, every eleventh of brand x; some were removed."""
    path = tmp_path_factory.mktemp("priced") / "i"
    some = [
        replace(image, metadata=replace(image.metadata, columns=columns_of(number)))
        for number, image in enumerate(rows(COUNT, size=16))
    ]
    model = ModelEntry(run="/nowhere", fingerprint="f" * 32, size=16, normalize=True)
    with Writer.create(path, model) as writer:
        for start in range(0, COUNT, 2500):
            writer.add(some[start : start + 2500])
        writer.remove(range(3, COUNT, 50))
    return path, some


def columns_of(number: int) -> dict[str, str | int | float]:
    brand = {"brand": "x" if number % 11 == 0 else "O'Neill"}
    return brand | ({} if number % 7 == 0 else {"price": number / 10})


def by_hand(
    some: list[NewImage], queries: np.ndarray, keep: Callable[[int], bool], k: int
) -> list[list[int]]:
    """Float64 products with every image that may be found, one after the other."""
    gone = set(range(3, COUNT, 50))
    ids = [n + 1 for n in range(COUNT) if n + 1 not in gone and keep(n)]
    result = []
    for query in queries.astype(np.float64):
        far = [-float(some[id - 1].vector.astype(np.float64) @ query) for id in ids]
        best = [ids[place] for place in np.argsort(far, kind="stable")[:k]]
        result.append(best + [-1] * (k - len(best)))
    return result


def price(number: int) -> float:
    return float(columns_of(number).get("price", np.nan))


@pytest.mark.parametrize(
    ("expression", "keep"),
    [
        ("price is null or price is not null", lambda n: True),
        ("price < 70", lambda n: price(n) < 70),  # a tenth
        ("price < 7 and brand <> ''", lambda n: price(n) < 7),
        ("price between 100 and 100.6", lambda n: 100 <= price(n) <= 100.6),
        ("PRICE < 30 and brand = 'x'", lambda n: price(n) < 30 and n % 11 == 0),
        ("brand = 'O''Neill' and not (price > 5)", lambda n: n % 11 > 0 and price(n) <= 5),
        ("brand like 'o_%' and file_name = 'p30.jpg'", lambda n: n == 30),
        ("label in ('label 1', 'label 2') and price < 9",
         lambda n: n % 2 == 1 and n % 3 in (1, 2) and price(n) < 9),
        ("price < 0", lambda n: False),
    ],
)  # fmt: skip
@pytest.mark.parametrize("backend", ["exact", "graph"])
def test_a_filtered_search_is_that_of_a_loop(
    priced: tuple[Path, list[NewImage]],
    expression: str,
    keep: Callable[[int], bool],
    backend: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path, some = priced
    if backend == "graph":
        monkeypatch.setattr(approximate.Approximate, "search", lambda *_: pytest.fail("asked"))
        with Writer.open(path) as writer:
            entry = writer.manifest.approximate
            monkeypatch.undo()
            if entry is None:
                writer.refresh_backend(approximate_above=1000)
    queries = np.stack([image.vector for image in some[:2000:500]])
    result = Index.open(path).search(queries, k=8, where=expression)
    assert result.ids.tolist() == by_hand(some, queries, keep, 8)


@pytest.mark.parametrize("share", [1.0, 0.1, 0.01, 0.001, 0.0])
def test_every_selectivity_is_exact(priced: tuple[Path, list[NewImage]], share: float) -> None:
    path, some = priced
    queries = np.stack([image.vector for image in some[100:140]])
    result = Index.open(path).search(queries, k=10, where=f"coalesce(price, 0) < {share * 600}")
    expected = by_hand(some, queries, lambda n: columns_of(n).get("price", 0) < share * 600, 10)
    assert result.ids.tolist() == expected
    within = Index.open(path).search(queries, k=10, where="price < 50", filter=range(1, 90))
    assert within.ids.tolist() == by_hand(some, queries, lambda n: price(n) < 50 and n < 89, 10)


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("prize < 20", "no such column: prize"),
        ('"prize" < 20', "no such column: prize"),  # SQLite would take it for a text
        ("price <", "incomplete input|syntax error"),
        ("", "1 to 1000 letters"),
        ("price < " + "1" * 2000, "1 to 1000 letters"),
        ("1) or (1", "a bracket is closed"),
        ("id in (select 1)", "not authorized|no such column"),
        ("price in (select price from images)", "not authorized"),
        ("load_extension('x') is null", "not authorized|no such function"),
        ("length(randomblob(100000000)) > 1", "not authorized"),
        ("price < 1; drop table images", "one statement|syntax error"),
        ("price < 1 limit 1", "syntax error"),
        ("price \0", "null|unrecognized"),
        ("price = '\ud800'", "surrogates"),
    ],
)
def test_what_is_no_filter_is_one_line(
    priced: tuple[Path, list[NewImage]], expression: str, why: str
) -> None:
    index = Index.open(priced[0])
    with pytest.raises(FilterError, match=why) as raised:
        index.where(expression)
    assert "\n" not in str(raised.value)
    assert "brand" in str(raised.value)
    assert len(index.where("price < 1")) > 0


def test_a_filter_that_takes_long_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filters, "SECONDS", 0.05)
    table = MetadataTable((id, Metadata("a" * 200, None, 1, 1)) for id in range(30_000))
    slow = " or ".join(["file_name like '%a%a%a%a%a%a%a%b'"] * 20)
    began = time.thread_time()
    with pytest.raises(FilterError, match=r"more than 0\.05 s"):
        table.ids(slow)
    assert time.thread_time() - began < 2


def test_columns_of_a_table_become_numbers_where_all_are(tmp_path: Path) -> None:
    for name in ("a.png", "b.png"):
        Image.new("RGB", (8, 8)).save(tmp_path / name)
    table = tmp_path / "things.csv"
    table.write_text(
        "path,label,price,zip,note,id\n"
        "a.png,one,19.5,00501,7,3\n"
        "b.png,two,,10115,nan,\n"
    )  # fmt: skip
    first, second = find([table])
    assert first.columns == {"price": 19.5, "zip": "00501", "note": "7", "id": 3}
    assert second.columns == {"zip": "10115", "note": "nan"}
    table.write_text("path,Price,price\na.png,1,2\n")
    with pytest.raises(ValueError, match="differ in more than upper case"):
        find([table])


def test_folders_are_levels(tmp_path: Path) -> None:
    folder = tmp_path / "photos" / "cats" / "siamese"
    folder.mkdir(parents=True)
    Image.new("RGB", (8, 8)).save(folder / "1.png")
    (source,) = find([tmp_path / "photos"])
    assert source.columns == {"level_1": "cats", "level_2": "siamese"}


@pytest.mark.parametrize("suffix", ["jpg", "png", "webp"])
def test_date_and_place_come_from_the_file(tmp_path: Path, suffix: str) -> None:
    exif = Image.Exif()
    exif[0x010F] = "a maker"  # or Pillow writes nothing into a PNG
    exif.get_ifd(0x8769)[0x9003] = "2024:05:01 12:30:00"
    place = {1: "S", 2: (33.0, 51.0, 30.0), 3: "E", 4: (151.0, 12.0, 36.0)}
    exif.get_ifd(0x8825).update(place)
    path = tmp_path / f"here.{suffix}"
    Image.new("RGB", (8, 8)).save(path, exif=exif)
    known = taken(path)
    assert known.pop("exif_date") == "2024-05-01T12:30:00"
    assert known == {
        "exif_latitude": pytest.approx(-33.858333),
        "exif_longitude": pytest.approx(151.21),
    }
    assert taken(path.read_bytes()) == taken(path)
    exif.get_ifd(0x8825)[2] = (95.0, 0.0, 0.0)
    exif.get_ifd(0x8769)[0x9003] = "no date"
    Image.new("RGB", (8, 8)).save(path, exif=exif)
    assert "exif_latitude" not in taken(path)
    assert "exif_date" not in taken(path)


def test_columns_follow_their_image(tmp_path: Path, entry: ModelEntry, rows: Rows) -> None:
    with Writer.create(tmp_path / "i", entry) as writer:
        first, second = rows(2)
        writer.add([replace(first, metadata=replace(first.metadata, columns={"a b": "ü", "n": 3}))])
        writer.add([replace(second, metadata=replace(second.metadata, columns={"N": 2.5}))])
    index = Index.open(tmp_path / "i")
    assert index.columns == ["file_name", "label", "a b", "n"]
    assert index.metadata(1).columns == {"a b": "ü", "n": 3}
    assert index.where("\"a b\" = 'ü'").tolist() == [1]
    assert index.where("n < 3").tolist() == [2]
