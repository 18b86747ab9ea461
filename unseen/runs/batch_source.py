"""What runs on which batches: the full network on images, or its last layers on activations."""

from collections.abc import Iterator, Sequence

from torch import Tensor

from unseen.config import build
from unseen.core.contracts import Batch, FrozenLayers, IntArray, Network, Progress
from unseen.data.images.loader import ImageLoader, Loader
from unseen.evaluation.embed import Field
from unseen.models.descriptor import described
from unseen.models.layer_outputs import EMBEDDING
from unseen.models.network import Hookable, LayeredNetwork
from unseen.runs.prepare import Callbacks, RunContext


class BatchSource:
    """Training and evaluation use it without knowing whether frozen layers are cached.

    `model` is what runs on the batches, `loader` makes those of training, `transform` an image as
    it is evaluated.
    """

    loader: Loader

    def __init__(self, context: RunContext, network: LayeredNetwork) -> None:
        self.context, self.network = context, network
        self.model: Hookable = network
        self.training_transform, self.transform = build.image_transforms(context.config, network)

    def prepare(self, trained_on: IntArray, evaluated_on: IntArray) -> None:
        """Before training; images need nothing."""

    def embed(
        self,
        items: IntArray,
        progress: Progress | None = None,
        layer: str = EMBEDDING,
        field: Field = "embeddings",
    ) -> Tensor:  # [n, D]
        """Descriptors of items at a layer (or their pooled ones), in their order."""
        return self.embed_fields(items, progress, layer, (field,))[field]

    def embed_fields(
        self, items: IntArray, progress: Progress | None, layer: str, fields: Sequence[Field]
    ) -> dict[str, Tensor]:  # each [n, D]
        """Several of them from one forward pass."""
        network = described(self.network, layer)
        return self.context.embed_fields(network, self.transform, items, progress, fields)

    def batches(self, items: IntArray) -> Iterator[Batch]:
        """What the model takes of items that have been embedded, as evaluated, in their order."""
        return self.context.batches(self.transform, items)


class ImageBatches(BatchSource):
    """The full network on images or features."""

    def __init__(self, context: RunContext, network: LayeredNetwork) -> None:
        super().__init__(context, network)
        config, body = context.config, network.backbone.body
        sizes = config.data.transform.training_sizes
        if sizes and getattr(getattr(body, "patch_embed", None), "strict_img_size", False):
            raise ValueError(
                f"{config.model.backbone} takes images of {config.data.image_size} pixels alone: "
                "leave training_sizes out"
            )
        smaller = [build.image_transforms(config, network, size)[0] for size in sizes]
        self.loader = ImageLoader(
            context.dataset,
            smaller or [self.training_transform],
            config.training.epochs,
            config.training.seed,
            config.training.machine.workers,
            context.if_unreadable,
            context.processes.fraction,
            pinned=context.device.type == "cuda",
        )


def source_of(
    context: RunContext,
    network: LayeredNetwork,
    callbacks: Callbacks,
    layers: tuple[FrozenLayers | None, Network] | None = None,
) -> BatchSource:
    """Where the config says so, the first layers are frozen; `layers`: they are already."""
    prefix, rest = layers or build.freeze(context.config, network)
    if prefix is None:
        return ImageBatches(context, network)
    from unseen.runs.cached_activations import Activations  # noqa: PLC0415 - likewise on demand

    return Activations(context, network, callbacks, prefix, rest)
