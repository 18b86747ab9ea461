"""The tables of the docs as CSV files, computed anew from the studies in evidence/.

    python benchmarks/same_runs.py tables DIR

findings-N.csv and benchmark-N.csv hold the tables of those pages as they are printed. Of each study
NAME there are the numbers below them in full: NAME.runs.csv, NAME.means.csv, NAME.effects.csv,
NAME.shift.csv. wrong_labels-NAME.csv has the means and half intervals of docs/wrong_labels.md.
"""

import csv
import importlib.util
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

# ---------------------------------------------------------------- words of the project: start
from unseen.core.statistics import over_seeds
from unseen.studies import archive
from unseen.studies.results import Results, read, standings
from unseen.studies.shift_results import shift_curves

ROOT = Path(__file__).resolve().parents[1]
Rows = list[list[Any]]

STUDY = "study.toml"
NOISE = {"glyphs_noise", "cub_noise"}  # studies with a table in docs/wrong_labels.md


def recorded(name: str) -> str:
    """What recordings call a study."""
    return name.replace("generalization", "generalisation")


def findings(docs: Path) -> str:
    return str(page_maker("findings").filled((docs / "findings.md").read_text(), ROOT / "evidence"))


def benchmark() -> str:
    with tempfile.TemporaryDirectory() as aside:
        page: Path = page_maker("benchmark").write(ROOT / "evidence", Path(aside))
        return page.read_text()


def unpacked(file: Path) -> Iterator[Results]:
    """The studies of an archive, while they are looked at."""
    with tempfile.TemporaryDirectory() as aside:
        archive.unpack(Path(shutil.copy(file, aside)))
        for place in sorted(Path(aside).rglob(STUDY)):
            yield read(place.parent)


def runs(results: Results) -> Rows:
    rows = [
        {key: value for key, value in row.items() if key not in ("folder", "seconds")}
        for row in results.rows()
    ]
    heads = list(dict.fromkeys(key for row in rows for key in row))
    return [heads, *([row.get(head, "") for head in heads] for row in rows)]


def means(results: Results) -> Rows:
    heads = ["experiment", "method", "metric", "mean", "deviation", "low", "high", "runs", "tuning"]
    rows: Rows = [heads]
    for row in standings(results):
        for metric, s in row.scores.items():
            spread = [s.mean, s.std, s.low, s.high]
            rows.append([row.experiment, row.method, metric, *spread, row.done, row.tuning_runs])
    return rows


def effects(results: Results) -> Rows:
    heads = ["experiment", "method", "against", "published", "pairs", "effect", "low", "high"]
    rows: Rows = [[*heads, "detectable", "seeds", "classes", "checks passed", "conclusion"]]
    for each in results.comparisons():
        e = each.effect
        result = [] if e is None else [e.value, e.low, e.high, e.detectable, e.seeds, e.classes]
        names = [each.experiment, each.method, each.against, each.published, each.pairs]
        passed = sum(validity_check.passed for validity_check in each.validity_checks)
        rows.append([*names, *(result or [""] * 6), passed, each.conclusion])
    return rows


def shifts(results: Results) -> Rows:
    rows: Rows = [["experiment", "method", "row", "area", "low", "high", "distance, score ..."]]
    for curve in shift_curves(results):
        points = [x for p in curve.points for x in (p.distance, p.score.value)]
        spread = [curve.area.mean, curve.area.low, curve.area.high]
        rows.append([curve.experiment, curve.method, curve.row, *spread, *points])
    return rows


def wrong_labels(results: Results) -> Rows:
    result: dict[tuple[str, str], dict[str, list[float]]] = {}
    for row in results.rows():
        by_fraction = result.setdefault((row["loss"], row["filter"]), {})
        by_fraction.setdefault(row["label_noise"], []).append(row["recall@1"])
    rows: Rows = []
    for names, by_fraction in result.items():
        spreads = [over_seeds(values) for values in by_fraction.values()]
        rows.append([*names, *(x for s in spreads for x in (s.mean, (s.high - s.low) / 2))])
    return [["loss", "remedy", "mean, half interval ..."], *rows]


# ---------------------------------------------------------------- words of the project: end


def page_maker(name: str) -> Any:
    """docs/NAME_page.py as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}_page.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def tables(page: str) -> list[list[list[str]]]:
    """Those of a page in Markdown, without the line below their heads."""
    result: list[list[list[str]]] = []
    inside = False
    for line in page.splitlines():
        if line.startswith("|") and not inside:
            result.append([])
        inside = line.startswith("|")
        if inside and not line.startswith(("|---", "| ---")):
            result[-1].append([cell.strip() for cell in line.strip("| ").split(" | ")])
    return result


def store(place: Path, rows: Sequence[Sequence[Any]]) -> None:
    with place.open("w", newline="") as stream:
        csv.writer(stream, lineterminator="\n").writerows(rows)
    print(f"{place.name}: {len(rows)} rows", flush=True)


def write(out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    docs = ROOT / "docs"
    for name, page in (("findings", findings(docs)), ("benchmark", benchmark())):
        for number, table in enumerate(tables(page)):
            store(out / f"{name}-{number:02}.csv", table)
        as_printed = page == (docs / f"{name}.md").read_text()
        print(f"docs/{name}.md is {'' if as_printed else 'NOT '}what evidence/ gives")
    printed = docs.joinpath("wrong_labels.md").read_text()
    for file in sorted((ROOT / "evidence").glob("*.txz")):
        for number, results in enumerate(unpacked(file)):
            name = recorded(file.stem) + (f"-{number}" if number else "")
            store(out / f"{name}.runs.csv", runs(results))
            store(out / f"{name}.means.csv", means(results))
            store(out / f"{name}.effects.csv", effects(results))
            if len(curves := shifts(results)) > 1:
                store(out / f"{name}.shift.csv", curves)
            if file.stem in NOISE:
                table = wrong_labels(results)
                store(out / f"wrong_labels-{name}.csv", table)
                cells = [
                    pair for row in table[1:] for pair in zip(row[2::2], row[3::2], strict=True)
                ]
                there = sum(f"{100 * a:.1f} ± {100 * b:.1f}" in printed for a, b in cells)
                print(f"docs/wrong_labels.md has {there} of {len(cells)} cells of {name}")
