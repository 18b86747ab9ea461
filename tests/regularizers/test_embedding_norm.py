"""The mean squared length of raw embeddings."""

from types import SimpleNamespace

import pytest
import torch

from unseen.core.contracts import Output
from unseen.regularizers.embedding_norm import EmbeddingNormRegularizer


def test_on_the_fixed_batch(spec: SimpleNamespace) -> None:
    """Norms 1, 2, 1.5, 0.5, 1, 2."""
    out = Output(spec.U, spec.U)
    squared, length = EmbeddingNormRegularizer(), EmbeddingNormRegularizer("length")
    assert squared(out, spec.labels).item() == pytest.approx((1 + 4 + 2.25 + 0.25 + 1 + 4) / 6)
    assert length(out, spec.labels).item() == pytest.approx(8 / 6)
    assert squared.report()["mean"].item() == pytest.approx(8 / 6)
    assert squared.report()["largest"].item() == pytest.approx(2.0)


def test_the_gradient_shrinks_embeddings(spec: SimpleNamespace) -> None:
    embeddings = spec.U.clone().requires_grad_()
    EmbeddingNormRegularizer()(Output(embeddings, embeddings), spec.labels).backward()
    torch.testing.assert_close(embeddings.grad, spec.U / 3)


def test_bad_power_is_named() -> None:
    with pytest.raises(ValueError, match=r"power must be one of squared, length; got 'cubed'"):
        EmbeddingNormRegularizer("cubed")
