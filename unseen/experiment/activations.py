"""Training and judging on kept activations: each picture goes through the frozen layers once."""

from collections.abc import Iterator

import numpy as np
from torch import Tensor

from unseen import assemble
from unseen.contracts import Batch, FrozenLayers, IntArray, Network, Progress
from unseen.data.activations.cache import ActivationCache, ActivationLoader, Views
from unseen.data.pictures.loader import Loader, of_the_same_class
from unseen.data.pictures.stored import cache_folder
from unseen.evaluation.embed import embed, embed_layers
from unseen.experiment.run_context import EMBED_BATCH, RunContext, Watch
from unseen.experiment.source import Field, Pictures
from unseen.networks.network import LayeredNetwork, Tappable
from unseen.networks.taps import EMBEDDING
from unseen.training.events import FrozenLayersPlanned


class Activations:
    """The layers after the cut on what those before it gave."""

    def __init__(
        self,
        context: RunContext,
        network: LayeredNetwork,
        watch: Watch,
        prefix: FrozenLayers,
        rest: Network,
    ) -> None:
        assert isinstance(rest, Tappable)
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
        self.loader: Loader = ActivationLoader(self.training, config.seed, context.processes.share)

    def prepare(self, trained_on: IntArray, judged_on: IntArray) -> None:
        """Runs the frozen layers on what training needs, before it starts."""
        if self.training is self.judging:
            self._fill(self.judging, np.union1d(trained_on, judged_on))
        else:
            self._fill(self.training, trained_on)
            self._fill(self.judging, judged_on)

    def embed(
        self,
        items: IntArray,
        progress: Progress | None = None,
        layer: str = EMBEDDING,
        field: Field = "embeddings",
    ) -> Tensor:  # [n, D]
        """A layer before the cut is read from the pictures."""
        if layer not in self.model.layers():
            return Pictures(self.context, self.network).embed(items, progress, layer, field)
        if not self.context.processes.agreed(lambda: self.judging.is_ready(items)):
            self._fill(self.judging, items)
        own = self.context.own_part(items)
        where = (self.batches(own), len(own), self.context.device, progress)
        if layer != EMBEDDING:
            rows = embed_layers(self.model, [layer], *where)[layer]
        else:
            rows = embed(self.model, *where, field)
        return self.context.gathered(rows, len(items))

    def batches(self, items: IntArray) -> Iterator[Batch]:
        return self.judging.evaluation_batches(items, EMBED_BATCH)

    def _fill(self, cache: ActivationCache, items: IntArray) -> None:
        if not len(items):
            return
        processes, progress = self.context.processes, self.watch.of("through the frozen layers")
        how = (self.context.config.workers, progress, self.context.if_unreadable)
        if processes.is_first:
            self.watch.tell(FrozenLayersPlanned(str(cache.plan(items, processes.count))))
        if processes.are_several:  # each does a part, then what is missing
            every = np.unique(items)
            cache.build(every[processes.share(len(every))], *how)
            processes.wait()
        cache.build(items, *how)
