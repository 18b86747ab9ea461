"""The stages of a run: how deep each training goes, and with which values.

head                     a head on frozen layers, each image through them once: the run's own config
proxies                  the head once more, with proxy-anchor, to its last epoch: the proxies that
                         the next stages start with
last_layers              the last layers with at least half of all weights, from activations kept at
                         their freeze point
full                     every layer, from images
bigger_backbone_head     a head again, on larger images and their mirror images, of a bigger network
                         where one is installed: where depth gains nothing, or may gain less
bigger_backbone_proxies  that head with proxy-anchor, as `proxies`
full_low_lr              every layer of that network, at a quarter of the rate: where what is known
                         already would only be forgotten at the usual one

A stage is the run's config with some keys changed (`KEYS`); it starts from the best weights so far,
one of another `backbone` anew. What the user gave holds on every stage.

Values   lr 4e-4, batches of 32, frozen batch norm: whole EfficientNet-Lite0 on Cars196 with
         proxy-anchor (its own loss.lr 0.01), by its validation classes. Small batches, because
         minutes allow few epochs: after two of them at 112 and 128 pixels recall@1 was 74.0 with
         batches of 48 (lr 5e-4) and 58.9 with 112 (lr 8e-4). Deeper stages take proxy-anchor unless
         a loss was given. New proxies would tear at layers that know something; its authors wait
         for them one epoch, here a head is trained with them first, in seconds: 92.2 after six
         epochs, where one that waited had 90.9 after six and 91.6 after eight.
         full_low_lr, 1e-4: on birds, which ImageNet knows, whole EfficientNet-Lite0 at 4e-4 falls
         from 95.6 to 92.0; EfficientNet-Lite2 at 1e-4, trained at 256 and evaluated at 352 pixels,
         rises from 85.3 to 86.6 in an epoch (mAP@R from 48.8 to 51.6; 30 validation classes).
"""

from functools import cache
from typing import Any

from unseen import models
from unseen.config import schema as configs
from unseen.config.network_kinds import PLAIN
from unseen.config.schema import Config, ResolvedConfig, depth_of
from unseen.config.tables import Stage
from unseen.core.names import known
from unseen.core.reason import Reason
from unseen.core.relevance import CLASSES
from unseen.models.backbone import IMAGENET, OWN, backbone_info, create_backbone
from unseen.models.head import PRINCIPAL, Head
from unseen.models.layer_outputs import POOLED
from unseen.models.network import EmbeddingNetwork

FIRST, PROXIES, LAST_LAYERS, FULL = "head", "proxies", "last_layers", "full"
BIGGER, BIGGER_PROXIES = "bigger_backbone_head", "bigger_backbone_proxies"
FULL_LOW_LR = "full_low_lr"
TRAINED = {
    FIRST: "the head",
    PROXIES: "the head",
    LAST_LAYERS: "the last layers",
    FULL: "the whole network",
    BIGGER: "the head, larger images",
    BIGGER_PROXIES: "the head",
    FULL_LOW_LR: "the whole network",
}
KEYS = (
    *(
        "backbone",
        "freeze_until",
        "cached_augmentations",
        "image_size",
        "training_sizes",
        "mirror",
        "frozen_bn",
    ),
    *("smallest_crop", "transform", "loss", "miner", "sampler", "batch_size", "micro_batch"),
    *("epochs", "lr", "weight_decay", "optimizer", "schedule", "ema", "precision"),
    *("patience", "gain_by", "select_by", "validate_every", "validation_images"),
)
HALF = 0.5  # of all weights: what the last layers hold at least


