"""A tiny run beyond its scores: a step of splits of growing shift, few shots, other domains, an
open set; each is kept, noted in the manifest, and shown on the page."""

import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from unseen.cli import main
from unseen.config import schema as configs
from unseen.config.tables import LabelFilter
from unseen.evaluation.shift_splits import read_shift_splits
from unseen.evaluation.training_gain import Gain
from unseen.reports import run_page
from unseen.reports.compare_runs import compare_runs
from unseen.reports.score_tables import row_title
from unseen.runs.few_shots import LowRankLayers, adapted, drawn, few_shots, read_few_shots
from unseen.runs.open_set_of_run import open_set_of, read_open_set
from unseen.runs.other_data import Domain, Forgetting, forgetting, read_forgetting
from unseen.runs.prepare import Callbacks, prepare, reopen
from unseen.runs.run import run_config
from unseen.runs.run_networks import stored_network
from unseen.training.result import read_result
from unseen.training.run_folder import RunFolder

CLASSES, EACH, SIZE = 24, 7, 8


def features(path: Path, seed: int, prefix: str = "bird") -> Path:
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(CLASSES), EACH)
    rows = 2 * rng.normal(size=(CLASSES, SIZE))[labels] + rng.normal(size=(len(labels), SIZE))
    names = np.array([f"{prefix} {c:02}" for c in range(CLASSES)])
    year = np.tile(np.arange(2000, 2000 + EACH), CLASSES)
    metadata = {"labels": labels, "label_names": names, "label_year": year.astype(str)}
    np.savez(path, features=rows.astype(np.float32), **metadata)
    return path


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("generalization")
    features(folder / "birds.npz", 0)
    features(folder / "cars.npz", 1, "car")
    return folder


@pytest.fixture(scope="module")
def run(place: Path) -> Path:
    values = {
        "data": {"name": "arrays", "root": str(place / "birds.npz")},
        "protocol": "shift",
        "shift": {"step": 3},
        "epochs": 1,
        "batch_size": 8,
        "validation_fraction": 0.25,
        "embedding_size": 4,
        "shots": [2],
        "open_set": True,
        "metrics": ["recall@1", "map_at_r"],
    }
    return run_config(configs.make(values), place / "run", "test").path


def test_a_step_of_the_shift_is_reported_everywhere(run: Path, place: Path) -> None:
    result = read_result(RunFolder(run))
    context, _ = reopen(run)
    stages = read_shift_splits(run / "shift.csv", context.dataset.label_names)
    step = stages.at(3)
    assert (result.split.shift_step, result.split.shift) == (3, step.distance)
    assert set(context.dataset.labels[context.split.test]) == set(step.test)
    assert context.shift == step.distance
    with pytest.raises(ValueError, match="needs a step of its stages"):
        configs.make({"protocol": "shift"})
    with pytest.raises(ValueError, match="needs a step of its stages"):
        configs.make({"shift": {"step": 2}})


def test_shots_leave_both_sides_and_are_drawn_by_class() -> None:
    labels = torch.arange(5).repeat_interleave(4).repeat(2)
    labels[:3] = 9  # three of a class of their own
    episode = drawn(labels, 2, [0, 1])
    assert episode.shots.shape == (5, 2)
    rest = set(episode.rest.tolist())
    assert rest.isdisjoint(episode.shots.flatten().tolist())
    assert rest | set(episode.shots.flatten().tolist()) == set(range(40))
    assert [len(labels[row].unique()) for row in episode.shots] == [1] * 5
    assert 9 not in labels[episode.shots]
    assert torch.equal(episode.shots, drawn(labels, 2, [0, 1]).shots)
    assert not torch.equal(episode.shots, drawn(labels, 2, [0, 2]).shots)
    with pytest.raises(ValueError, match="no test class has the 9 images"):
        drawn(labels[3:4], 7, [0])


def test_few_shots_before_and_after(run: Path) -> None:
    folder = RunFolder(run)
    kept = read_few_shots(folder)["2"]
    assert (kept.shots, kept.episodes, kept.too_small) == (2, 10, 0)
    context, _ = reopen(run)
    before = (run / "weights.safetensors").read_bytes()
    nothing = few_shots(context, folder, 3, Callbacks(), episodes=2, steps=0)
    assert nothing.gain["recall@1"].before == nothing.gain["recall@1"].after
    assert nothing.before["recall@1"] == nothing.after["recall@1"]
    assert set(read_few_shots(folder)) == {"2", "3"}
    assert (run / "weights.safetensors").read_bytes() == before
    reads = [read.purpose for read in folder.manifest().test_reads]
    assert "10 episodes of 2 labelled shots" in reads
    assert "2 episodes of 3 labelled shots" in reads
    with pytest.raises(ValueError, match="shots must be at least 1"):
        few_shots(context, folder, 0, Callbacks())


