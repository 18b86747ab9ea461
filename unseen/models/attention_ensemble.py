"""Attention-based ensemble: several learners look at one map through masks of their own."""

import copy

import torch
from torch import Tensor, nn

from unseen.core.contracts import Output
from unseen.core.geometry import unit
from unseen.models.backbone import Backbone
from unseen.models.freezing import split_body
from unseen.models.frozen_batch_norm import hold_statistics
from unseen.models.layer_outputs import check_names
from unseen.models.network import LayeredNetwork

GOOGLENET = ("maxpool3", "inception4e")


class AttentionEnsemble(LayeredNetwork):
    """Attention-based ensemble: several learners look at one map through masks of their own.

    Paper:
        W. Kim et al., Attention-based Ensemble for Deep Metric Learning, ECCV 2018,
        https://arxiv.org/abs/1804.00382; here with the shapes of HORDE's GoogLeNet (ABE-8).

    Formula:
        s = the map at `masks_at`; a = attention trunk(s), a copy of the layers from there to
        `trunk_until`;

            mask_m  = sigmoid(conv1x1_m(a))                       as many channels as s
            head_m  = unit(W * pool(the remaining layers(mask_m * s)))

        The remaining layers and the bias-free W are shared by all learners; the embedding is
        their unit vectors side by side, so its inner products over M are mean cosines.

    Masks start Glorot-uniform.

    Args:
        backbone: The network that the learners share.
        embedding_size: Numbers of an embedding, shared by the learners evenly; 512 in the paper.
        num_heads: Learners; 8 in the paper.
        masks_at: The layer whose map the masks act on; GoogLeNet's maxpool3.
        trunk_until: The layer where the attention trunk ends; GoogLeNet's inception4e.

    Use:
        with the head_divergence regularizer, which keeps the learners apart.

    Example:
        >>> from unseen.models import AttentionEnsemble, create_backbone
        >>> body = create_backbone("small_conv", 32)
        >>> net = AttentionEnsemble(body, 64, 2, masks_at="stage1", trunk_until="stage2")
        >>> net(torch.zeros(1, 3, 32, 32)).heads.shape
        torch.Size([1, 2, 32])
    """

    def __init__(
        self,
        backbone: Backbone,
        embedding_size: int = 512,
        num_heads: int = 8,
        masks_at: str = GOOGLENET[0],
        trunk_until: str = GOOGLENET[1],
    ) -> None:
        super().__init__()
        if num_heads < 1 or embedding_size < 1 or embedding_size % num_heads:
            raise ValueError(
                "embedding_size must be a multiple of num_heads, "
                f"got {embedding_size} and {num_heads}"
            )
        names = [name for name, _ in backbone.body.named_modules() if name]
        check_names([masks_at, trunk_until], names)
        self.backbone, self.embedding_size, self.num_heads = backbone, embedding_size, num_heads
        method = backbone.features_method
        stem, rest = split_body(backbone.body, method, masks_at)
        self._shared = (stem, rest)  # in a tuple: these are the backbone's own layers
        self.trunk = _between(backbone.body, method, masks_at, trunk_until)
        wide, deep = self._channels(masks_at, trunk_until)
        self.masks = nn.Conv2d(deep, num_heads * wide, 1)
        assert self.masks.bias is not None
        for mask in self.masks.weight.data.chunk(num_heads):
            nn.init.xavier_uniform_(mask)
        nn.init.zeros_(self.masks.bias)
        self._trained_trunk = [p for p in self.trunk.parameters() if p.requires_grad]
        self.head = nn.Linear(backbone.num_features, embedding_size // num_heads, bias=False)

    def forward(self, images: Tensor) -> Output:
        return self.finish(self._shared[0](images))

    def finish(self, features: Tensor) -> Output:
        """The way from the map where the masks act, [N, C, H, W]."""
        maps, (num_images, channels, height, width) = features, features.shape
        masks = torch.sigmoid(self.masks(self.trunk(maps)))  # [N, M * C, H, W]
        masks = masks.view(num_images, self.num_heads, channels, height, width)
        seen = (masks * maps[:, None]).flatten(0, 1)  # [N * M, C, H, W]
        last = self._shared[1](seen.contiguous(memory_format=torch.channels_last))
        pooled, last_maps = self.backbone.pool(last)
        heads = unit(self.head(pooled)).view(num_images, self.num_heads, -1)  # [N, M, d]
        if last_maps is not None:  # the learners' maps, one after the other: [N, M * C, h, w]
            last_maps = last_maps.reshape(num_images, -1, *last_maps.shape[2:])
        return Output(heads.flatten(1), pooled.view(num_images, -1), last_maps, heads)

    def leading_layers(self) -> tuple[nn.Module, str]:
        """The layers a freeze point may lie in: those before the masks."""
        return self._shared[0], "forward"

    def train(self, mode: bool = True) -> "AttentionEnsemble":
        super().train(mode)
        hold_statistics(self.trunk, self.backbone.frozen_bn)
        return self

    def warm_up(self, only_new_layers: bool) -> None:
        """True: only masks, pooling and head are trained. False: all that is not frozen is."""
        self.backbone.set_trainable(not only_new_layers)
        for parameter in self._trained_trunk:
            parameter.requires_grad_(not only_new_layers)

    def named_layers(self) -> dict[str, nn.Module]:
        """The backbone's layers under their own names, the trunk's as `trunk.<name>`."""
        body = {name: layer for name, layer in self.backbone.body.named_modules() if name}
        return body | {f"trunk.{name}": m for name, m in self.trunk.named_modules() if name}

    @torch.no_grad()
    def _channels(self, masks_at: str, trunk_until: str) -> tuple[int, int]:
        """Channels where the masks act and where the trunk ends; both maps must be of one size."""
        was_training, size = self.training, self.backbone.input_spec.size
        self.eval()
        maps = self._shared[0](torch.zeros(1, 3, size, size))
        deep = self.trunk(maps)
        self.train(was_training)
        if maps.ndim != 4 or deep.shape[2:] != maps.shape[2:]:
            raise ValueError(
                f"masks_at {masks_at} gives {list(maps.shape[1:])} and trunk_until {trunk_until} "
                f"{list(deep.shape[1:])}: the trunk must end in a map of the same height and width"
            )
        return maps.shape[1], deep.shape[1]


def _between(body: nn.Module, method: str, first: str, last: str) -> nn.Module:
    """A copy of the layers after `first` up to and including `last`, with their weights."""
    _, after = split_body(body, method, first)
    inner = [name for name, _ in after.named_modules()]
    if last not in inner:
        raise ValueError(f"trunk_until {last} must come after masks_at {first}")
    trunk, _ = split_body(copy.deepcopy(after), "forward", last)
    return trunk
