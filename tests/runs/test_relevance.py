"""Every kind of relevance goes the whole way: trained with, evaluated, calibrated, searched."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import unseen
from unseen.config import schema as configs
from unseen.data.images import table_file
from unseen.reports import queries, run_page, stored_run
from unseen.runs.calibrate_run import calibrate_run
from unseen.runs.few_shots import few_shots
from unseen.runs.open_set_of_run import open_set_of
from unseen.runs.prepare import Callbacks, RunContext, prepare, reopen
from unseen.runs.run import train_and_evaluate
from unseen.runs.trained_run import Trained
from unseen.search.answers import ask
from unseen.search.index import Index
from unseen.search.ingest import find, ingest, model_entry
from unseen.search.writer import Writer
from unseen.training.run_folder import RunFolder

GROUPS, EACH = 24, 3
ITEMS = GROUPS * EACH
PATHS = [f"{i // EACH:02d}_{i % EACH}.png" for i in range(ITEMS)]
TINY = [
    "epochs=1",
    "image_size=8",
    "embedding_size=4",
    "transform=small",
    "workers=0",
    "threads=1",
]
TINY += [
    "batch_size=12",
    "validation_fraction=0.6",
    "backbone=small_conv",
    'metrics=["recall@1","map"]',
]


@dataclass(frozen=True)
class Kind:
    """columns: of the table, beside the paths. words: of the config. same: by a loop."""

    columns: dict[str, list[str]]
    words: tuple[str, ...] = ()
    pairs: dict[str, list[Any]] | None = None
    loss: str = "multi_similarity"


def group(i: int) -> int:
    return i // EACH


def known_pairs() -> dict[str, list[Any]]:
    """Each image with the next of its group, and with one of the next group but two."""
    result: dict[str, list[Any]] = {"first": [], "second": [], "same": []}
    for i in range(ITEMS):
        within = group(i) * EACH + (i + 1) % EACH
        for other, same in ((within, "yes"), ((i + 3 * EACH) % ITEMS, "no")):
            result["first"].append(PATHS[i])
            result["second"].append(PATHS[other])
            result["same"].append(same)
    return result


def graded_pairs() -> dict[str, list[Any]]:
    rows = [(i, j) for i in range(ITEMS) for j in range(i) if group(i) == group(j)]
    grades = [1.0 if (i + j) % 2 else 0.7 for i, j in rows]
    return {
        "first": [PATHS[i] for i, _ in rows],
        "second": [PATHS[j] for _, j in rows],
        "grade": grades,
    }


KINDS = {
    "labels": Kind({"label": [str(group(i)) for i in range(ITEMS)]}),
    "levels": Kind(
        {
            "level_1": [str(group(i) % 4) for i in range(ITEMS)],
            "level_2": [f"g{group(i)}" for i in range(ITEMS)],
        },
        loss="hierarchical_smooth_ap",
    ),
    "label_sets": Kind(
        {"labels": [f"g{group(i)}" + ("|odd" if group(i) == 3 else "") for i in range(ITEMS)]},
        ("memory.size=24",),
    ),
    "pairs": Kind({}, ("data.label=none", "relevance.pairs={pairs}"), known_pairs()),
    "graded": Kind(
        {}, ("data.label=none", "relevance.grades={pairs}"), graded_pairs(), "graded_supcon"
    ),
    "a function": Kind(
        {"label": [str(group(i)) for i in range(ITEMS)]},
        ("relevance.grades={function}:same",),
        loss="generalized_contrastive",
    ),
}


def made(folder: Path, kind: Kind, *words: str) -> RunContext:
    rng = np.random.default_rng(0)
    pixels = rng.integers(256, size=(GROUPS, 8, 8, 3))[[group(i) for i in range(ITEMS)]]
    pixels = np.clip(pixels + rng.normal(0, 30, size=pixels.shape), 0, 255).astype(np.uint8)
    for path, image in zip(PATHS, pixels, strict=True):
        Image.fromarray(image).save(folder / path)
    table_file.write(folder / "data.csv", {"path": PATHS} | kind.columns)
    if kind.pairs is not None:
        table_file.write(folder / "pairs.csv", kind.pairs)
    same = f"(rows // {EACH} == columns // {EACH}).float() * 0.9"
    (folder / "grades.py").write_text(f"def same(rows, columns):\n    return {same}\n")
    places = {"pairs": folder / "pairs.csv", "function": folder / "grades.py"}
    given = ["data=table", f"data.root={folder / 'data.csv'}", f"loss={kind.loss}", *TINY]
    given += [*(word.format(**places) for word in kind.words), *words]
    unseen.trust(f"{places['function']}:same")
    return prepare(configs.make(configs.override({}, given)))


def slow_recall(context: RunContext, embeddings: torch.Tensor) -> float:
    """The nearest of those of which anybody knows, by a loop."""
    test = context.split.test
    relation = context.relevance.of(torch.from_numpy(test)).to()
    unit = torch.nn.functional.normalize(embeddings.double())
    hits = []
    for q in range(len(test)):
        others = [j for j in range(len(test)) if relation.same[q, j] or relation.different[q, j]]
        if not any(relation.same[q, j] for j in others):
            continue
        near = {j: round(float(unit[q] @ unit[j]) * 2**20) for j in others}
        nearest = [j for j in others if near[j] == max(near.values())]
        hits.append(all(bool(relation.same[q, j]) for j in nearest))
    return float(np.mean(hits))


@pytest.mark.parametrize(
    "name",
    [n if n == "label_sets" else pytest.param(n, marks=pytest.mark.slow) for n in KINDS],
)
def test_the_whole_way(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, out = KINDS[name], tmp_path / "run"
    monkeypatch.chdir(tmp_path)  # code of one's own lies where one is
    context = made(tmp_path, kind)
    wanted = "graded" if name == "a function" else name
    assert context.config.data.relevance.kind == wanted
    result = train_and_evaluate(context, out, "test")

    with np.load(out / "embeddings" / "test.npz") as kept:
        embeddings = torch.from_numpy(kept["embeddings"])
    scores = result.scores["trained"]
    assert scores.metrics["recall@1"].value == pytest.approx(
        slow_recall(context, embeddings), abs=1e-6
    )
    assert ("trained by level_1" in result.scores) == (name == "levels")

    again, _ = reopen(out)
    assert again.relevance.kind == wanted
    np.testing.assert_array_equal(again.split.test, context.split.test)
    model = Trained.open(out)
    calibration = calibrate_run(again, model, Callbacks(), fmr=0.2)
    assert 0 <= calibration.measured_fmr <= 0.2
    assert calibration.wrong_pairs > 0

    with Writer.create(tmp_path / "index", model_entry(model)) as writer:
        ingest(writer, model, find([tmp_path / "data.csv"]))
    vector = model.embed([tmp_path / PATHS[0]])
    (answer,) = ask(Index.open(tmp_path / "index"), vector, 3, calibration)
    assert answer.hits[0].path.endswith(PATHS[0])
    assert answer.hits[0].label == next(iter(kind.columns.values()), [None])[0] or name == "levels"

    message: list[str] = []
    if again.relevance.has_classes:
        adapted = few_shots(again, RunFolder(out), 1, Callbacks(warn=message.append), 2, 2)
        assert adapted.classes > 0
        assert any("its levels are not looked at" in line for line in message) == (name == "levels")
    else:
        refused = rf"drawn by class, and relevance.kind={wanted}"
        with pytest.raises(ValueError, match=refused):
            few_shots(again, RunFolder(out), 1, Callbacks())
        with pytest.raises(ValueError, match=refused):
            open_set_of(again, RunFolder(out), Callbacks())

    if name == "a function":  # what a report shows of it is by class
        return
    matches = queries.find(stored_run._embeddings(out, "embeddings/test.npz"), True)  # type: ignore[arg-type]
    right = matches.matches[matches.askable, 0].mean()
    assert right == pytest.approx(scores.metrics["recall@1"].value, abs=1e-6)
    assert run_page.write(out, again.dataset).is_file()


def test_no_label_is_on_two_sides(tmp_path: Path) -> None:
    """Four images carry a label of another group: one side keeps it, the others are left out."""
    message: list[str] = []
    labels = [f"g{group(i)}" for i in range(ITEMS)]
    for i in (0, 9, 30, 60):
        labels[i] += "|everywhere"
    made(tmp_path, Kind({"labels": labels}))
    words = configs.override({}, ["data=table", f"data.root={tmp_path / 'data.csv'}", *TINY])
    context = prepare(configs.make(words), Callbacks(warn=message.append))
    assert any("labels of theirs are on both sides of the split" in line for line in message)
    parts = (context.split.train, context.split.validation, context.split.test)
    sets = [{word for i in part for word in labels[i].split("|")} for part in parts]
    assert not sets[0] & sets[1]
    assert not sets[0] & sets[2]
    assert not sets[1] & sets[2]


REFUSED = {
    "loss=proxy_anchor miner=none": "the losses that can: .*multi_similarity",
    "regularizers=density": "the regularizers that can: .*entropy",
    "sampler=greedy_coreset": "the samplers that can: .*m_per_class",
    "manifold_mixup=true": "manifold_mixup mixes images of classes",
    "label_filter=prism": "label_filter doubts the class of an item, and label_sets are no classes",
}


@pytest.mark.parametrize(
    "words", [w if "loss" in w else pytest.param(w, marks=pytest.mark.slow) for w in REFUSED]
)
def test_parts_that_need_classes_are_refused_and_others_named(words: str, tmp_path: Path) -> None:
    context = made(tmp_path, KINDS["label_sets"], "memory=none", *words.split())
    with pytest.raises(ValueError, match=REFUSED[words]):
        train_and_evaluate(context, tmp_path / "run", "test")


def test_losses_without_grades_are_refused_where_there_are_only_grades(tmp_path: Path) -> None:
    context = made(tmp_path, KINDS["graded"], "loss=supcon")
    with pytest.raises(ValueError, match=r"the losses that can: .*graded_supcon"):
        train_and_evaluate(context, tmp_path / "run", "test")


@pytest.mark.parametrize("word", ["shots=[1]", "open_set=true"])
def test_what_is_drawn_by_class_is_refused_before_training(word: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"drawn by class, and relevance.kind=label_sets has none"):
        made(tmp_path, KINDS["label_sets"], word)


WRONG = {
    "relevance.kind=levels": "relevance.kind=levels: data has none",
    "relevance.pairs={pairs}": "items are not in the data, the first is 'x.png'",
    "relevance.kind=graded": "needs relevance.grades=FILE",
}


@pytest.mark.parametrize("word", WRONG)
def test_what_is_not_there_is_named(word: str, tmp_path: Path) -> None:
    pairs = {"first": ["x.png"], "second": [PATHS[0]], "same": ["1"]}
    with pytest.raises(ValueError, match=WRONG[word]):
        made(tmp_path, Kind(KINDS["labels"].columns, (word,), pairs))


def test_the_resolved_kind_is_kept(tmp_path: Path) -> None:
    context = made(tmp_path, KINDS["pairs"])
    assert context.config.sampler.values["per_class"] == 2
    again = configs.make_resolved(configs.parse(context.config.to_toml()))
    assert again == context.config
    assert json.loads(again.model_dump_json())["data"]["relevance"]["kind"] == "pairs"
