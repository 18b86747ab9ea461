"""The kinds of network: which keys of `[model]` go with which, so that nothing else can be said."""

from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, Field, field_validator

from unseen import models
from unseen.config.tables import AUTO, Adapter, Ensemble, Head, Named, Nested, OrAuto, Table
from unseen.core import custom_components
from unseen.core.names import known
from unseen.models.backbone import FEATURES, OWN, Mirror
from unseen.models.head import PRINCIPAL
from unseen.models.pooling import OF_TOKENS, POOLINGS

PLAIN = "plain"  # a backbone and a head, as the other keys say
Size = Annotated[int, Field(ge=1)]
OWN_NETWORK = "own"  # the backbone of a network from outside


class Frozen(Table):
    """Which layers do not change.

    Args:
        freeze_until: a layer, or `pooled`: what comes before it does not change and runs only once.
        frozen_bn: what stays of batch norm: `off` nothing, `stats` its means and variances, `full`
            its weights too.
        cached_augmentations: of each image, so many are kept as the frozen layers give them; 0:
            each as it is evaluated.
    """

    freeze_until: str | None = "auto"
    frozen_bn: Literal["off", "stats", "full"] = "off"
    cached_augmentations: OrAuto[Annotated[int, Field(ge=0)]] = AUTO


class Network(Table):
    """The network. Of a kind that does not have a key, the key is none or false.

    Args:
        network: `plain`, one that was published as a whole (`net_a` to `net_f`), or your own.
        backbone: `small_conv`, a network of torchvision or timm; of features `features:512`.
        weights: none: random; `imagenet`; or a file.
        pooling: `own` (as published), `avg`, `max`, `avg+max`, `gem`; of transformers also `cls`,
            `cls+avg`, `attention`.
        mirror: the descriptor is the mean of an image's and its mirror image's; `evaluation`: not
            in training.
        adapter: `lora`: the layers stay, a small matrix beside each is trained.
        frozen: which layers do not change.
        embedding_size: how many numbers an embedding has.
        nested: prefixes of the embedding that are trained with it, the whole one last.
        head: the layers from the pooled descriptor to the embedding.
        ensemble: learners that look at one map through masks.
    """

    kind: str
    network: str = PLAIN
    backbone: str = "auto"
    weights: str | None = "auto"
    pooling: str | None = None
    mirror: Mirror = False
    adapter: Annotated[Adapter | None, Named] = None
    frozen: Frozen = Frozen()
    embedding_size: OrAuto[Size] = AUTO
    nested: Nested = None
    head: Head | None = None
    ensemble: Ensemble | None = None

    @field_validator("pooling", check_fields=False)
    @classmethod
    def _is_a_pooling(cls, name: str | None) -> str | None:
        allowed = ["auto", OWN, *POOLINGS, *OF_TOKENS]
        return name if name is None else known(name, allowed, "pooling")

    @property
    def nested_sizes(self) -> list[int]:
        """The sizes that are trained, the whole embedding last; none where it alone is."""
        return [] if self.nested is None else self.nested.sizes

    @property
    def starts_principal(self) -> bool:
        """Whether the head starts as principal components of what the layers before it give."""
        return self.head is not None and self.head.start == PRINCIPAL


class Plain(Network):
    """A backbone, pooled, and a head."""

    kind: Literal["plain"] = "plain"
    network: Literal["plain"] = "plain"
    pooling: str = "auto"
    head: Head = Head()
    ensemble: None = None


class Learners(Network):
    """An ensemble of learners on one backbone."""

    kind: Literal["ensemble"] = "ensemble"
    network: Literal["plain"] = "plain"
    pooling: str = "auto"
    mirror: Literal[False] = False
    adapter: None = None
    nested: None = None
    head: None = None
    ensemble: Ensemble = Field(default_factory=Ensemble)


class Preset(Network):
    """One that was published as a whole (`models/presets.py`), on a backbone."""

    kind: Literal["preset"] = "preset"
    pooling: None = None
    mirror: Literal[False] = False
    adapter: None = None
    head: None = None
    ensemble: None = None

    @field_validator("network")
    @classmethod
    def _is_published(cls, name: str) -> str:
        installed = custom_components.entry_points("networks")
        return known(name, [PLAIN, *models.PRESETS, *installed], "network")


class Custom(Network):
    """One from outside, which is all there is."""

    kind: Literal["custom"] = "custom"
    backbone: Annotated[str, Field(pattern=rf"^(auto|{OWN_NETWORK}|{FEATURES}\d+)$")] = "auto"
    pooling: None = None
    mirror: Literal[False] = False
    head: None = None
    ensemble: None = None


class Features(Network):
    """A head on features that were computed before."""

    kind: Literal["features"] = "features"
    network: Literal["plain"] = "plain"
    weights: Literal["auto"] | None = "auto"
    pooling: Literal["auto", "own"] = "auto"
    mirror: Literal[False] = False
    head: Head = Head()
    ensemble: None = None


KINDS: dict[str, type[Network]] = {
    "plain": Plain,
    "ensemble": Learners,
    "preset": Preset,
    "custom": Custom,
    "features": Features,
}


def with_kind(values: Any) -> Any:
    """Values of `[model]` with their kind, which follows from the others."""
    if not isinstance(values, dict):
        return values
    values = dict(values)
    if (entry := custom_components.entry_points("networks").get(values.get("network"))) is not None:
        values["network"] = entry.value  # of an installed package stands for where it lies
    network = values.get("network", PLAIN)
    if custom_components.is_custom(network):
        kind = "custom"
    elif network != PLAIN:
        kind = "preset"
    elif values.get("ensemble") is not None:
        kind = "ensemble"
    else:
        kind = "features" if str(values.get("backbone")).startswith(FEATURES) else "plain"
    if values.setdefault("kind", kind) != kind:
        raise ValueError(f"kind={values['kind']}: the other keys are of kind={kind}, leave it out")
    return values


def lacks(kind: str, key: str) -> bool:
    """Whether a kind of network does not have a key."""
    hint = KINDS[kind].model_fields[key].annotation
    return hint is type(None) or get_args(hint) in ((False,), ("plain",))


AnyNetwork = Annotated[
    Plain | Learners | Preset | Custom | Features,
    Field(discriminator="kind"),
    BeforeValidator(with_kind),
]