def test_no_shot_is_left_out_for_its_label(run: Path) -> None:
    context, _ = reopen(run)
    doubting = context.config.with_values({"label_filter": LabelFilter(fraction=0.5)})
    given, layer = torch.randn(12, SIZE), torch.nn.Linear(SIZE, 4)
    shots = torch.arange(12).view(4, 3)
    plain, other = (
        adapted(replace(context, config=config), given, layer, shots, steps=3).weight
        for config in (context.config, doubting)
    )
    assert torch.equal(plain, other)
    assert not torch.equal(plain, layer.weight)


def test_few_shots_are_evaluated_as_by_a_slow_twin(run: Path) -> None:
    """Recall before adapting, by a loop over the other images of each episode."""
    folder = RunFolder(run)
    context, _ = reopen(run)
    result = few_shots(context, folder, 2, Callbacks(), episodes=3, steps=1)
    with np.load(run / "embeddings" / "test.npz") as arrays:
        rows, labels = arrays["embeddings"].astype(np.float64), arrays["labels"]
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    recalls = []
    for number in range(3):
        rest = drawn(torch.from_numpy(labels), 2, [0, number]).rest.tolist()
        right = 0
        for i in rest:
            others = [j for j in rest if j != i]
            right += labels[max(others, key=lambda j: rows[i] @ rows[j])] == labels[i]
        recalls.append(right / len(rest))
    assert result.before["recall@1"].value == pytest.approx(np.mean(recalls), abs=1e-9)


def test_shots_move_adapters_as_a_slow_twin_says(run: Path) -> None:
    """One step of AdamW from B = 0, written out: B moves by the rate against the sign of s G A^T,
    A by its decay alone."""
    context, folder = reopen(run)
    loss = {"name": "contrastive", "pos_margin": 0.0, "neg_margin": 2.0}  # every pair counts
    config = configs.make_resolved(
        context.config.flat() | {"adapter": {"rank": 2, "alpha": 6.0}, "loss": loss}
        | {"miner": None, "lr": 0.05, "batch_size": 6, "weight_decay": 0.1}
    )  # fmt: skip
    network = stored_network(context, folder)
    context = replace(context, config=config)
    weight, bias = (p.detach().double() for p in network.head.parameters())  # type: ignore[union-attr]
    layers = LowRankLayers(context, network.eval(), Callbacks())
    shots, rest = torch.arange(6).view(3, 2), torch.arange(6, 20)
    before, after = layers.evaluated(shots, rest, steps=1)
    features = torch.from_numpy(context.dataset.features[context.split.test]).double()  # type: ignore[attr-defined]
    a = layers.added[0].A.detach().double() / (1 - 0.05 * 0.1)
    free = weight.clone().requires_grad_()
    order = torch.randperm(3, generator=torch.Generator().manual_seed(0))
    rows = features[shots[order].flatten()] @ free.T + bias
    unit = rows / rows.norm(dim=1, keepdim=True)
    labels = order.repeat_interleave(2).tolist()
    pull, push = [], []
    for i in range(6):
        for j in range(6):
            if i != j:
                distance = (unit[i] - unit[j]).norm()
                (pull if labels[i] == labels[j] else push).append(
                    distance if labels[i] == labels[j] else 2.0 - distance
                )
    (torch.stack(pull).mean() + torch.stack(push).mean()).backward()
    assert free.grad is not None
    b = -0.05 * torch.sign(3.0 * free.grad @ a.T)
    moved = weight + 3.0 * b @ (a * (1 - 0.05 * 0.1))
    assert torch.allclose(before.double(), features[rest] @ weight.T + bias, atol=1e-5)
    assert torch.allclose(after.double(), features[rest] @ moved.T + bias, atol=1e-4)