def with_stages(config: Config, resolved: ResolvedConfig) -> tuple[ResolvedConfig, list[Reason]]:
    """A depth that was asked for is reached in steps: the stages below the head, each checked."""
    own = depth_of(resolved.model.frozen.freeze_until)
    if not config.training.stages and config.training.depth not in ("auto", own):
        if (
            own != FIRST
            or config.model.frozen.freeze_until != "auto"
            or not can_have_stages(resolved)
        ):
            raise ValueError(
                f"depth = {config.training.depth} does not go with freeze_until = "
                f"{resolved.model.frozen.freeze_until} and weights = {resolved.model.weights}, "
                f"which train {TRAINED[own]}: leave one out"
            )
        point = last_layers_freeze_point(resolved.model.backbone, resolved.data.image_size)
        stages = [*proxies_stage(config), last_layers_stage(config, point)]
        stages += [full_stage(config)] if config.training.depth == FULL else []
        resolved = resolved.with_values({"stages": stages})
    names = [stage.name for stage in resolved.training.stages]
    if names and resolved.training.validation.sees_test:
        raise ValueError(
            "a stage is selected on validation classes: it needs select and monitor = validation"
        )
    if names and resolved.model.adapter is not None:
        raise ValueError("stages train layers that an adapter leaves as they are: leave one out")
    if len({FIRST, *names}) != len(names) + 1:
        raise ValueError(f"stages need names of their own, and not {FIRST!r}, got {names}")
    for place, name in enumerate(names):
        conditions = ["any", "gain", "no gain", *names[:place]]
        known(resolved.training.stages[place].after, conditions, f"after of the stage {name}")
    trained = {name: stage_config(resolved, name) for name in names}
    for name, stage in trained.items():
        if stage.model.backbone != resolved.model.backbone:
            _check_other_network(stage, name)
    return resolved, [
        _reason(stage, name, resolved.model.backbone) for name, stage in trained.items()
    ]


def can_have_stages(resolved: ResolvedConfig) -> bool:
    """Whether there is a head on layers that know something, and more to train below it."""
    plain = resolved.model.kind == PLAIN and resolved.model.adapter is None
    knows = resolved.model.weights is not None
    return plain and knows and not resolved.training.validation.sees_test


def stage_config(config: ResolvedConfig, name: str) -> ResolvedConfig:
    """What a stage trains with; the first one is the run's own config."""
    changed: dict[str, Any] = {"stages": []}
    if name != FIRST:
        stage = next(stage for stage in config.training.stages if stage.name == name)
        for key in stage.values:
            known(key, KEYS, f"key of the stage {name}")
        changed |= stage.values
    changed["depth"] = depth_of(changed.get("freeze_until", config.model.frozen.freeze_until))
    return configs.make_resolved(config.flat() | changed)


def _check_other_network(config: ResolvedConfig, name: str) -> None:
    """A stage on another network than the run's: what it cannot have is an error before
    training."""
    if config.model.weights not in (None, IMAGENET):
        raise ValueError(
            f"stage {name} has a backbone of its own, {config.model.backbone}, and weights = "
            f"{config.model.weights} are for another: leave one out"
        )
    pooled = backbone_info(config.model.backbone, config.model.pooling or OWN).num_features
    if config.model.starts_principal and config.model.embedding_size > pooled:
        raise ValueError(
            f"stage {name}: head.start = {PRINCIPAL} needs embedding_size <= {pooled}, what "
            f"{config.model.backbone} gives, got {config.model.embedding_size}"
        )


def _reason(config: ResolvedConfig, name: str, backbone: str) -> Reason:
    sizes = "/".join(map(str, config.data.transform.training_sizes)) or config.data.image_size
    trained = TRAINED.get(name, name)
    of = "" if config.model.backbone == backbone else f", on {config.model.backbone}"
    what = f"{name} trains {trained}{of}, {config.training.epochs} epochs at {sizes} px"
    return Reason("stages", "", f"{what}, {config.loss_name}, lr = {config.optimizer.lr:g}")


def takes_proxy_anchor(config: Config) -> bool:
    """Whether the deeper stages have another loss than the head."""
    if config.data.relevance.kind not in ("auto", *CLASSES):
        return False
    return config.training.memory is None and not {"loss", "miner"} & config.user_keys()


