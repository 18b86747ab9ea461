"""A new model for an index: right maps, marked vectors, nothing lost."""

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.faults import injection
from unseen.cli import index_upgrade, main
from unseen.core.statistics import Interval
from unseen.evaluation.calibration import Calibration
from unseen.runs.trained_run import Trained
from unseen.search import ingest as ingesting
from unseen.search import manifest as manifests
from unseen.search import upgrade
from unseen.search.answers import COMPATIBLE, ask, reason
from unseen.search.image_sources import find
from unseen.search.index import Index
from unseen.search.ingest import ingest, model_entry
from unseen.search.maintain import rebuild, relabel
from unseen.search.verify import verify
from unseen.search.writer import Writer


def unit(count: int, size: int, seed: int) -> np.ndarray:
    vectors = np.random.default_rng(seed).normal(size=(count, size))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def rotation(size: int) -> np.ndarray:
    return np.linalg.qr(np.random.default_rng(9).normal(size=(size, size)))[0].astype(np.float32)


def test_a_rotation_is_found_again_by_every_map() -> None:
    turn, old = rotation(6), unit(400, 6, 0)
    maps = upgrade.fit_maps(old, old @ turn, normalize=True)
    assert [each.kind for each in maps] == ["orthogonal", "linear", "mlp"]
    fresh = unit(20, 6, 1)
    for each, most in zip(maps, (1e-5, 1e-3, 0.02), strict=True):
        made = each(fresh)
        for row in range(20):  # one by one, in float64
            expected = [
                sum(float(fresh[row, i]) * float(turn[i, j]) for i in range(6)) for j in range(6)
            ]
            assert np.abs(made[row] - expected).max() < most, each.kind


def test_maps_of_two_sizes_and_of_what_is_not_linear() -> None:
    old = np.random.default_rng(0).normal(size=(800, 5)).astype(np.float32)
    new = np.stack([old[:, 0] + 3, old[:, 1] * 2, np.abs(old[:, 2])], axis=1)
    rotated, linear, mlp = upgrade.fit_maps(old, new, normalize=False)
    fresh = np.random.default_rng(1).normal(size=(200, 5)).astype(np.float32)
    right = np.stack([fresh[:, 0] + 3, fresh[:, 1] * 2, np.abs(fresh[:, 2])], axis=1)
    error = [float(np.abs(each(fresh) - right).mean()) for each in (rotated, linear, mlp)]
    assert rotated(fresh).shape == (200, 3)
    assert error[2] < error[1] < error[0]


def test_regression_reaches_as_far_from_the_mean_as_new_vectors_do() -> None:
    """Of vectors with a part that the old ones do not tell, new ones lie 1.25 times as far."""
    draw = np.random.default_rng(0)
    old = draw.normal(size=(2000, 4)).astype(np.float32)
    new = (old @ rotation(4) + 0.75 * draw.normal(size=(2000, 4)) + 5).astype(np.float32)
    linear = upgrade.fit_maps(old, new, normalize=False)[1]
    fresh = draw.normal(size=(300, 4)).astype(np.float32)
    result = linear(fresh) - 5
    expected = 1.25 * (fresh @ rotation(4))
    assert np.abs(result - expected).max() < 0.3
    lengths = [np.linalg.norm(result), np.linalg.norm(expected)]
    assert lengths[0] / lengths[1] == pytest.approx(1, abs=0.04)


def test_maps_of_very_few_images_are_refused_in_a_line() -> None:
    with pytest.raises(ValueError, match=r"fitted on 11 images or more .*got 10: `unseen index"):
        upgrade.fit_maps(unit(10, 6, 0), unit(10, 6, 1), normalize=True)
    assert len(upgrade.fit_maps(unit(11, 6, 0), unit(11, 6, 1), normalize=True)) == 3


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
def index(tmp_path: Path, model: Trained, images: Path) -> Path:
    shutil.copytree(images, tmp_path / "images")
    with Writer.create(tmp_path / "i", model_entry(model)) as writer:
        ingest(writer, model, find([tmp_path / "images"]))
        writer.remove([2])
    return tmp_path / "i"


