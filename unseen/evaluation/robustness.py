"""HORDE's robustness test: recall when only a part of each image's local features is left.

Paper    P. Jacob et al., Metric Learning with HORDE: High-Order Regularizer for Deep Embeddings,
         ICCV 2019, https://arxiv.org/abs/1908.02735
Test     of the h x w vectors of the last map keep a random part, rounded up, of each image; pool,
         embed and retrieve with them. Several draws: mean and standard deviation.
"""

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from unseen.core.contracts import Batch, Output, Progress
from unseen.diagnostics.scatter import Scatter
from unseen.evaluation.retrieve import retrieve
from unseen.metrics.recall import Recall
from unseen.models.network import EmbeddingNetwork

FRACTIONS = (1.0, 1 / 2, 1 / 3, 1 / 6, 1 / 12)
SCATTERED = 400  # images whose features the scatter ratio looks at


@dataclass(frozen=True)
class Robustness:
    """Recall@1 with a part of the features, by fraction: mean and standard deviation over draws."""

    recall: dict[float, tuple[float, float]]
    scatter_ratio: float

    def drop(self, fraction: float) -> float:
        """What is lost against all features."""
        return self.recall[1.0][0] - self.recall[fraction][0]


@torch.inference_mode()
def robustness(
    network: EmbeddingNetwork,
    batches: Iterable[Batch],
    total: int,
    device: torch.device,
    *,
    fractions: tuple[float, ...] = FRACTIONS,
    draws: int = 5,
    normalize: bool = True,
    seed: int = 0,
    progress: Progress | None = None,
) -> Robustness:
    """Retrieval among the images of the batches, each against all others."""
    if not all(0 < fraction <= 1 for fraction in fractions) or draws < 1:
        raise ValueError(f"fractions must lie in (0, 1], draws from 1, got {fractions}, {draws}")
    generator = torch.Generator(device).manual_seed(seed)
    fractions = tuple(dict.fromkeys((1.0, *fractions)))
    result: dict[tuple[float, int], list[Tensor]] = {}
    labels: list[Tensor] = []
    local: list[Tensor] = []
    was_training = network.training
    network.eval()
    for batch in batches:
        output = network(batch.images.to(device))
        if output.maps is None or not _is_pooled(network, output):
            raise ValueError(
                "the robustness test needs a network that pools its last map or tokens"
            )
        features = output.maps.flatten(2)  # [N, C, P]
        for fraction in fractions:
            for draw in range(1 if fraction == 1 else draws):
                some = _some_places(features, fraction, generator)
                embeddings = network.head(network.backbone.pooling(some[..., None]))
                result.setdefault((fraction, draw), []).append(embeddings.float().cpu())
        labels.append(batch.labels)
        if sum(map(len, local)) < SCATTERED:
            local.append(features.transpose(1, 2).float().cpu())  # [N, P, C]
        if progress is not None:
            progress(sum(map(len, labels)), total)
    network.train(was_training)
    return _summary(result, torch.cat(labels), torch.cat(local)[:SCATTERED], normalize)


def _is_pooled(network: EmbeddingNetwork, output: Output) -> bool:
    """Whether the pooling of the map, and nothing else, gives the descriptor."""
    again = network.backbone.pooling(output.maps)
    return again.shape == output.pooled.shape and torch.allclose(again, output.pooled, rtol=1e-3)


def _some_places(
    features: Tensor, fraction: float, generator: torch.Generator
) -> Tensor:  # [N, C, k]
    """Random places of each image, its own for each."""
    num_places = features.shape[2]
    count = math.ceil(fraction * num_places)
    if count == num_places:
        return features
    order = torch.rand(len(features), num_places, generator=generator, device=features.device)
    places = order.argsort(dim=1)[:, None, :count].expand(-1, features.shape[1], -1)
    return features.gather(2, places)


def _summary(
    result: dict[tuple[float, int], list[Tensor]], labels: Tensor, local: Tensor, normalize: bool
) -> Robustness:
    recalls: dict[float, list[float]] = {}
    for (fraction, _), parts in result.items():
        neighbors = retrieve(torch.cat(parts), labels, 1, normalize=normalize)
        recalls.setdefault(fraction, []).append(float(Recall(1)(neighbors).nanmean()))
    image = torch.arange(len(local)).repeat_interleave(local.shape[1])
    return Robustness(
        recall={f: (statistics.fmean(r), statistics.pstdev(r)) for f, r in recalls.items()},
        scatter_ratio=Scatter()(local.flatten(0, 1), image)["ratio"],
    )
