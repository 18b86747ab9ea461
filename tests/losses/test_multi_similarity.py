import math
from types import SimpleNamespace

import pytest
import torch
from pytorch_metric_learning import losses as pml

from unseen.losses.multi_similarity import MultiSimilarityLoss
from unseen.miners.multi_similarity import MultiSimilarityMiner as Miner

VARIANTS = [{}, {"alpha": 5.0, "beta": 9.0, "base": 0.1}, {"average": "paired"}]


def slow(case, alpha=2.0, beta=50.0, base=0.5, average="all") -> float:
    total, kept = 0.0, 0
    for i in range(len(case.x)):

        def exponentials(pairs, slope: float, i: int = i) -> list[float]:
            result = []
            for a, j in set(pairs):
                if a == i:
                    u, v = case.x[i], case.columns[j]
                    similarity = (u @ v / (u.norm() * v.norm())).item()
                    result.append(math.exp(slope * (similarity - base)))
            return result

        pull, push = exponentials(case.positives, -alpha), exponentials(case.negatives, beta)
        total += math.log1p(sum(pull)) / alpha + math.log1p(sum(push)) / beta
        kept += bool(pull or push)
    return total / (len(case.x) if average == "all" else kept)


@pytest.mark.parametrize("values", VARIANTS, ids=str)
def test_equals_a_loop(case, values) -> None:
    assert case(MultiSimilarityLoss(**values)).item() == pytest.approx(
        slow(case, **values), abs=1e-9
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_numbers_of_the_sources(spec: SimpleNamespace, dtype: torch.dtype) -> None:
    close = 1e-5 if dtype == torch.float64 else 1e-4
    x, y = spec.T.to(dtype), spec.labels
    presets = MultiSimilarityLoss.PRESETS

    def of(x, epsilon: float | None, **values) -> float:
        tuples = None if epsilon is None else Miner(epsilon)(x, y)
        return MultiSimilarityLoss(**values)(x, y, tuples).item()

    assert of(x, 0.1, **presets["revisit"]) == pytest.approx(0.106025, abs=close)
    assert of(x, 0.1, **presets["revisit_code"]) == pytest.approx(0.636152, abs=close)
    assert of(x, 0.4, **presets["thesis_tuned"]) == pytest.approx(0.172080, abs=close)
    assert of(x, None, **presets["revisit"]) == pytest.approx(0.394131, abs=close)
    assert of(x, 2.5, **presets["revisit"]) == pytest.approx(0.394131, abs=close)
    assert of(x, None, **presets["horde"]) == pytest.approx(0.394011, abs=close)
    collapsed = math.log1p(1 / math.e) / 2 + math.log1p(4 * math.exp(20)) / 40
    assert of(spec.COL.to(dtype), None, beta=40.0) == pytest.approx(collapsed, abs=close)
    assert of(spec.ORT.to(dtype), 0.1) == 0
    assert of(spec.ORT.to(dtype), 0.1, average="paired") == 0


def test_equals_the_peer(cases) -> None:
    for case in (cases[0], cases[2]):  # it refuses the tuples of the rho switch
        peer = pml.MultiSimilarityLoss(alpha=2, beta=40, base=0.5)
        indices = None if case.tuples is None else tuple(case.tuples)
        expected = peer(case.x, case.y, indices).item()
        assert case(MultiSimilarityLoss(beta=40.0)).item() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("values", VARIANTS, ids=str)
def test_gradient(cases, values) -> None:
    for case in cases[:6]:
        x = case.x.clone().requires_grad_()
        assert torch.autograd.gradcheck(lambda x, c=case: c(MultiSimilarityLoss(**values), x), (x,))


@pytest.mark.parametrize("values", [{"alpha": 0.0}, {"beta": -1.0}, {"average": "some"}])
def test_bad_values(values) -> None:
    (name,) = values
    with pytest.raises(ValueError, match=name):
        MultiSimilarityLoss(**values)
