"""A backbone and a head: pictures to an Output, and any named layer as a descriptor."""

from collections.abc import Sequence

from torch import Tensor, nn

from unseen.contracts import Output
from unseen.networks.backbone import Backbone
from unseen.networks.head import Head
from unseen.networks.taps import EMBEDDING, POOLED, inner_layers, tapped


class EmbeddingNetwork(nn.Module):
    """Backbone, pooling, head. `tapped` reads layers on the way, from one forward pass."""

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

    def first_part(self) -> tuple[nn.Module, str]:
        """The layers a cut may lie in, and the method that runs them."""
        return self.backbone.body, self.backbone.features_method

    def from_pooled(self, pooled: Tensor) -> Output:
        """The way from the pooled descriptor."""
        return Output(self.head(pooled), pooled)

    def warm_up(self, only_new_layers: bool) -> None:
        """True: only layers without pretraining (pooling and head) are trained. False: all that
        is not frozen is. What is frozen stays so either way."""
        self.backbone.set_trainable(not only_new_layers)

    def layers(self) -> list[str]:
        """Every name `tapped` takes, in the order of the modules, `pooled` before the head."""
        inner = list(self.named_layers())
        place = next((i for i, name in enumerate(inner) if name.startswith("head.")), len(inner))
        return [*inner[:place], POOLED, *inner[place:], EMBEDDING]

    def named_layers(self) -> dict[str, nn.Module]:
        """The backbone's layers under their own names, the head's as `head.fc1`, ..."""
        head = inner_layers(self.head)
        return inner_layers(self.backbone.body) | {f"head.{n}": head[n] for n in head}

    def tapped(
        self, images: Tensor, names: Sequence[str], pooling: str = "max"
    ) -> dict[str, Tensor]:
        """Unit descriptors [N, d] of named layers, by the rule of `taps.py`."""
        return tapped(self, images, names, pooling, self.backbone.has_channels_last)