def test_shots_with_adapters_are_kept_beside_the_others(run: Path) -> None:
    context, folder = reopen(run)
    nothing = few_shots(context, folder, 2, Callbacks(), episodes=2, steps=0, adapt="lora")
    assert nothing.before["recall@1"] == nothing.after["recall@1"]
    result = few_shots(context, folder, 2, Callbacks(), episodes=2, steps=3, adapt="lora")
    known = read_few_shots(folder)
    assert known["2 (lora)"] == result
    assert known["2"].adapt == "last"
    reads = [read.purpose for read in folder.manifest().test_reads]
    assert "2 episodes of 2 labelled shots (lora)" in reads
    with pytest.raises(ValueError, match=r"unknown way to adapt 'lor'"):
        few_shots(context, folder, 2, Callbacks(), adapt="lor")


def test_an_open_set_with_thresholds_of_validation_classes(run: Path) -> None:
    folder = RunFolder(run)
    kept = read_open_set(folder)
    assert kept is not None
    assert kept.known_classes == kept.unknown_classes == 12 // 2
    assert set(kept.at) == {"calibrated", "balanced"}
    assert "open set" in [read.purpose for read in folder.manifest().test_reads]
    context, _ = reopen(run)
    by_year = open_set_of
    with pytest.raises(ValueError, match="there are no unknown ones"):
        by_year(context, folder, Callbacks(), time="year")  # every class is there from the start
    with pytest.raises(ValueError, match="unknown label column 'yeer'"):
        by_year(context, folder, Callbacks(), time="yeer")


def test_other_domains_before_and_after(run: Path, place: Path) -> None:
    result = forgetting(run, [str(place / "cars.npz")], Callbacks())
    assert [domain.data for domain in (result.home, *result.elsewhere)] == ["birds", "cars"]
    assert result.home.gain == read_result(RunFolder(run)).gain
    assert result.elsewhere[0].classes == CLASSES
    assert read_forgetting(RunFolder(run)) == result
    reads = [read.purpose for read in RunFolder(run).manifest().test_reads]
    assert any(purpose.startswith("unseen evaluate run --on") for purpose in reads)


def test_other_domains_are_evaluated_as_by_a_slow_twin(run: Path, place: Path) -> None:
    """Recall of each item of the other data among all its others, before and after, by a loop: the
    directions in which the training features are longest, and the stored weights."""
    result = forgetting(run, [str(place / "cars.npz")], Callbacks()).elsewhere[0].gain["recall@1"]
    context, folder = reopen(run)
    home = context.dataset.features[context.split.train].astype(np.float64)  # type: ignore[attr-defined]
    start = np.linalg.svd(home / np.linalg.norm(home, axis=1, keepdims=True))[2][:4]
    trained = stored_network(context, folder).head.parameters()  # type: ignore[union-attr]
    weight, bias = (p.detach().double().numpy() for p in trained)
    with np.load(place / "cars.npz") as arrays:
        items, labels = arrays["features"].astype(np.float64), arrays["labels"]
    heads = (items @ start.T, items @ weight.T + bias)
    for rows, message in zip(heads, (result.before, result.after), strict=True):
        unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        right = 0
        for i in range(len(unit)):
            others = [j for j in range(len(unit)) if j != i]
            right += labels[max(others, key=lambda j: unit[i] @ unit[j])] == labels[i]
        assert message == pytest.approx(right / len(unit), abs=1e-6)  # stored with six digits


@pytest.mark.parametrize("batches", ["one", "mixed"])
def test_one_model_of_two_domains(place: Path, batches: str) -> None:
    values = {
        "data": [str(place / "birds.npz"), str(place / "cars.npz")],
        "sampler": {"name": "by_domain", "per_class": 2, "batches": batches},
        "epochs": 1,
        "batch_size": 8,
        "embedding_size": 4,
        "metrics": ["recall@1"],
    }
    made = run_config(configs.make(values), place / f"both-{batches}", "test")
    scores = made.result.scores
    rows = [f"trained on {name}" for name in ("birds", "cars", "mean of domains")]
    birds, cars, mean = (scores[row].metrics["recall@1"].value for row in rows)
    assert mean == pytest.approx((birds + cars) / 2, abs=1e-6)
    assert scores["trained"].metrics["recall@1"].value == pytest.approx(mean, abs=1e-6)  # as many
    context, _ = reopen(made.path)
    assert len(set(context.dataset.labels[context.split.test])) == CLASSES
    assert row_title("trained on birds") == "trained network on birds"