def proxies_stage(config: Config, **values: Any) -> list[Stage]:
    """One stage, where the deeper ones need it. Its last epoch is selected: where no epoch gains,
    the proxies of its start would be those that nobody has trained."""
    anchors = {"loss": "proxy_anchor", "miner": None, "leads": True}
    usual = _free(config, {"select_by": "last"})
    result = [Stage.model_validate({"name": PROXIES} | usual | anchors | values)]
    return result if takes_proxy_anchor(config) else []


def full_low_lr_stages(config: Config, head: Stage, **values: Any) -> list[Stage]:
    """Below a bigger backbone's head, where it was selected, and evaluated on its images; by mAP@R,
    which still gains where recall@1 hardly can."""
    same = {key: head.values[key] for key in ("backbone", "image_size") if key in head.values}
    left = {"minutes_after": values["minutes_after"]}
    before = proxies_stage(config, name=BIGGER_PROXIES, after=BIGGER, **head.values, **left)
    mirror = "evaluation" if head.values.get("mirror", config.model.mirror) else False
    what = {"after": BIGGER, "freeze_until": None, "cached_augmentations": 0, "mirror": mirror}
    usual = {"lr": 1e-4, "smallest_crop": 0.3, "select_by": "map_at_r"}
    return [*before, _stage(config, FULL_LOW_LR, what | same, usual | values)]


def last_layers_stage(config: Config, freeze_until: str, **values: Any) -> Stage:
    usual = {"epochs": 6, "cached_augmentations": 2, "smallest_crop": 0.25}
    what = {"freeze_until": freeze_until, "mirror": False}
    return _stage(config, LAST_LAYERS, what, usual | values)


def full_stage(config: Config, **values: Any) -> Stage:
    mirror = config.model.mirror if "mirror" in config.user_keys() else True
    what = {
        "freeze_until": None,
        "cached_augmentations": 0,
        "mirror": "evaluation" if mirror else False,
    }
    return _stage(config, FULL, what, {"epochs": 12, "smallest_crop": 0.25} | values)


def bigger_head_stage(config: Config, **values: Any) -> Stage:
    """Trained where the stages before it gained nothing, unless the values say otherwise. It may be
    of another network where the user named none."""
    network = {key: values.pop(key) for key in ("backbone",) if key in values}
    usual = {"name": BIGGER, "after": "no gain"}
    return Stage.model_validate(usual | _free(config, values) | network)


def _stage(config: Config, name: str, what: dict[str, Any], usual: dict[str, Any]) -> Stage:
    usual = {"lr": 4e-4, "batch_size": 32, "frozen_bn": "full"} | usual
    if takes_proxy_anchor(config):
        usual |= {"loss": "proxy_anchor", "miner": None}
    return Stage.model_validate({"name": name} | _free(config, usual) | what)


def _free(config: Config, values: dict[str, Any]) -> dict[str, Any]:
    """Without the keys that the user set for the run."""
    return {key: value for key, value in values.items() if key not in config.user_keys()}


@cache
def last_layers_freeze_point(backbone: str, image_size: int | None) -> str:
    """The last layer that everything passes through with at least half of the weights after it;
    `pooled` where there is none."""
    made = create_backbone(backbone, image_size)
    net = EmbeddingNetwork(made, Head(made.num_features, None))
    body, _ = net.leading_layers()
    count = {name: p.numel() for name, p in body.named_parameters()}
    for layer in reversed(models.passages(net)):
        before = _up_to(list(count), layer)
        if sum(count[name] for name in before) <= HALF * sum(count.values()):
            return layer
    return POOLED


def _up_to(names: list[str], layer: str) -> list[str]:
    """Parameters in the order of the forward pass, up to the last one of a layer."""
    own = [place for place, name in enumerate(names) if name.startswith(f"{layer}.")]
    return names[: own[-1] + 1] if own else []
