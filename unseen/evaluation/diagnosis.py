"""What an embedding space looks like, in numbers: every diagnostic on one set of embeddings.

`findings.py` says in words what stands out.
"""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from unseen.diagnostics.alignment import Alignment
from unseen.diagnostics.density import Density
from unseen.diagnostics.effective_rank import EffectiveRank
from unseen.diagnostics.hubness import Hubness
from unseen.diagnostics.label_noise import LabelNoise
from unseen.diagnostics.spectrum import Spectrum
from unseen.diagnostics.spread import Spread
from unseen.diagnostics.uniformity import Uniformity
from unseen.evaluation.retrieve import retrieve
from unseen.metrics.recall import Recall
from unseen.neighbors.space import non_finite_rows

K = 10  # neighbours that hubness and label noise look at


@dataclass(frozen=True)
class SpaceNumbers:
    """Numbers of one set, and the items to look at: positions, most striking first."""

    numbers: dict[str, float]
    label_issues: list[tuple[int, int]]  # item, the label its neighbours suggest
    hubs: list[tuple[int, int]]  # item, how many have it among their nearest


def measure_space(
    embeddings: Tensor, labels: Tensor, normalize: bool = True, listed: int = 20
) -> SpaceNumbers:
    """Every diagnostic on one set; broken embeddings have no numbers but their count."""
    numbers = {"items": float(len(embeddings)), "classes": float(len(labels.unique()))}
    numbers["broken"] = float(len(non_finite_rows(embeddings)))
    if numbers["broken"] or len(embeddings) <= K:
        return SpaceNumbers(numbers, [], [])
    result = retrieve(embeddings, labels, 1, normalize=normalize)
    numbers["recall@1"] = float(Recall(1)(result).nanmean())
    diagnostics: list[Any] = [Spread(), Alignment(), Uniformity(), EffectiveRank(centered=True)]
    for diagnostic in diagnostics:
        numbers |= diagnostic(embeddings, labels)
    spectrum = Spectrum()(embeddings, labels) if embeddings.shape[1] > 1 else {}
    numbers |= {key: float(spectrum[key]) for key in ("rho", "num_clamped") if key in spectrum}
    numbers["density"] = Density()(embeddings, labels)["mean"]
    hubness = Hubness(K, normalize)(embeddings, labels)
    numbers |= {key: hubness[key] for key in ("skewness", "orphans", "largest")}
    noise = LabelNoise(K, normalize=normalize)(embeddings, labels)
    numbers |= {
        "label_issues": float(len(noise["label_issues"])),
        "label_issue_fraction": noise["fraction"],
    }
    counts: Tensor = hubness["counts"]
    top = counts.argsort(descending=True, stable=True)[:listed].tolist()
    label_issues = zip(noise["label_issues"].tolist(), noise["suggested"].tolist(), strict=True)
    return SpaceNumbers(numbers, list(label_issues)[:listed], [(i, int(counts[i])) for i in top])
