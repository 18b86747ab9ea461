"""A backbone and a head: images to an Output, and any named layer as a descriptor."""

from abc import abstractmethod
from collections.abc import Sequence

from torch import Tensor, nn

from unseen.core.contracts import Network, Output
from unseen.models.backbone import Backbone
from unseen.models.head import Head
from unseen.models.layer_outputs import EMBEDDING, POOLED, inner_layers, layer_outputs

PIXELS = 2**20  # that go through a network together where it is only read


class Hookable(Network):
    """Abstract: a network, or the rest of one after its freeze point, whose layers can be read."""

    @abstractmethod
    def layers(self) -> list[str]:
        """Every name `tapped` takes."""

    @abstractmethod
    def layer_outputs(
        self, images: Tensor, names: Sequence[str], pooling: str = "max"
    ) -> dict[str, Tensor]:
        """Unit descriptors [N, d] of named layers from one forward pass, by the rule of
        `taps.py`."""


class LayeredNetwork(Hookable):
    """Abstract: a network whose layers can be read and frozen by their names. It has one way from
    its images to a map (or tokens, or a vector), and goes on from there."""

    backbone: Backbone

    @abstractmethod
    def leading_layers(self) -> tuple[nn.Module, str]:
        """The layers a freeze point may lie in, and the method that runs them."""

    @abstractmethod
    def finish(self, features: Tensor) -> Output:
        """The way from the result of the first part."""

    @abstractmethod
    def warm_up(self, only_new_layers: bool) -> None:
        """True: only layers without pretraining are trained. False: all that is not frozen is.
        What is frozen stays so either way."""

    @abstractmethod
    def named_layers(self) -> dict[str, nn.Module]:
        """The backbone's layers under their own names, and what comes beside or after them."""

    def layers(self) -> list[str]:
        """In the order of the modules, `pooled` before the head."""
        inner = list(self.named_layers())
        place = next((i for i, name in enumerate(inner) if name.startswith("head.")), len(inner))
        return [*inner[:place], POOLED, *inner[place:], EMBEDDING]

    def layer_outputs(
        self, images: Tensor, names: Sequence[str], pooling: str = "max"
    ) -> dict[str, Tensor]:
        """Layers after the masks of an ensemble give its learners' side by side."""
        return layer_outputs(self, images, names, pooling)


class EmbeddingNetwork(LayeredNetwork):
    """Backbone, pooling, head: images [N, 3, s, s] to an `Output`.

    Args:
        backbone: Body and pooling.
        head: The layers from the pooled descriptor to the embedding.
        embedding_size: What the head must give; None: whatever it gives.

    Example:
        >>> from unseen.models import EmbeddingNetwork, Head, create_backbone
        >>> net = EmbeddingNetwork(create_backbone("small_conv", 32), Head(256, 16))
        >>> net(torch.zeros(2, 3, 32, 32)).embeddings.shape
        torch.Size([2, 16])
    """

    def __init__(self, backbone: Backbone, head: Head, embedding_size: int | None = None) -> None:
        super().__init__()
        self.backbone, self.head = backbone, head
        self.embedding_size = head.embedding_size
        if embedding_size not in (None, head.embedding_size):
            raise ValueError(f"the head gives {head.embedding_size} values, not {embedding_size}")

    def forward(self, images: Tensor) -> Output:
        pooled, maps = self.backbone(images)
        return Output(self.head(pooled), pooled, maps)

    def finish(self, features: Tensor) -> Output:
        """The way from the backbone's last map or tokens to the embedding."""
        pooled, maps = self.backbone.pool(features)
        return Output(self.head(pooled), pooled, maps)

    def leading_layers(self) -> tuple[nn.Module, str]:
        return self.backbone.body, self.backbone.features_method

    def from_pooled(self, pooled: Tensor) -> Output:
        """The way from the pooled descriptor."""
        return Output(self.head(pooled), pooled)

    def warm_up(self, only_new_layers: bool) -> None:
        """True: pooling and head alone are trained."""
        self.backbone.set_trainable(not only_new_layers)

    def named_layers(self) -> dict[str, nn.Module]:
        """The backbone's layers under their own names, the head's as `head.fc1`, ..."""
        head = inner_layers(self.head)
        return inner_layers(self.backbone.body) | {f"head.{n}": head[n] for n in head}


def portions(images: Tensor) -> tuple[Tensor, ...]:
    """A batch [N, channels, height, width] in parts: what a layer gives for a few large images
    still lies in the processor's cache when the next layer wants it. EfficientNet-Lite0, 224
    pixels, one core, batch norms folded: 27 ms an image in a batch of 64, 18 ms in batches of 16.
    Images of up to 64 pixels stay together up to 256 of them; anything else stays whole, and so
    does what a GPU computes at once."""
    if images.ndim != 4 or images.device.type == "cuda":
        return (images,)
    return images.split(max(1, PIXELS // (images.shape[2] * images.shape[3])))
