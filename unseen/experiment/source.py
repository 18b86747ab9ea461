"""Where batches come from and what runs on them: pictures through the whole network, or kept
activations through the layers after the cut.

Both have the same three calls, so training and judging do not know which one they use.
"""

from collections.abc import Iterator
from typing import Literal

import numpy as np
from torch import Tensor

from unseen import assemble
from unseen.contracts import Batch, IntArray, Network, Progress, Sampler
from unseen.data.pictures.loader import of_the_same_class, training_batches
from unseen.data.pictures.stored import cache_folder
from unseen.evaluation.embed import embed, embed_layers
from unseen.experiment.run_context import EMBED_BATCH, RunContext, Watch
from unseen.networks.activation_cache import ActivationCache, Views
from unseen.networks.descriptor import described
from unseen.networks.network import LayeredNetwork
from unseen.networks.split import Prefix, Rest
from unseen.networks.taps import EMBEDDING
from unseen.training.events import FrozenLayersPlanned

Field = Literal["embeddings", "pooled"]


class Pictures:
    """`model` takes pictures."""

    def __init__(self, context: RunContext, network: LayeredNetwork) -> None:
        self.context, self.model = context, network
        config, body = context.config, network.backbone.body
        self.training, self.judging = assemble.picture_transforms(config, network)
        sizes = config.training_sizes
        if sizes and getattr(getattr(body, "patch_embed", None), "strict_img_size", False):
            raise ValueError(
                f"{config.backbone} takes pictures of {config.picture_size} pixels alone: leave "
                "training_sizes out"
            )
        self.smaller = [assemble.picture_transforms(config, network, size)[0] for size in sizes]

    def prepare(self, trained_on: IntArray, judged_on: IntArray) -> None:
        """Nothing is kept."""

    def training_batches(self, sampler: Sampler, epoch: int, skip: int) -> Iterator[Batch]:
        """The epoch's batches, less the first `skip`. Of n training sizes, each is shown in an n-th
        of the epochs."""
        place = epoch * len(self.smaller) // self.context.config.epochs
        return training_batches(
            self.context.dataset,
            self.smaller[place] if self.smaller else self.training,
            sampler,
            epoch,
            self.context.config.seed,
            workers=self.context.config.workers,
            skip=skip,
            on_unreadable=self.context.if_unreadable,
            share=self.context.processes.share,
        )

    def embed(
        self,
        items: IntArray,
        progress: Progress | None = None,
        layer: str = EMBEDDING,
        field: Field = "embeddings",
    ) -> Tensor:  # [n, D]
        """Descriptors of items at a layer (or their pooled ones), in their order."""
        network = described(self.model, layer)
        return self.context.embed(network, self.judging, items, progress, field)


class Activations:
    """`model` takes what the frozen layers gave; each picture went through them once."""

    def __init__(
        self, context: RunContext, network: LayeredNetwork, watch: Watch, prefix: Prefix, rest: Rest
    ) -> None:
        config = context.config
        self.context, self.network, self.watch, self.model = context, network, watch, rest
        root = cache_folder() / "activations"
        training, judging = assemble.picture_transforms(config, network)
        self.judging = ActivationCache(
            root, prefix, Views(context.dataset, judging), config.cache_dtype, watch.warn
        )
        self.training = self.judging
        if count := config.views:
            views = Views(context.dataset, training, count, of_the_same_class)
            self.training = ActivationCache(root, prefix, views, config.cache_dtype, watch.warn)

    def prepare(self, trained_on: IntArray, judged_on: IntArray) -> None:
        """Runs the frozen layers on what training needs, before it starts."""
        if self.training is self.judging:
            self._fill(self.judging, np.union1d(trained_on, judged_on))
        else:
            self._fill(self.training, trained_on)
            self._fill(self.judging, judged_on)

    def training_batches(self, sampler: Sampler, epoch: int, skip: int) -> Iterator[Batch]:
        """The epoch's batches, less the first `skip`."""
        seed, share = self.context.config.seed, self.context.processes.share
        return self.training.training_batches(sampler, epoch, seed, skip, share)

    def embed(
        self,
        items: IntArray,
        progress: Progress | None = None,
        layer: str = EMBEDDING,
        field: Field = "embeddings",
    ) -> Tensor:  # [n, D]
        """Descriptors of items at a layer (or their pooled ones), in their order. A layer before
        the cut is read from the pictures."""
        if layer not in self.model.layers():
            return Pictures(self.context, self.network).embed(items, progress, layer, field)
        if not self.context.processes.agreed(lambda: self.judging.is_ready(items)):
            self._fill(self.judging, items)
        batches = self.judging.evaluation_batches(items, EMBED_BATCH)
        where = (batches, len(items), self.context.device, progress)
        if layer != EMBEDDING:
            return embed_layers(self.model, [layer], *where)[layer]
        return embed(self.model, *where, field)

    def _fill(self, cache: ActivationCache, items: IntArray) -> None:
        if not len(items):
            return
        with self.context.processes.first_ahead():  # the others find what it has kept
            plan = cache.plan(items)
            self.watch.tell(FrozenLayersPlanned(str(plan)))
            told = self.watch.of("through the frozen layers")
            cache.build(items, self.context.config.workers, told, self.context.if_unreadable)


Source = Pictures | Activations


def source_of(
    context: RunContext,
    network: LayeredNetwork,
    watch: Watch,
    cut: tuple[Prefix | None, Network] | None = None,
) -> Source:
    """Where the config says so, the network's first layers are frozen; `cut`: they are already."""
    prefix, rest = cut or assemble.cut(context.config, network)
    if prefix is None:
        return Pictures(context, network)
    assert isinstance(rest, Rest)
    return Activations(context, network, watch, prefix, rest)