def test_one_domain_against_all_of_them(place: Path) -> None:
    """Trained on one, tested on the same queries of both; a domain's row is a mean over its own."""
    values: dict[str, Any] = {
        "data": [str(place / "birds.npz"), str(place / "cars.npz")],
        "epochs": 1,
        "batch_size": 8,
        "embedding_size": 4,
        "metrics": ["recall@1"],
    }
    every = run_config(configs.make(values), place / "every", "test").path
    own = run_config(configs.make(values | {"train_domain": "cars"}), place / "own", "test").path
    contexts = [reopen(path)[0] for path in (every, own)]
    names, split = contexts[1].dataset.label_names, contexts[1].split
    for items in (split.train, split.validation):
        assert {names[c].partition("/")[0] for c in contexts[1].dataset.labels[items]} == {"cars"}
        assert set(items) <= set(contexts[0].split.train) | set(contexts[0].split.validation)
    assert np.array_equal(split.test, contexts[0].split.test)
    pair = compare_runs(every, own)
    assert list(pair.compared) == ["recall@1", "recall@1 on birds", "recall@1 on cars"]
    with np.load(own / "embeddings" / "test.npz") as arrays:
        rows, labels = arrays["embeddings"].astype(np.float64), arrays["labels"]
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    right = []
    for i in range(len(rows)):
        if names[labels[i]].startswith("cars/"):
            others = [j for j in range(len(rows)) if j != i]
            right.append(labels[max(others, key=lambda j: rows[i] @ rows[j])] == labels[i])
    assert pair.values["recall@1 on cars"][1] == pytest.approx(np.mean(right), abs=1e-9)
    with pytest.raises(ValueError, match=r"unknown domain 'car'.*cars"):
        prepare(configs.make(values | {"train_domain": "car"}))
    one = {"name": "arrays", "root": values["data"][0]}
    with pytest.raises(ValueError, match="needs data of several domains"):
        prepare(configs.make(values | {"data": one, "train_domain": "cars"}))


def test_a_loss_elsewhere_is_said() -> None:
    def domain(before: float, after: float) -> Domain:
        return Domain("x", 5, {"recall@1": Gain(before, after, math.nan, math.nan)})

    assert Forgetting(domain(0.5, 0.6), [domain(0.5, 0.45)]).warning is None
    lost = Forgetting(domain(0.5, 0.55), [domain(0.5, 0.4), domain(0.5, 0.48)]).warning
    assert lost is not None
    assert "-6.0 points of recall@1 on 2 other domains, on average, +5.0 at home" in lost
    assert Forgetting(domain(0.5, 0.4), [domain(0.5, 0.5)]).warning is None
    assert Forgetting(domain(0.5, 0.4), [domain(0.5, 0.45)]).warning is not None


def test_the_page_shows_all_of_it(run: Path, place: Path) -> None:
    context, folder = reopen(run)
    if read_forgetting(folder) is None:  # no other test has asked for it
        forgetting(run, [str(place / "cars.npz")], Callbacks())
    text = run_page.write(run, context.dataset).read_text()
    for anchor in ("few_shots", "forgetting", "open_set"):
        assert f'href="#section-{anchor}"' in text
    assert "Frechet distance" in text
    assert "geometric mean" in text


def test_the_commands(run: Path, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def unseen(*words: str) -> tuple[int, str, str]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", ["unseen", *words])
            with pytest.raises(SystemExit) as ended:
                main.run()
        printed = capsys.readouterr()
        return int(ended.value.code or 0), " ".join(printed.out.split()), printed.err

    also = ("--also", str(place / "cars.npz"))
    code, out, _ = unseen("evaluate", "run", str(run), "--shots", "2", "--open-set", *also)
    assert code == 0
    assert "birds (home)" in out
    assert "adjusted Rand index" in out
    assert "means of 10 episodes" in out
    wrong: list[tuple[tuple[Any, ...], str]] = [
        (("--time", "year"), "--time goes with --open-set"),
        (("--open-set", "--layers", "all"), "go without --on and --layers"),
    ]
    for words, message in wrong:
        code, _, err = unseen("evaluate", "run", str(run), *words)
        assert code != 0
        assert message in " ".join(err.split())
    table = place / "stages.csv"
    code, out, _ = unseen("data", "shift", str(place / "birds.npz"), "--out", str(table))
    assert code == 0
    assert "as it is" in out
    assert table.read_text() == (run / "shift.csv").read_text()
