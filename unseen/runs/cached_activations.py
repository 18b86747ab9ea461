"""Training and evaluation on cached activations: each image goes through the frozen layers once."""

from collections.abc import Iterator, Sequence

import numpy as np
from torch import Tensor

from unseen.core.contracts import Batch, FrozenLayers, IntArray, Network, Progress
from unseen.data.activations.cache import ActivationCache, ActivationLoader, Augmentations
from unseen.data.images.array_files import cache_folder
from unseen.data.images.loader import of_the_same_class
from unseen.evaluation.embed import Field, embed
from unseen.models.descriptor import Described
from unseen.models.layer_outputs import EMBEDDING
from unseen.models.network import Hookable, LayeredNetwork
from unseen.runs.batch_source import BatchSource
from unseen.runs.prepare import EMBED_BATCH, Callbacks, RunContext
from unseen.training.events import Note


class Activations(BatchSource):
    """The layers after the freeze point on the activations of those before it."""

    def __init__(
        self,
        context: RunContext,
        network: LayeredNetwork,
        callbacks: Callbacks,
        prefix: FrozenLayers,
        rest: Network,
    ) -> None:
        super().__init__(context, network)
        assert isinstance(rest, Hookable)
        self.callbacks, self.model = callbacks, rest
        config, root = context.config, cache_folder() / "activations"

        def cache(augmentations: Augmentations) -> ActivationCache:
            return ActivationCache(root, prefix, augmentations, warn=callbacks.warn)

        self.training = self.evaluation = cache(Augmentations(context.dataset, self.transform))
        if count := config.model.frozen.cached_augmentations:
            crops = (context.dataset, self.training_transform, count, of_the_same_class)
            self.training = cache(Augmentations(*crops))
        self.loader = ActivationLoader(
            self.training, config.training.seed, context.processes.fraction
        )

    def prepare(self, trained_on: IntArray, evaluated_on: IntArray) -> None:
        """Runs the frozen layers on what training needs, before it starts."""
        if self.training is self.evaluation:
            self._fill(self.evaluation, np.union1d(trained_on, evaluated_on))
        else:
            self._fill(self.training, trained_on)
            self._fill(self.evaluation, evaluated_on)

    def embed_fields(
        self, items: IntArray, progress: Progress | None, layer: str, fields: Sequence[Field]
    ) -> dict[str, Tensor]:  # each [n, D]
        """A layer before the freeze point is read from the images."""
        if layer not in self.model.layers():
            rows = super().embed_fields(items, progress, layer, ("embeddings",))
            others = [field for field in fields if field != "embeddings"]
            cached = self.embed_fields(items, progress, EMBEDDING, others) if others else {}
            return rows | cached
        if not self.context.processes.agreed(lambda: self.evaluation.is_ready(items)):
            self._fill(self.evaluation, items)
        own = self.context.own_items(items)
        where = (self.batches(own), len(own), self.context.device, progress)
        model = self.model if layer == EMBEDDING else Described(self.model, layer)
        rows = embed(model, *where, fields)
        return {name: self.context.gathered(values, len(items)) for name, values in rows.items()}

    def batches(self, items: IntArray) -> Iterator[Batch]:
        return self.evaluation.evaluation_batches(items, EMBED_BATCH)

    def _fill(self, cache: ActivationCache, items: IntArray) -> None:
        if not len(items):
            return
        processes, progress = self.context.processes, self.callbacks.of("through the frozen layers")
        how = (self.context.config.training.machine.workers, progress, self.context.if_unreadable)
        if processes.is_first:
            self.callbacks.log(Note(str(cache.plan(items, processes.count))))
        if processes.are_several:  # each does a part, then what is missing
            every = np.unique(items)
            cache.build(every[processes.fraction(len(every))], *how)
            processes.wait()
        cache.build(items, *how)
