"""What runs on which batches: the whole network on pictures, or the layers after the cut on kept
activations (`activations.py`).

Both have the same calls, so training and judging do not know which one they use.
"""

from collections.abc import Iterator
from typing import Literal, Protocol

from torch import Tensor

from unseen import assemble
from unseen.contracts import Batch, FrozenLayers, IntArray, Network, Progress
from unseen.data.pictures.loader import Loader, PictureLoader
from unseen.experiment.run_context import RunContext, Watch
from unseen.networks.descriptor import described
from unseen.networks.network import LayeredNetwork
from unseen.networks.taps import EMBEDDING

Field = Literal["embeddings", "pooled"]


class Source(Protocol):
    """`loader` makes the batches of training, whatever they hold."""

    context: RunContext
    loader: Loader

    @property
    def model(self) -> Network:
        """What runs."""
        ...

    def prepare(self, trained_on: IntArray, judged_on: IntArray) -> None:
        """Before training."""
        ...

    def embed(
        self,
        items: IntArray,
        progress: Progress | None = None,
        layer: str = EMBEDDING,
        field: Field = "embeddings",
    ) -> Tensor:  # [n, D]
        """Descriptors of items at a layer (or their pooled ones), in their order."""
        ...

    def batches(self, items: IntArray) -> Iterator[Batch]:
        """What the model is given of items that have been embedded, as judged, in their order."""
        ...


class Pictures:
    """The whole network on pictures or features."""

    def __init__(self, context: RunContext, network: LayeredNetwork) -> None:
        self.context, self.model = context, network
        config, body = context.config, network.backbone.body
        training, self.judging = assemble.picture_transforms(config, network)
        sizes = config.training_sizes
        if sizes and getattr(getattr(body, "patch_embed", None), "strict_img_size", False):
            raise ValueError(
                f"{config.backbone} takes pictures of {config.picture_size} pixels alone: leave "
                "training_sizes out"
            )
        smaller = [assemble.picture_transforms(config, network, size)[0] for size in sizes]
        self.loader: Loader = PictureLoader(
            context.dataset,
            smaller or [training],
            config.epochs,
            config.seed,
            config.workers,
            context.if_unreadable,
            context.processes.share,
            pinned=context.device.type == "cuda",
        )

    def prepare(self, trained_on: IntArray, judged_on: IntArray) -> None:
        """Nothing is kept."""

    def embed(
        self,
        items: IntArray,
        progress: Progress | None = None,
        layer: str = EMBEDDING,
        field: Field = "embeddings",
    ) -> Tensor:  # [n, D]
        network = described(self.model, layer)
        return self.context.embed(network, self.judging, items, progress, field)

    def batches(self, items: IntArray) -> Iterator[Batch]:
        return self.context.batches(self.judging, items)


def source_of(
    context: RunContext,
    network: LayeredNetwork,
    watch: Watch,
    cut: tuple[FrozenLayers | None, Network] | None = None,
) -> Source:
    """Where the config says so, the network's first layers are frozen; `cut`: they are already."""
    prefix, rest = cut or assemble.cut(context.config, network)
    if prefix is None:
        return Pictures(context, network)
    from unseen.experiment.activations import Activations  # noqa: PLC0415 - as the cut: on demand

    return Activations(context, network, watch, prefix, rest)
