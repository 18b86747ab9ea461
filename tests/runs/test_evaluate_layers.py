"""Layers of a run compared, while it trains and afterwards; every look at the test classes is
written down."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from unseen.config import build
from unseen.config import schema as configs
from unseen.core import custom_components
from unseen.runs import diagnose_run as diagnosing
from unseen.runs.batch_source import source_of
from unseen.runs.diagnose_run import diagnose
from unseen.runs.evaluate_layers import compare_layers
from unseen.runs.prepare import Callbacks, RunContext, prepare
from unseen.runs.run import train_and_evaluate
from unseen.runs.run_networks import stored_network
from unseen.studies.run_files import PerQuery
from unseen.studies.worker import STORED_ROWS, per_class, per_query
from unseen.training import json_files
from unseen.training.event_log import read
from unseen.training.events import Epoch
from unseen.training.result import read_result
from unseen.training.run_folder import RunFolder

pytestmark = pytest.mark.usefixtures("narrow_network")

TINY = [
    "data.max_classes=30",
    "batch_size=16",
    "embedding_size=16",
    "epochs=2",
    "sampler.steps=2",
    "workers=0",
    'metrics=["recall@1"]',
]
LAYERS = ["stage1", "stage2", "stage3", "pooled", "embedding"]


def setting_of(*words: str) -> RunContext:
    return prepare(configs.make(configs.override({}, [*TINY, *words])))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunContext, RunFolder]:
    context, path = setting_of("layers_every=2"), tmp_path_factory.mktemp("run")
    train_and_evaluate(context, path, "test")
    return context, RunFolder(path)


def test_layers_on_train_and_test_classes(run: tuple[RunContext, RunFolder]) -> None:
    context, folder = run
    table = compare_layers(context, folder, [], Callbacks())
    assert table == folder.read_json("layers.json")
    assert [row["layer"] for row in table["layers"]] == LAYERS
    assert [row["size"] for row in table["layers"]] == [16, 32, 64, 64, 16]
    result = folder.read_json("result.json")["scores"]["trained"]["metrics"]
    assert table["layers"][-1]["test"] == result["recall@1"]["value"]
    network = stored_network(context, folder)
    _, transform = build.image_transforms(context.config, network)
    items = context.split.train
    x = context.embed_layers(network, transform, items, ["stage2"])["stage2"].double()
    sim = (x @ x.T).fill_diagonal_(-2)
    labels = torch.from_numpy(context.dataset.labels[items])
    expected = float((labels[sim.argmax(1)] == labels).double().mean())
    assert table["layers"][1]["train"] == pytest.approx(expected, abs=2e-3)
    with np.load(folder.file("embeddings/layers.npz")) as kept:
        right = np.nanmean(kept["right"], axis=1)
        matches = context.dataset.labels[kept["indices"]][kept["nearest"]]
    assert right.tolist() == pytest.approx([row["test"] for row in table["layers"]], abs=1e-6)
    own = context.dataset.labels[context.split.test]
    assert np.nanmean(matches == own, axis=1).tolist() == pytest.approx(right.tolist(), abs=0.01)
    reads = [read["purpose"] for read in folder.read_json("manifest.json")["test_reads"]]
    assert "recall by layer" in reads


@pytest.mark.parametrize("layer", ["stage2", "pooled"])
@pytest.mark.parametrize("frozen", ["none", "stage1", "stage3"])
def test_a_layer_and_what_the_head_is_given_take_one_pass(layer: str, frozen: str) -> None:
    """But for a layer before the freeze point: activations are kept of what comes after it."""
    context = setting_of(f"freeze_until={frozen}", "cached_augmentations=0")
    network = build.network(context.config)
    source = source_of(context, network, Callbacks())
    test, passed = context.split.test, list[int]()
    apart = [source.embed(test, layer=layer), source.embed(test, field="pooled")]
    network.head.register_forward_hook(lambda *_: passed.append(1))  # type: ignore[operator,union-attr]
    source.embed(test, layer=layer)
    once = len(passed)
    both = source.embed_fields(test, None, layer, ("embeddings", "pooled"))
    assert all(map(torch.equal, apart, (both["embeddings"], both["pooled"])))
    is_early = (layer, frozen) == ("stage2", "stage3")
    assert (len(passed) == 2 * once) is not is_early


def test_runs_of_a_study_are_evaluated_at_other_layers(run: tuple[RunContext, RunFolder]) -> None:
    context, folder = run
    kept = per_class(context, folder, "recall@1", ["pooled"])
    network = stored_network(context, folder)
    _, transform = build.image_transforms(context.config, network)
    test = context.split.test
    x = context.embed_layers(network, transform, test, ["pooled"])["pooled"].double().numpy()
    labels = context.dataset.labels[test]
    sums = dict.fromkeys(kept.classes, 0.0)
    for i, mine in enumerate(x):  # the slow twin: the nearest other image by the cosine
        others = [j for j in range(len(x)) if j != i]
        cosines = [float(mine @ x[j] / np.linalg.norm(mine) / np.linalg.norm(x[j])) for j in others]
        sums[int(labels[i])] += labels[others[int(np.argmax(cosines))]] == labels[i]
    assert kept.layers["pooled"]["trained"] == pytest.approx(list(sums.values()))
    assert kept.layers["pooled"]["trained"] != kept.sums
    assert set(kept.layers["pooled"]) == {"trained", "untrained", "principal"}
    assert folder.read_json("manifest.json")["test_reads"][-1]["purpose"] == "recall@1 at pooled"
    assert per_class(context, folder, "recall@1").layers == {}


def test_sums_by_class_follow_from_the_values_of_queries(run: tuple[RunContext, RunFolder]) -> None:
    context, folder = run
    text = json_files.text_of(per_query(context, folder, "recall@1"))
    kept, by_class = json_files.parsed(PerQuery, text, "x"), per_class(context, folder, "recall@1")
    sums = dict.fromkeys(by_class.classes, 0.0)
    for label, value in zip(kept.labels(), kept.values_of("trained/recall@1"), strict=True):
        sums[int(label)] += value
    assert list(sums.values()) == by_class.sums
    with np.load(folder.file("embeddings/per_query.npz")) as arrays:
        assert set(kept.values) == {f"{row}/recall@1" for row in STORED_ROWS} < set(arrays.files)
        for name in kept.values:
            assert kept.values_of(name) == pytest.approx(arrays[name], abs=5e-4, nan_ok=True)
    assert len(kept.values["trained/recall@1"]) < kept.queries / 4, "bits"
    gaps = PerQuery.of(np.arange(3), {"trained/x": np.array([1.0, np.nan, 0.3])})
    assert gaps.values_of("trained/x") == pytest.approx([1, np.nan, 0.3], abs=5e-4, nan_ok=True)


def test_only_the_requested_layers(run: tuple[RunContext, RunFolder]) -> None:
    table = compare_layers(*run, ["pooled", "stage1.reduce"], Callbacks())
    assert [row["layer"] for row in table["layers"]] == ["pooled", "stage1.reduce"]
    with pytest.raises(ValueError, match="no layer named 'poled': did you mean pooled"):
        compare_layers(*run, ["poled"], Callbacks())


def test_the_event_log_holds_layers_every_n_epochs(run: tuple[RunContext, RunFolder]) -> None:
    events = read(run[1].file("events.jsonl"))
    epochs = [event for event in events if isinstance(event, Epoch)]
    assert [event.layers is not None for event in epochs] == [False, True]
    recall, scores = epochs[1].layers or {}, epochs[1].validation or {}
    assert set(recall) == {"train", "validation"}
    assert list(recall["validation"]) == LAYERS
    seen = recall["validation"]["embedding"]
    assert seen == pytest.approx(scores["recall@1"], abs=1e-6)


def test_looking_changes_nothing_and_watching_test_classes_is_marked(
    run: tuple[RunContext, RunFolder], tmp_path: Path
) -> None:
    result = train_and_evaluate(setting_of("monitor=test", "layers_every=1"), tmp_path, "test")
    assert result.monitor == "test"
    assert result.scores == read_result(run[1]).scores
    epochs = [e for e in read(tmp_path / "events.jsonl") if isinstance(e, Epoch)]
    assert all("recall@1" in (event.test or ()) for event in epochs)
    assert set(epochs[0].layers or ()) == {"train", "validation", "test"}
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert [read["purpose"] for read in manifest["test_reads"]] == [
        *(f"watched, epoch {epoch}" for epoch in range(3)),
        "final evaluation",
    ]
    assert "monitor" not in run[1].read_json("result.json")


def test_diagnosis_of_a_run(run: tuple[RunContext, RunFolder]) -> None:
    context, folder = run
    diagnosis = diagnose(context, folder, Callbacks(), with_robustness=True)
    assert diagnosis == folder.read_json("diagnosis.json")
    first, *others = [finding["about"] for finding in diagnosis["findings"]]
    assert first == "training", "what training added comes before all else"
    assert set(others) == {"collapse", "spectrum", "hubness", "gap", "layer", "labels"}
    result = folder.read_json("result.json")["scores"]["trained"]["metrics"]
    recall = diagnosis["numbers"]["test"]["recall@1"]
    assert recall == result["recall@1"]["value"]
    assert diagnosis["robustness"]["recall"][0][:2] == [1.0, pytest.approx(recall)]
    assert set(diagnosis["layers"]) == set(LAYERS)
    assert {index for index, _ in diagnosis["hubs"]} <= set(context.split.test.tolist())
    manifest = folder.read_json("manifest.json")
    assert manifest["test_reads"][-1]["purpose"] == "diagnosis"


def test_a_diagnosis_with_more(run: tuple[RunContext, RunFolder]) -> None:
    def mean(embeddings: Tensor, labels: Tensor) -> dict[str, Tensor]:
        return {"mean": embeddings.mean(dim=0), "items": torch.tensor(len(labels))}

    ours = custom_components.object_name(mean)
    with custom_components.known_objects({ours: mean}):
        result = diagnose(*run, Callbacks(), also=[ours, "class_spectrum"])["more"]
    short = custom_components.short_name(ours)
    assert result[short]["test"]["items"] == len(run[0].split.test)
    assert len(result[short]["train"]["mean"]) == run[0].config.model.embedding_size
    assert len(result[short]["source"]["sha256"]) == 64
    assert "source" not in result["class_spectrum"]
    with pytest.raises(ValueError, match="did you mean class_spectrum"):
        diagnose(*run, Callbacks(), also=["class_spektrum"])


@pytest.mark.parametrize("given", [{"answer": "none"}, {}, 0.5])
def test_a_diagnostic_gives_numbers(given: object) -> None:
    with pytest.raises(ValueError, match=r"mine\.py:Mine must give a dict of numbers or arrays"):
        diagnosing._values("./mine.py:Mine", given)