def test_mapped_vectors_answer_are_marked_and_replaced(
    index: Path,
    newer: Trained,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A stop, a relabelled and a removed image in between: the end is that of a rebuild."""
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
    message = capsys.readouterr().out
    assert "new -> compatible (orthogonal)" in message
    assert "answers with 29 compatible vectors" in message

    half = Index.open(index)
    assert upgrade.num_compatible(half) == 21
    assert sorted(half.ids.tolist()) == [id for id, _ in before]
    assert verify(index) == []
    queries = newer.embed([metadata.path for _, metadata in before])
    for (id, _), answer in zip(before, ask(half, queries, k=3), strict=True):
        assert answer.hits[0].id == id  # compatible and new ones side by side
        assert answer.hits[0].similarity > 0.99
        assert (answer.hits[0].conclusion == COMPATIBLE) == half.image(id).compatible
    with Writer.open(index) as writer:
        relabel(writer, [29], "other")
        writer.remove([30])
    assert Index.open(index).image(29).compatible

    main_again = pytest.raises(SystemExit)
    with main_again as ended:
        main.run()
    assert not ended.value.code
    assert "embedded 20 images; 0 vectors stay compatible" in capsys.readouterr().out
    with Writer.open(tmp_path / "rebuilt") as writer:
        relabel(writer, [29], "other")
        writer.remove([30])
    rebuild(tmp_path / "rebuilt", newer)
    made, expected = (Index.open(path) for path in (index, tmp_path / "rebuilt"))
    assert sorted(made.every()) == sorted(expected.every())
    ids = sorted(expected.ids.tolist())
    assert made.vectors(ids).tobytes() == expected.vectors(ids).tobytes()
    assert [made.thumbnail(id) for id in ids] == [expected.thumbnail(id) for id in ids]


def test_of_a_file_that_is_gone_the_compatible_vector_stays(index: Path, model: Trained) -> None:
    with Writer.open(index) as writer:
        first = next(writer.index().every())[1]
    upgrade.serve_compatible(
        index, upgrade.fit_maps(unit(50, 16, 0), unit(50, 16, 0), True)[0], model
    )
    Path(first.path).unlink()
    done = upgrade.embed_again(index, model)
    assert done.changed == 28
    assert len(done.unreadable) == 1
    kept = Index.open(index)
    assert [metadata.path for _, metadata in kept.every() if metadata.compatible] == [first.path]
    hit = ask(kept, kept.vectors([1]), 1, CALIBRATION)[0].hits[0]
    assert (hit.conclusion, hit.probability, hit.matched) == (COMPATIBLE, None, None)
    assert "older model" in reason(hit, CALIBRATION)


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
    upgrade.serve_compatible(
        index, upgrade.fit_maps(unit(50, 16, 0), unit(50, 16, 0), True)[0], model
    )
    left = upgrade.num_compatible(Index.open(index))
    assert left == 29
    for turn in range(20):

        def killed(turn: int = turn) -> None:
            owner, name = ((os, "replace"), (os, "fsync"), (manifests, "write"))[turn % 3]
            injection.with_death(owner, name, 3 + turn % 5)
            upgrade.embed_again(index, model)

        assert injection.forked(killed).was_killed
        assert verify(index) == []
        now = Index.open(index)
        assert {id: replace(metadata, compatible=False) for id, metadata in now.every()} == known
        assert (now.search(now.vectors([1]), k=29).ids > 0).all()
        assert upgrade.num_compatible(now) <= left
        left = upgrade.num_compatible(now)
    assert 0 < left < 29  # so the kills came while it was embedding
    upgrade.embed_again(index, model)
    made = Index.open(index)
    assert upgrade.num_compatible(made) == 0
    ids = sorted(known)
    np.testing.assert_allclose(made.vectors(ids), before.vectors(ids), atol=1e-5)


@pytest.fixture
def run_upgrade(
    index: Path, newer: Trained, model: Trained, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., str]:
    """`index upgrade` where so much is found; what it said."""

    def ask_for(
        compatible: float, new: float, *words: str, calibrated: Sequence[Trained] = ()
    ) -> str:
        result = {
            name: upgrade.Result(Interval(recall, 0.0, 1.0), recall)
            for name, recall in (
                ("old -> old", 0.6),
                ("new -> new", new),
                ("new -> compatible (orthogonal)", compatible),
                ("new -> half compatible (orthogonal), half new", compatible),
            )
        }
        one = upgrade.fit_maps(unit(50, 16, 0), unit(50, 16, 0), True)[0]
        monkeypatch.setattr(upgrade, "fit", lambda *_: upgrade.Fitted(one, result, 50, 20))
        monkeypatch.setattr(index_upgrade, "reopen", lambda *_: (None, None))
        known = {trained.folder.path for trained in calibrated}
        monkeypatch.setattr(
            index_upgrade,
            "read_calibration",
            lambda trained: CALIBRATION if trained.folder.path in known else None,
        )
        given = f"unseen index upgrade {index} --run {newer.folder.path}".split()
        monkeypatch.setattr(sys, "argv", [*given, *words])
        with pytest.raises(SystemExit) as ended:
            main.run()
        return str(ended.value.code or 0)

    return ask_for


@pytest.mark.parametrize(("compatible", "new"), [(0.5, 0.7), (0.7, 0.5)])
def test_an_upgrade_that_makes_answers_worse_stops_before_it_writes(
    index: Path,
    run_upgrade: Callable[..., str],
    compatible: float,
    new: float,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = (index / "manifest.json").read_bytes()
    assert run_upgrade(compatible, new) == "2"
    message = " ".join(capsys.readouterr().err.split())
    assert "recall@1 60.0 % -> 50.0 %" in message
    assert "--force" in message
    assert (index / "manifest.json").read_bytes() == before
    assert run_upgrade(compatible, new, "--dry-run") == "0"
    assert (index / "manifest.json").read_bytes() == before
    assert run_upgrade(compatible, new, "--force") == "0"
    assert (index / "manifest.json").read_bytes() != before


def test_an_upgrade_to_a_run_without_calibration_stops_before_it_writes(
    index: Path,
    run_upgrade: Callable[..., str],
    model: Trained,
    newer: Trained,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = (index / "manifest.json").read_bytes()
    assert run_upgrade(0.7, 0.7, calibrated=[model]) == "2"
    message = " ".join(capsys.readouterr().err.split())
    assert "`unseen calibrate" in message
    assert "--force" in message
    assert (index / "manifest.json").read_bytes() == before
    assert run_upgrade(0.7, 0.7, calibrated=[model, newer]) == "0"


def test_an_upgrade_without_calibration_on_either_side_goes_on(
    run_upgrade: Callable[..., str],
) -> None:
    assert run_upgrade(0.7, 0.7) == "0"
