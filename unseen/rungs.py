"""The rungs of a ladder: how deep each training goes, and with which values.

    head     a head on frozen layers, each picture through them once: the run's own config
    proxies  the head once more, with proxy-anchor, to its last epoch: the proxies that the next
             rungs start with
    last     the last layers with at least half of all weights, from activations kept at their cut
    whole    every layer, from pictures
    larger   a head again, on larger pictures and their mirror images, of a larger network where one
             is installed: where depth gains nothing, or may gain less than this
    gentle   every layer of that network, at a quarter of the rate, after `larger proxies`: where
             what is known already would only be forgotten at the whole one

A rung is the run's config with some keys changed (`KEYS`); it starts from the best weights so far,
one of another `backbone` anew. What the user gave holds on every rung.

Values   lr 4e-4, batches of 32, frozen batch norm: whole EfficientNet-Lite0 on Cars196 with
         proxy-anchor (its own loss.lr 0.01), by its validation classes. Small batches, because
         minutes allow few epochs: after two of them at 112 and 128 pixels recall@1 was 74.0 with
         batches of 48 (lr 5e-4) and 58.9 with 112 (lr 8e-4). Deeper rungs take proxy-anchor unless
         a loss was given. New proxies would tear at layers that know something; its authors wait
         for them one epoch, here a head is trained with them first, in seconds: 92.2 after six
         epochs, where one that waited had 90.9 after six and 91.6 after eight.
         gentle, lr 1e-4: on birds, which ImageNet knows, whole EfficientNet-Lite0 at 4e-4 falls
         from 95.6 to 92.0; EfficientNet-Lite2 at 1e-4, trained at 256 and judged at 352 pixels,
         rises from 85.3 to 86.6 in an epoch (mAP@R from 48.8 to 51.6; 30 validation classes).
"""

from functools import cache
from typing import Any

from unseen import config as configs
from unseen import networks
from unseen.config import PLAIN, Config, SettledConfig, depth_of
from unseen.config_tables import Rung
from unseen.names import known
from unseen.networks.backbone import IMAGENET, backbone_facts, create_backbone
from unseen.networks.head import PRINCIPAL, Head
from unseen.networks.network import EmbeddingNetwork
from unseen.networks.taps import POOLED
from unseen.relevance import CLASSES

FIRST, PROXIES, LAST, WHOLE = "head", "proxies", "last", "whole"
LARGER, LARGER_PROXIES, GENTLE = "larger", "larger proxies", "gentle"
TRAINED = {
    FIRST: "the head",
    PROXIES: "the head",
    LAST: "the last layers",
    WHOLE: "the whole network",
    LARGER: "the head, larger pictures",
    LARGER_PROXIES: "the head",
    GENTLE: "the whole network",
}
KEYS = (
    *("backbone", "freeze_until", "views", "picture_size", "training_sizes", "mirror", "frozen_bn"),
    *("smallest_crop", "transform", "loss", "miner", "sampler", "batch_size", "micro_batch"),
    *("epochs", "lr", "weight_decay", "optimiser", "schedule", "ema", "precision"),
    *("patience", "gain_by", "select_by", "look_every", "look_pictures"),
)
HALF = 0.5  # of all weights: what the last layers hold at least


def with_ladder(config: Config, settled: SettledConfig) -> tuple[SettledConfig, list[str]]:
    """A depth that was asked for is reached in steps: the rungs below the head, each checked."""
    own = depth_of(settled.freeze_until)
    if not config.ladder and config.depth not in ("auto", own):
        if own != FIRST or config.freeze_until != "auto" or not can_climb(settled):
            raise ValueError(
                f"depth = {config.depth} does not go with freeze_until = {settled.freeze_until} "
                f"and weights = {settled.weights}, which train {TRAINED[own]}: leave one out"
            )
        cut = cut_of_last_layers(settled.backbone, settled.picture_size)
        rungs = [last(config, cut), *([whole(config)] if config.depth == WHOLE else [])]
        rungs = [*proxies(config), *rungs]
        settled = settled.model_copy(update={"ladder": rungs})
    names = [rung.name for rung in settled.ladder]
    if names and "test" in (settled.select, settled.monitor):
        raise ValueError(
            "a ladder is climbed by validation classes: it needs select and monitor = validation"
        )
    if names and settled.adapter is not None:
        raise ValueError("rungs train layers that an adapter leaves as they are: leave one out")
    if len({FIRST, *names}) != len(names) + 1:
        raise ValueError(f"rungs need names of their own, and not {FIRST!r}, got {names}")
    for place, name in enumerate(names):
        conditions = ["any", "gain", "no gain", *names[:place]]
        known(settled.ladder[place].after, conditions, f"after of the rung {name}")
    trained = {name: rung_config(settled, name) for name in names}
    for name, rung in trained.items():
        if rung.backbone != settled.backbone:
            _check_other_network(rung, name)
    return settled, [_reason(rung, name, settled.backbone) for name, rung in trained.items()]


def can_climb(settled: SettledConfig) -> bool:
    """Whether there is a head on layers that know something, and more to train below it."""
    plain = settled.network == PLAIN and settled.ensemble is None and settled.adapter is None
    knows = settled.weights is not None
    return plain and knows and "test" not in (settled.select, settled.monitor)


