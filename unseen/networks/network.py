"""A backbone and a head: pictures to an Output, and any named layer as a descriptor."""

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, nn

from unseen.contracts import Output
from unseen.geometry import unit
from unseen.networks.backbone import Backbone
from unseen.networks.head import Head

POOLED, EMBEDDING = "pooled", "embedding"


class EmbeddingNetwork(nn.Module):
    """Backbone, pooling, head. `tapped` reads layers on the way, from one forward pass."""

    def __init__(self, backbone: Backbone, head: Head, embedding_size: int) -> None:
        super().__init__()
        self.backbone, self.head, self.embedding_size = backbone, head, embedding_size

    def forward(self, images: Tensor) -> Output:
        pooled, maps = self.backbone(images)
        return Output(self.head(pooled), pooled, maps)

    def layers(self) -> list[str]:
        """Every name `tapped` takes, in the order of the forward pass as far as modules tell it."""
        inner = [name for name, _ in self.backbone.body.named_modules() if name]
        return [*inner, POOLED, EMBEDDING]

    def tapped(self, images: Tensor, names: Sequence[str]) -> dict[str, Tensor]:
        """Unit descriptors [N, d]: maps by their maximum over space, tokens by their mean."""
        modules = dict(self.backbone.body.named_modules())
        unknown = [n for n in names if n not in modules and n not in (POOLED, EMBEDDING)]
        if unknown:
            raise ValueError(f"no layer named {', '.join(unknown)}: see the network's layers()")
        seen: dict[str, Tensor] = {}

        def keeper(name: str) -> Callable[[nn.Module, Any, Tensor], None]:
            def keep(module: nn.Module, inputs: Any, output: Tensor) -> None:
                seen[name] = output

            return keep

        hooks = [modules[n].register_forward_hook(keeper(n)) for n in names if n in modules]
        try:
            output = self(images)
        finally:
            for hook in hooks:
                hook.remove()
        seen |= {POOLED: output.pooled, EMBEDDING: output.embeddings}
        return {name: unit(_flat(seen[name])) for name in names}


def _flat(activation: Tensor) -> Tensor:  # [N, d]
    if activation.ndim == 4:
        return activation.amax(dim=(2, 3))
    if activation.ndim == 3:
        return activation.mean(dim=1)
    return activation
