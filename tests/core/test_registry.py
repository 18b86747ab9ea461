"""Names come from files, and a wrong one is answered with the nearest right one."""

import re

import pytest
import torch

from unseen.core import registry
from unseen.core.names import class_name


def test_names_are_the_files_of_a_folder() -> None:
    assert {"margin", "multi_similarity"} <= set(registry.names("losses"))
    assert "base" not in registry.names("losses")
    assert "images" not in registry.names("data")


def test_class_names() -> None:
    assert class_name("losses", "proxy_nca") == "ProxyNcaLoss"
    assert class_name("metrics", "map_at_r") == "MapAtR"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: registry.find("losses", "marging"),
            "unknown loss 'marging': did you mean margin",
        ),
        (lambda: registry.names("loses"), "unknown kind 'loses': did you mean losses"),
        (
            lambda: registry.create("losses", "margin", {"betta": 1.0}, num_classes=3),
            "unknown parameter of loss margin 'betta': did you mean beta?",
        ),
        (
            lambda: registry.create("losses", "margin", preset="revisited", num_classes=3),
            "unknown preset of margin 'revisited': did you mean revisit",
        ),
        (lambda: registry.find("losses", "pml:CircleLos"), "did you mean CircleLoss"),
        (lambda: registry.find("losses", "NTXentLoss"), "did you mean pml:NTXentLoss"),
        (lambda: registry.check("losses", "pml:CircleLoss", {"mm": 1}), "did you mean m"),
        (
            lambda: registry.create("losses", "pml:RankedListLoss", {"margin": 0.4}),
            "loss pml:RankedListLoss needs Tn",
        ),
        (lambda: registry.find("samplers", "pml:MPerClassSampler"), "has losses and miners"),
    ],
)
def test_wrong_names_are_answered_with_the_nearest(call: object, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        call()  # type: ignore[operator]


def test_context_preset_and_given_values_in_that_order() -> None:
    loss = registry.create("losses", "margin", num_classes=5, embedding_size=8)
    assert loss.beta.shape == (5,)
    loss = registry.create("losses", "margin", preset="thesis", num_classes=5)
    assert (loss.margin, loss.own_lr, loss.beta.shape) == (0.5, 5e-5, (1,))
    loss = registry.create("losses", "margin", {"margin": 0.3}, "thesis", num_classes=5)
    assert loss.margin == 0.3


def test_every_preset_of_every_method_can_be_built() -> None:
    context = {"num_classes": 4, "embedding_size": 8, "seed": 0}
    for kind in ("losses", "miners"):
        for name in registry.names(kind):
            for preset in getattr(registry.find(kind, name), "PRESETS", {}):
                assert registry.create(kind, name, preset=preset, **context) is not None


def test_an_entry_tells_line_paper_and_defaults() -> None:
    entry = registry.entry("losses", "multi_similarity")
    assert entry.line.startswith("Multi-similarity: each pair weighs")
    assert "CVPR 2019" in entry.paper
    assert entry.defaults["beta"] == 50.0
    assert "revisit" in entry.presets


def test_classes_of_pytorch_metric_learning_by_name() -> None:
    loss = registry.create("losses", "pml:CircleLoss", {"gamma": 64}, num_classes=4)
    miner = registry.create("miners", "pml:MultiSimilarityMiner", seed=0)
    handed_up = {"num_classes": 4, "embedding_size": 8}  # not in the signature of CosFaceLoss
    assert registry.create("losses", "pml:CosFaceLoss", {"scale": 32}, **handed_up).scale == 32
    generator = torch.Generator().manual_seed(0)
    embeddings = torch.randn(12, 8, generator=generator, requires_grad=True)
    labels = torch.arange(12) % 4
    loss(embeddings, labels, miner(embeddings, labels)).backward()
    assert embeddings.grad is not None
