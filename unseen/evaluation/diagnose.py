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
from unseen.neighbours.space import non_finite_rows

K = 10  # neighbours that hubness and label noise look at


@dataclass(frozen=True)
class Look:
    """Numbers of one set, and the items to look at: positions, most striking first."""

    numbers: dict[str, float]
    suspects: list[tuple[int, int]]  # item, the label its neighbours suggest
    hubs: list[tuple[int, int]]  # item, how many have it among their nearest


def look(embeddings: Tensor, labels: Tensor, normalise: bool = True, listed: int = 20) -> Look:
    """Every diagnostic on one set; broken embeddings have no numbers but their count."""
    numbers = {"items": float(len(embeddings)), "classes": float(len(labels.unique()))}
    numbers["broken"] = float(len(non_finite_rows(embeddings)))
    if numbers["broken"] or len(embeddings) <= K:
        return Look(numbers, [], [])
    found = retrieve(embeddings, labels, 1, normalise=normalise)
    numbers["recall@1"] = float(Recall(1)(found).nanmean())
    diagnostics: list[Any] = [Spread(), Alignment(), Uniformity(), EffectiveRank(centred=True)]
    for diagnostic in diagnostics:
        numbers |= diagnostic(embeddings, labels)
    spectrum = Spectrum()(embeddings, labels) if embeddings.shape[1] > 1 else {}
    numbers |= {key: float(spectrum[key]) for key in ("rho", "num_clamped") if key in spectrum}
    numbers["density"] = Density()(embeddings, labels)["mean"]
    hubness = Hubness(K, normalise)(embeddings, labels)
    numbers |= {key: hubness[key] for key in ("skewness", "orphans", "largest")}
    noise = LabelNoise(K, normalise=normalise)(embeddings, labels)
    numbers |= {"suspects": float(len(noise["suspects"])), "suspect_share": noise["share"]}
    counts: Tensor = hubness["counts"]
    top = counts.argsort(descending=True, stable=True)[:listed].tolist()
    suspects = zip(noise["suspects"].tolist(), noise["suggested"].tolist(), strict=True)
    return Look(numbers, list(suspects)[:listed], [(i, int(counts[i])) for i in top])
