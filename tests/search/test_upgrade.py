"""A new model for an index: maps that are right, mapped vectors that are marked, nothing lost."""

import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.faults import injection
from unseen.cli import main
from unseen.evaluation.calibrate import Calibration
from unseen.experiment.trained import Trained
from unseen.search import ingest as ingesting
from unseen.search import manifest as manifests
from unseen.search import upgrade
from unseen.search.answers import MAPPED, ask, reason
from unseen.search.index import Index
from unseen.search.ingest import ingest, model_entry
from unseen.search.maintain import rebuild, relabel
from unseen.search.sources import find
from unseen.search.space_map import fit_maps
from unseen.search.verify import verify
from unseen.search.writer import Writer


def unit(count: int, size: int, seed: int) -> np.ndarray:
    vectors = np.random.default_rng(seed).normal(size=(count, size))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def rotation(size: int) -> np.ndarray:
    return np.linalg.qr(np.random.default_rng(9).normal(size=(size, size)))[0].astype(np.float32)


def test_a_rotation_is_found_again_by_every_map() -> None:
    turn, old = rotation(6), unit(400, 6, 0)
    maps = fit_maps(old, old @ turn, normalise=True)
    assert [each.kind for each in maps] == ["orthogonal", "linear", "mlp"]
    asked = unit(20, 6, 1)
    for each, most in zip(maps, (1e-5, 1e-3, 0.02), strict=True):
        made = each(asked)
        for row in range(20):  # one by one, in float64
            expected = [
                sum(float(asked[row, i]) * float(turn[i, j]) for i in range(6)) for j in range(6)
            ]
            assert np.abs(made[row] - expected).max() < most, each.kind


def test_maps_of_two_sizes_and_of_what_is_not_linear() -> None:
    old = np.random.default_rng(0).normal(size=(800, 5)).astype(np.float32)
    new = np.stack([old[:, 0] + 3, old[:, 1] * 2, np.abs(old[:, 2])], axis=1)
    rotated, linear, mlp = fit_maps(old, new, normalise=False)
    asked = np.random.default_rng(1).normal(size=(200, 5)).astype(np.float32)
    right = np.stack([asked[:, 0] + 3, asked[:, 1] * 2, np.abs(asked[:, 2])], axis=1)
    error = [float(np.abs(each(asked) - right).mean()) for each in (rotated, linear, mlp)]
    assert rotated(asked).shape == (200, 3)
    assert error[2] < error[1] < error[0]


def test_regression_reaches_as_far_from_the_mean_as_new_vectors_do() -> None:
    """Of vectors with a part that the old ones do not tell, new ones lie 1.25 times as far."""
    draw = np.random.default_rng(0)
    old = draw.normal(size=(2000, 4)).astype(np.float32)
    new = (old @ rotation(4) + 0.75 * draw.normal(size=(2000, 4)) + 5).astype(np.float32)
    linear = fit_maps(old, new, normalise=False)[1]
    asked = draw.normal(size=(300, 4)).astype(np.float32)
    found = linear(asked) - 5
    expected = 1.25 * (asked @ rotation(4))
    assert np.abs(found - expected).max() < 0.3
    lengths = [np.linalg.norm(found), np.linalg.norm(expected)]
    assert lengths[0] / lengths[1] == pytest.approx(1, abs=0.04)


def test_maps_of_very_few_pictures_are_refused_in_a_line() -> None:
    with pytest.raises(ValueError, match=r"fitted on 11 pictures or more .*got 10: `unseen index"):
        fit_maps(unit(10, 6, 0), unit(10, 6, 1), normalise=True)
    assert len(fit_maps(unit(11, 6, 0), unit(11, 6, 1), normalise=True)) == 3


