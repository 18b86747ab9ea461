"""The words fit the space: collapse, hubs, gaps and wrong labels are seen where they were made."""

import math

import torch
from torch import Tensor

from unseen.evaluation.diagnosis import measure_space
from unseen.evaluation.findings import findings


def clouds(noise: float, size: int = 16) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(20).repeat_interleave(12)
    centers = torch.randn(20, size, generator=generator)
    return centers[labels] + noise * torch.randn(240, size, generator=generator), labels


def levels(train: tuple[Tensor, Tensor], test: tuple[Tensor, Tensor]) -> dict[str, str]:
    result = findings(measure_space(*train).numbers, measure_space(*test).numbers, {}, "embedding")
    return {finding.about: finding.level for finding in result}


def test_a_healthy_space_has_nothing_to_complain_of() -> None:
    x = clouds(0.3)
    message = findings(
        measure_space(*x).numbers,
        measure_space(*x).numbers,
        {"embedding": 0.8, "pooled": 0.8},
        "embedding",
    )
    assert {finding.level for finding in message} <= {"good", "note"}
    assert {"collapse", "spectrum", "hubness", "gap", "layer", "labels"} == {
        f.about for f in message
    }


def test_collapse() -> None:
    x, y = clouds(0.3)
    assert levels((x * 0.01 + 1, y), (x, y))["collapse"] == "warning"


def test_directions_that_are_not_used() -> None:
    x, y = clouds(0.3)
    flat = torch.cat([x, 1e-6 * torch.ones_like(x)], dim=1)
    assert levels((flat, y), (x, y))["spectrum"] == "warning"
    assert levels((x, y), (x, y))["spectrum"] == "good"


def test_a_gap_and_classes_that_were_not_learned() -> None:
    seen, unseen = clouds(0.2), clouds(1.5)
    assert (
        measure_space(*seen).numbers["recall@1"] - measure_space(*unseen).numbers["recall@1"] > 0.25
    )
    assert levels(seen, unseen)["gap"] == "warning"
    result = findings(
        measure_space(*unseen).numbers, measure_space(*unseen).numbers, {}, "embedding"
    )
    assert any("not learned" in finding.text for finding in result)


def test_wrong_labels_are_listed_first() -> None:
    x, y = clouds(0.1)
    y[5] = 7
    result = measure_space(x, y)
    assert result.label_issues == [(5, 0)]
    assert levels((x, y), clouds(0.1))["labels"] in ("note", "warning", "good")
    message = findings(result.numbers, measure_space(*clouds(0.1)).numbers, {}, "embedding")
    assert any("another class for 1 of the training images" in finding.text for finding in message)


def test_hubs_are_counted() -> None:
    x, y = clouds(1.0)
    x[3] = x.mean(0)  # near to everybody
    x = x + 2.0
    assert measure_space(x, y).hubs[0][0] == 3


def test_a_better_layer_and_broken_embeddings() -> None:
    x = clouds(0.3)
    numbers = measure_space(*x).numbers
    message = findings(numbers, numbers, {"embedding": 0.5, "pooled": 0.6}, "embedding")
    layer = next(finding for finding in message if finding.about == "layer")
    assert layer.level == "note"
    assert "pooled serves better than embedding: recall@1 60.0% instead of 50.0%" in layer.text
    x[0][0] = math.nan
    broken = measure_space(*x)
    assert broken.numbers == {"items": 240.0, "classes": 20.0, "broken": 1.0}
    assert "NaN" in findings(broken.numbers, numbers, {}, "embedding")[0].text