def rung_config(config: SettledConfig, name: str) -> SettledConfig:
    """What a rung trains with; the first one is the run's own config."""
    changed: dict[str, Any] = {"ladder": []}
    if name != FIRST:
        rung = next(rung for rung in config.ladder if rung.name == name)
        for key in rung.values:
            known(key, KEYS, f"key of the rung {name}")
        changed |= rung.values
    changed["depth"] = depth_of(changed.get("freeze_until", config.freeze_until))
    return configs.make_settled(config.model_dump() | changed)


def _check_other_network(config: SettledConfig, name: str) -> None:
    """A rung on another network than the run's: what it cannot have is an error before training."""
    if config.weights not in (None, IMAGENET):
        raise ValueError(
            f"rung {name} has a backbone of its own, {config.backbone}, and weights = "
            f"{config.weights} are for another: leave one out"
        )
    pooled = backbone_facts(config.backbone).num_features
    if config.head.start == PRINCIPAL and config.embedding_size > pooled:
        raise ValueError(
            f"rung {name}: head.start = {PRINCIPAL} needs embedding_size <= {pooled}, what "
            f"{config.backbone} gives, got {config.embedding_size}"
        )


def _reason(config: SettledConfig, name: str, backbone: str) -> str:
    sizes = "/".join(map(str, config.training_sizes)) or config.picture_size
    trained = TRAINED.get(name, name)
    of = "" if config.backbone == backbone else f", on {config.backbone}"
    return (
        f"ladder: {name} trains {trained}{of}, {config.epochs} epochs at {sizes} px, "
        f"{config.loss.name}, lr = {config.lr:g}"
    )


def takes_proxy_anchor(config: Config) -> bool:
    """Whether the deeper rungs have another loss than the head."""
    if config.relevance.kind not in ("auto", *CLASSES):
        return False
    return config.memory is None and not {"loss", "miner"} & config.model_fields_set


def proxies(config: Config, **values: Any) -> list[Rung]:
    """One rung, where the deeper ones need it. Its last epoch is kept: where no epoch gains, the
    proxies of its start would be those that nobody has trained."""
    anchors = {"loss": "proxy_anchor", "miner": None, "leads": True}
    usual = _free(config, {"select_by": "last"})
    found = [Rung.model_validate({"name": PROXIES} | usual | anchors | values)]
    return found if takes_proxy_anchor(config) else []


def gentle(config: Config, head: Rung, **values: Any) -> list[Rung]:
    """Below a `larger` head, where it was kept, and judged on its pictures; by mAP@R, which still
    gains where recall@1 hardly can."""
    same = {key: head.values[key] for key in ("backbone", "picture_size") if key in head.values}
    left = {"minutes_after": values["minutes_after"]}
    before = proxies(config, name=LARGER_PROXIES, after=LARGER, **head.values, **left)
    mirror = "judging" if head.values.get("mirror", config.mirror) else False
    what = {"after": LARGER, "freeze_until": None, "views": 0, "mirror": mirror}
    usual = {"lr": 1e-4, "smallest_crop": 0.3, "select_by": "map_at_r"}
    return [*before, _rung(config, GENTLE, what | same, usual | values)]


def last(config: Config, cut: str, **values: Any) -> Rung:
    usual = {"epochs": 6, "views": 2, "smallest_crop": 0.25}
    return _rung(config, LAST, {"freeze_until": cut, "mirror": False}, usual | values)


def whole(config: Config, **values: Any) -> Rung:
    given = config.mirror if "mirror" in config.model_fields_set else True
    what = {"freeze_until": None, "views": 0, "mirror": "judging" if given else False}
    return _rung(config, WHOLE, what, {"epochs": 12, "smallest_crop": 0.25} | values)


def larger(config: Config, **values: Any) -> Rung:
    """Climbed where the rungs before it gained nothing, unless the values say otherwise. It may be
    of another network where the user named none."""
    network = {key: values.pop(key) for key in ("backbone",) if key in values}
    usual = {"name": LARGER, "after": "no gain"}
    return Rung.model_validate(usual | _free(config, values) | network)


def _rung(config: Config, name: str, what: dict[str, Any], usual: dict[str, Any]) -> Rung:
    usual = {"lr": 4e-4, "batch_size": 32, "frozen_bn": "full"} | usual
    if takes_proxy_anchor(config):
        usual |= {"loss": "proxy_anchor", "miner": None}
    return Rung.model_validate({"name": name} | _free(config, usual) | what)


def _free(config: Config, values: dict[str, Any]) -> dict[str, Any]:
    """Without keys that the user gave for the whole run; a rung's own, such as its minutes, are no
    such keys."""
    given = config.model_fields_set - Rung.model_fields.keys()
    return {key: value for key, value in values.items() if key not in given}


@cache
def cut_of_last_layers(backbone: str, picture_size: int | None) -> str:
    """The last layer that everything passes through with at least half of the weights after it;
    `pooled` where there is none."""
    made = create_backbone(backbone, picture_size)
    net = EmbeddingNetwork(made, Head(made.num_features, None))
    body, _ = net.first_part()
    count = {name: p.numel() for name, p in body.named_parameters()}
    for layer in reversed(networks.passages(net)):
        before = _up_to(list(count), layer)
        if sum(count[name] for name in before) <= HALF * sum(count.values()):
            return layer
    return POOLED


def _up_to(names: list[str], layer: str) -> list[str]:
    """Parameters in the order of the forward pass, up to the last one of a layer."""
    own = [place for place, name in enumerate(names) if name.startswith(f"{layer}.")]
    return names[: own[-1] + 1] if own else []