@pytest.fixture(scope="module")
def newer(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """The run with its vectors turned."""
    folder = tmp_path_factory.mktemp("newer") / "run"
    shutil.copytree(run, folder)
    changed = Trained.open(folder)
    turn = torch.from_numpy(rotation(16))
    with torch.no_grad():
        for name, values in changed.network.head.fc1.named_parameters():
            values.copy_(turn @ values)
            assert name in ("weight", "bias")
    changed.folder.write_tensors("weights.safetensors", changed.network.state_dict())
    return Trained.open(folder)


@pytest.fixture
def index(tmp_path: Path, model: Trained, pictures: Path) -> Path:
    shutil.copytree(pictures, tmp_path / "pictures")
    with Writer.create(tmp_path / "i", model_entry(model)) as writer:
        ingest(writer, model, find([tmp_path / "pictures"]))
        writer.remove([2])
    return tmp_path / "i"


def test_mapped_vectors_answer_are_marked_and_replaced(
    index: Path,
    newer: Trained,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A stop, a relabelled and a removed picture in between: the end is that of a rebuild."""
    shutil.copytree(index, tmp_path / "rebuilt")
    before = list(Index.open(index).every())
    monkeypatch.setattr(upgrade, "PORTION", 8)
    monkeypatch.setattr(ingesting, "BATCH", 1)  # a vector does not depend on its neighbours
    whole, portions = upgrade.ingest, []

    def stopped(*given: object) -> object:
        portions.append(1)
        if len(portions) == 2:
            raise KeyboardInterrupt
        return whole(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(upgrade, "ingest", stopped)
    monkeypatch.setattr(
        sys, "argv", f"unseen index upgrade {index} --run {newer.folder.path}".split()
    )
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        main.run()
    told = capsys.readouterr().out
    assert "new -> mapped (orthogonal)" in told
    assert "answers with 29 mapped vectors" in told

    half = Index.open(index)
    assert upgrade.num_mapped(half) == 21
    assert sorted(half.ids.tolist()) == [id for id, _ in before]
    assert verify(index) == []
    queries = newer.embed([facts.path for _, facts in before])
    for (id, _), answer in zip(before, ask(half, queries, k=3), strict=True):
        assert answer.hits[0].id == id  # mapped and new ones side by side
        assert answer.hits[0].similarity > 0.99
        assert (answer.hits[0].verdict == MAPPED) == half.picture(id).mapped
    with Writer.open(index) as writer:
        relabel(writer, [29], "other")
        writer.remove([30])
    assert Index.open(index).picture(29).mapped

    main_again = pytest.raises(SystemExit)
    with main_again as ended:
        main.run()
    assert not ended.value.code
    assert "embedded 20 pictures; 0 vectors stay mapped" in capsys.readouterr().out
    with Writer.open(tmp_path / "rebuilt") as writer:
        relabel(writer, [29], "other")
        writer.remove([30])
    rebuild(tmp_path / "rebuilt", newer)
    made, expected = (Index.open(path) for path in (index, tmp_path / "rebuilt"))
    assert sorted(made.every()) == sorted(expected.every())
    ids = sorted(expected.ids.tolist())
    assert made.vectors(ids).tobytes() == expected.vectors(ids).tobytes()
    assert [made.thumbnail(id) for id in ids] == [expected.thumbnail(id) for id in ids]


def test_of_a_file_that_is_gone_the_mapped_vector_stays(index: Path, model: Trained) -> None:
    with Writer.open(index) as writer:
        first = next(writer.index().every())[1]
    upgrade.serve_mapped(index, fit_maps(unit(50, 16, 0), unit(50, 16, 0), True)[0], model)
    Path(first.path).unlink()
    done = upgrade.embed_mapped(index, model)
    assert done.changed == 28
    assert len(done.unreadable) == 1
    kept = Index.open(index)
    assert [facts.path for _, facts in kept.every() if facts.mapped] == [first.path]
    hit = ask(kept, kept.vectors([1]), 1, CALIBRATION)[0].hits[0]
    assert (hit.verdict, hit.probability, hit.matched) == (MAPPED, None, None)
    assert "mapped" in reason(hit, CALIBRATION)


CALIBRATION = Calibration(
    1e-3, 0.5, 1e-3, 2e-3, 0.95, 0.1, 0.2, 100, 20, 1000, [0.0, 1.0, 0.0], 0.01, []
)


@pytest.mark.slow
def test_twenty_kills_while_embedding_lose_nothing(
    index: Path, model: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At every stage of a commit; after each kill the index is whole and answers."""
    monkeypatch.setattr(ingesting, "BATCH", 1)
    monkeypatch.setattr(ingesting, "COMMIT", 1)
    before = Index.open(index)
    known = dict(before.every())
    upgrade.serve_mapped(index, fit_maps(unit(50, 16, 0), unit(50, 16, 0), True)[0], model)
    left = upgrade.num_mapped(Index.open(index))
    assert left == 29
    for turn in range(20):

        def killed(turn: int = turn) -> None:
            owner, name = ((os, "replace"), (os, "fsync"), (manifests, "write"))[turn % 3]
            injection.with_death(owner, name, 3 + turn % 5)
            upgrade.embed_mapped(index, model)

        assert injection.forked(killed).was_killed
        assert verify(index) == []
        now = Index.open(index)
        assert {id: replace(facts, mapped=False) for id, facts in now.every()} == known
        assert (now.search(now.vectors([1]), k=29).ids > 0).all()
        assert upgrade.num_mapped(now) <= left
        left = upgrade.num_mapped(now)
    assert 0 < left < 29  # so the kills came while it was embedding
    upgrade.embed_mapped(index, model)
    made = Index.open(index)
    assert upgrade.num_mapped(made) == 0
    ids = sorted(known)
    np.testing.assert_allclose(made.vectors(ids), before.vectors(ids), atol=1e-5)
