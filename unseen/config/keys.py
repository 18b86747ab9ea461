"""Every key of a run: its table, type and default. What goes together `config/schema.py` checks."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, BeforeValidator, Field, model_validator

from unseen.config.network_kinds import AnyNetwork, Frozen, Network, Plain
from unseen.config.tables import (
    AUTO,
    ELSEWHERE,
    Auto,
    Component,
    Depth,
    LabelFilter,
    LabelNoise,
    Memory,
    Mixup,
    Named,
    OptimizerSettings,
    OrAuto,
    RelevanceSettings,
    ShiftSettings,
    Stage,
    Table,
    WeightedComponents,
    as_sum,
)
from unseen.core.names import known
from unseen.evaluation import metric_names
from unseen.training.loggers import Name as LoggerName
from unseen.training.optimizers import Precision


class Transform(Table):
    """What images go through.

    Args:
        name: `small`, `base`, or a source's; `unseen catalogue` lists them.
        smallest_crop: the least share of an image that a crop shows in training; none: 0.08 with
            `base`, as its source has it.
        training_sizes: sizes of the images in training, small first, each in as many epochs; none:
            `image_size`.
    """

    name: str | None = "auto"
    smallest_crop: Annotated[float, Field(gt=0, le=1)] | None = None
    training_sizes: list[Annotated[int, Field(ge=8)]] = Field(default=[])


class DataSettings(Component):
    """The data set with its own values (`data.root`, `data.levels`, ...), and what is done to it.

    Args:
        name: what is at `data.root`, or a built-in data set.
        image_size: the side of the images that are evaluated; none: there are no images.
        transform: what images go through.
        label_noise: the share of training labels that are wrong on purpose.
        relevance: who is the same as whom, and what else to evaluate by.
        strict: stop at an image that cannot be read, instead of going on without it.
    """

    name: str = "glyphs"
    image_size: OrAuto[Annotated[int, Field(ge=8)] | None] = AUTO
    transform: Transform = Transform()
    label_noise: LabelNoise = None
    relevance: RelevanceSettings = RelevanceSettings()
    strict: bool = False


class Machine(Table):
    """What a run takes of the machine; it trains the same on another.

    Args:
        device: `cpu`, `cuda`, `cuda:1`, ...
        threads: of each process.
        workers: processes that prepare images.
        cpu_processes: processes of this machine that divide each batch.
        micro_batch: images that are embedded at a time, with the gradient of the whole batch
            (GradCache); none: all.
    """

    device: str = "auto"
    threads: OrAuto[Annotated[int, Field(ge=1)]] = AUTO
    workers: OrAuto[Annotated[int, Field(ge=0)]] = AUTO
    cpu_processes: OrAuto[Annotated[int, Field(ge=1)]] = AUTO
    micro_batch: OrAuto[Annotated[int, Field(ge=1)] | None] = AUTO


class Validation(Table):
    """When training is validated, which epoch is kept, and when training stops early.

    Args:
        validate_every: epochs; the last one is always validated.
        validation_images: at most so many of each subset, in whole classes.
        select: `validation` classes choose the epoch, or `test` classes, as in some papers.
        select_by: `recall@1` or `map_at_r` chooses it; `last`: none does.
        monitor: `test`: the curves show the test classes as well.
        layers_every: epochs after which every layer is evaluated; 0: never.
        patience: stop after so many epochs without a better score; none: where recall@1 is 100 %,
            after ten validations.
        gain_by: the epoch from which on it must have gained, or training stops.
        refit: once the length is chosen, train on training and validation classes together.
    """

    validate_every: int = Field(default=1, ge=1)
    validation_images: Annotated[int, Field(ge=2)] | None = None
    select: Literal["validation", "test"] = "validation"
    select_by: Literal["recall@1", "map_at_r", "last"] = "recall@1"
    monitor: Literal["validation", "test"] = "validation"
    layers_every: int = Field(default=0, ge=0)
    patience: Annotated[int, Field(ge=1)] | None = None
    gain_by: Annotated[int, Field(ge=1)] | None = None
    refit: bool = False

    @property
    def sees_test(self) -> bool:
        """Whether test classes are looked at while training."""
        return "test" in (self.select, self.monitor)

    @model_validator(mode="after")
    def _length_is_chosen(self) -> "Validation":
        if self.refit and self.select == "test":
            raise ValueError("refit needs a length chosen on validation classes: select = test")
        return self


class Training(Table):
    """How a run trains.

    Args:
        seed: of the split, of every starting value and of the order of the batches.
        epochs: how often the sampler's batches are gone through.
        batch_size: images of a batch.
        precision: of the network's layers in training: `float32`, `bf16` or `fp16`.
        ema: decay of the running average of the weights, which is evaluated and kept, e.g. 0.999.
        depth: how far training goes down from the head, in stages: `head`, `last_layers` or
            `full`.
        stages: further trainings, each from the best weights so far.
        time_budget: minutes; the run ends within them.
        memory: embeddings of earlier batches as references of pair losses.
        label_filter: `prism`: items whose label looks wrong are left out of a batch.
        manifold_mixup: `true`: images are mixed inside the network.
        loggers: `tensorboard`, `wandb`, `mlflow`: the event log's numbers there as well.
        validation: when training is validated, which epoch is kept, and when training stops early.
        machine: what a run takes of the machine.
    """

    seed: int = 0
    epochs: OrAuto[Annotated[int, Field(ge=1)]] = AUTO
    batch_size: OrAuto[Annotated[int, Field(ge=2)]] = AUTO
    precision: Precision = "float32"
    ema: Annotated[float, Field(gt=0, lt=1)] | None = None
    depth: Depth | Auto = "auto"
    stages: list[Stage] = Field(default=[])
    time_budget: Annotated[float, Field(gt=0)] | None = None
    memory: Memory | None = None
    label_filter: Annotated[LabelFilter | None, Named] = None
    manifold_mixup: Mixup = False
    loggers: list[LoggerName] = Field(default=[])
    validation: Validation = Validation()
    machine: Machine = Machine()


class Protocol(Table):
    """How the classes are divided.

    Args:
        name: `half_split`, `fixed_validation`, `k_fold` or `shift`, or your own.
        validation_fraction: of the training classes, those that select.
        split_seed: draws the classes of all but half_split.
        folds: of k_fold.
        fold: the one that selects.
        shift: of `shift`, the step of its splits.
        train_domain: of several domains, train and select on this one, evaluate on all.
    """

    name: str = "half_split"
    validation_fraction: OrAuto[Annotated[float, Field(gt=0, lt=1)]] = AUTO
    split_seed: int = Field(default=0, ge=0)
    folds: int = Field(default=10, ge=2)
    fold: int = Field(default=0, ge=0)
    shift: ShiftSettings | None = None
    train_domain: str | None = None

    @model_validator(mode="after")
    def _split_exists(self) -> "Protocol":
        folded = self.name == "k_fold"
        if self.fold >= (self.folds if folded else 1):
            most = f"below folds = {self.folds}" if folded else "0 unless protocol = k_fold"
            raise ValueError(f"fold must be {most}, got {self.fold}")
        if folded and self.validation_fraction not in ("auto", 1 / self.folds):
            raise ValueError("k_fold sets one fold aside: set folds, not validation_fraction")
        if (self.name == "shift") != (self.shift is not None):
            raise ValueError(
                "protocol=shift needs a step of its stages, and only it has one: shift.step=1 to 9"
            )
        return self


def _of_source(value: Any) -> Any:
    """`metrics = "revisit"` is short for the metrics of that source."""
    return metric_names.PRESETS.get(value, [value]) if isinstance(value, str) else value


class Evaluation(Table):
    """On what and by what a run is evaluated.

    Args:
        protocol: how the classes are divided.
        descriptor: `embedding`, a layer, or `best`: the one that is best on validation classes.
        normalize: compare by the cosine; false: by the Euclidean distance.
        metrics: their names, or a source's.
        shots: images of each test class, to adapt the last layer with.
        open_set: evaluate also queries of classes that the gallery does not have.
    """

    protocol: Protocol = Protocol()
    descriptor: str = "embedding"
    normalize: OrAuto[bool] = AUTO
    metrics: Annotated[list[str], BeforeValidator(_of_source)] = Field(
        default=list(metric_names.USUAL)
    )
    shots: list[Annotated[int, Field(ge=1)]] = Field(default=[])
    open_set: bool = False


class Keys(Table):
    """The tables, and the methods by name.

    Args:
        loss: what training lowers; several are a sum, `loss=[a, b]`.
        miner: which pairs or triplets of a batch the loss sees; none: all.
        sampler: how batches are drawn.
        regularizers: what else is lowered, each with its weight.
    """

    data: DataSettings = DataSettings()
    model: AnyNetwork = Plain()
    loss: Annotated[Component, BeforeValidator(as_sum)] = Component(name="multi_similarity")
    miner: Annotated[Component | None, Named] = Component(name="auto")
    sampler: Annotated[Component, Named] = Component(name="m_per_class")
    regularizers: WeightedComponents = Field(default=[])
    optimizer: OptimizerSettings = OptimizerSettings()
    training: Training = Training()
    evaluation: Evaluation = Evaluation()


GROUPS: dict[str, type[BaseModel]] = {  # tables whose keys may be written alone
    "data": DataSettings,
    "data.transform": Transform,
    "model": Network,
    "model.frozen": Frozen,
    "optimizer": OptimizerSettings,
    "training": Training,
    "training.validation": Validation,
    "training.machine": Machine,
    "evaluation": Evaluation,
    "evaluation.protocol": Protocol,
}
TABLES: dict[str, type[Table]] = {  # those that are the value of a key
    key: table
    for path, group in GROUPS.items()
    for key, field in group.model_fields.items()
    for table in (field.annotation, *get_args(field.annotation))
    if f"{path}.{key}" not in GROUPS and isinstance(table, type) and issubclass(table, Table)
}
WITH_TABLE = {  # but these: `optimizer.momentum`
    *("name", "preset", "kind", "momentum", "backbone_factor", "layer_decay", "clip_norm"),
}


def _alone() -> Iterator[tuple[str, str]]:
    for path, table in GROUPS.items():
        yield path.rpartition(".")[2], path
        yield from ((key, f"{path}.{key}") for key in table.model_fields if key not in WITH_TABLE)
    yield from ((key, key) for key in Keys.model_fields)


SHORT = dict(_alone())  # a key as it may be written alone -> its place: lr -> optimizer.lr


def short(values: Mapping[str, Any]) -> dict[str, Any]:
    """The same values with each key as it may be written alone: `[optimizer] lr` as `lr`."""
    result: dict[str, Any] = {}

    def put_in(path: str, value: Any) -> None:
        name, own = path.rpartition(".")[2], {}
        if path not in GROUPS or not isinstance(value, dict):
            if result.setdefault(name, value) != value:
                raise ValueError(f"{name} is given twice: {result[name]!r} and {value!r}")
            return
        for key, inner in value.items():
            if SHORT.get(key, "").startswith(f"{path}."):
                put_in(SHORT[key], inner)
            else:
                own[key] = inner
        if own or not value:
            result[name] = own["name"] if "." in path and set(own) == {"name"} else own

    for key, value in values.items():
        if key in SHORT:
            put_in(SHORT[key], value)
        else:
            result[short_key(key)] = value
    return result


def by_table(values: Mapping[str, Any]) -> dict[str, Any]:
    """The same values with each key in its table."""
    result: dict[str, Any] = {}
    for key, value in short(values).items():
        path = SHORT[known(key, list(SHORT), "key", ELSEWHERE)]
        *parents, last = path.split(".")
        table = result
        for name in parents:
            table = table.setdefault(name, {})
        if path not in GROUPS:
            table[last] = value
            continue
        if not isinstance(value, dict) and "name" not in GROUPS[path].model_fields:
            inner = next(k for k, place in SHORT.items() if place.startswith(f"{path}."))
            raise ValueError(f"{key} is a table, e.g. {path}.{inner}; got {key}={value!r}")
        table.setdefault(last, {}).update(_as_table(value))
    return result


def _as_table(value: Any) -> dict[str, Any]:
    """A name stands for its table, a list of data sets for that of domains."""
    if isinstance(value, dict):
        return value
    return {"name": "domains", "roots": value} if isinstance(value, list) else {"name": value}


def short_key(key: str) -> str:
    """A key without the tables that it may be written without."""
    parts = key.split(".")
    for number in range(len(parts) - 1, 0, -1):
        if SHORT.get(parts[number]) == ".".join(parts[: number + 1]):
            return ".".join(parts[number:])
    return key
