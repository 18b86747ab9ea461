"""Every key of a run: its type and its default. What goes together `config/schema.py` checks."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from unseen.config.tables import (
    Adapter,
    Auto,
    Component,
    Depth,
    Ensemble,
    Head,
    LabelFilter,
    LabelNoise,
    Memory,
    MixupSettings,
    OptimizerSettings,
    RelevanceSettings,
    ScheduleSettings,
    ShiftSettings,
    Sizes,
    Stage,
    WeightedComponent,
)
from unseen.evaluation import metric_names
from unseen.models.backbone import Mirror
from unseen.training.loggers import Name as LoggerName
from unseen.training.optimizers import Precision

PLAIN = "plain"  # a backbone and a head, as the other keys say


class Keys(BaseModel):
    """Flat values, and a table per component; frozen and strict."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    data: Component = Component(name="glyphs")
    seed: int = 0
    strict: bool = False  # stop at an image that cannot be read, instead of going on without it
    device: str = "auto"
    threads: Annotated[int, Field(ge=1)] | Auto = "auto"
    workers: Annotated[int, Field(ge=0)] | Auto = "auto"
    cpu_processes: Annotated[int, Field(ge=1)] | Auto = "auto"  # processes that divide each batch

    backbone: str = "auto"
    network: str = PLAIN  # or net_a ... net_f (`models/presets.py`), or one from outside
    weights: str | None = "auto"  # none: random; imagenet; or a file
    pooling: str = "auto"  # own, avg, max, avg+max, gem
    mirror: Mirror = False  # the mean of an image's and its mirror image's descriptor; evaluation
    frozen_bn: Literal["off", "stats", "full"] = "off"
    adapter: Adapter | None = None  # lora: the layers stay, a small matrix beside each is trained
    depth: Depth | Auto = "auto"  # how far training goes down from the head (`config/stages.py`)
    stages: list[Stage] = []  # further trainings, each from the best weights so far
    time_budget: Annotated[float, Field(gt=0)] | None = None  # minutes: the run ends within them
    freeze_until: str | None = "auto"  # a layer or "pooled"; what comes before runs only once
    cached_augmentations: Annotated[int, Field(ge=0)] | Auto = (
        "auto"  # augmented ones kept; 0: as evaluated
    )
    cache_dtype: Literal["int16", "float32"] = "int16"
    embedding_size: Annotated[int, Field(ge=1)] | Auto = "auto"
    nested: Sizes = []  # prefixes of the embedding that are trained with it, the whole one last
    nested_weights: list[Annotated[float, Field(gt=0)]] = []  # one for each; []: alike
    head: Head = Head()
    ensemble: Ensemble | None = None
    image_size: Annotated[int, Field(ge=8)] | Auto | None = "auto"  # None: there are no images
    training_sizes: list[Annotated[int, Field(ge=8)]] = []  # small first; []: image_size
    transform: str | None = "auto"
    smallest_crop: Annotated[float, Field(gt=0, le=1)] | None = None  # share of the area

    sampler: Component = Component(name="m_per_class")
    miner: Component | None = Component(name="auto")
    loss: Component = Component(name="multi_similarity")
    regularizers: list[WeightedComponent] = []
    memory: Memory | None = None
    label_filter: LabelFilter | None = None  # prism: items whose label looks wrong are left out
    label_noise: LabelNoise = None  # share of training labels that are wrong on purpose
    manifold_mixup: MixupSettings | Literal[False] = False

    batch_size: Annotated[int, Field(ge=2)] | Auto = "auto"
    micro_batch: Annotated[int, Field(ge=1)] | Auto | None = "auto"  # embedded at a time
    epochs: Annotated[int, Field(ge=1)] | Auto = "auto"
    lr: Annotated[float, Field(gt=0)] | Auto = "auto"
    weight_decay: float = Field(default=1e-4, ge=0)
    optimizer: OptimizerSettings = OptimizerSettings()
    schedule: ScheduleSettings = ScheduleSettings()
    ema: Annotated[float, Field(gt=0, lt=1)] | None = None
    precision: Precision = "float32"
    patience: Annotated[int, Field(ge=1)] | None = None
    gain_by: Annotated[int, Field(ge=1)] | None = None  # the epoch from which on it must gain
    refit: bool = False
    loggers: list[LoggerName] = []

    protocol: str = "half_split"
    validation_fraction: Annotated[float, Field(gt=0, lt=1)] | Auto = "auto"
    split_seed: int = Field(default=0, ge=0)  # draws the classes of all but half_split
    folds: int = Field(default=10, ge=2)
    fold: int = Field(default=0, ge=0)
    shift: ShiftSettings | None = None  # with protocol = shift: the step of the stages
    train_domain: str | None = None  # of several: train and select on it alone, test on all
    select: Literal["validation", "test"] = "validation"
    select_by: Literal["recall@1", "map_at_r", "last"] = "recall@1"
    monitor: Literal["validation", "test"] = "validation"
    layers_every: int = Field(default=0, ge=0)
    validate_every: int = Field(default=1, ge=1)  # epochs; the last one is always looked at
    validation_images: Annotated[int, Field(ge=2)] | None = None  # of each subset, in whole classes

    descriptor: str = "embedding"
    normalize: bool | Auto = "auto"  # evaluate by the cosine; false: by the Euclidean distance
    relevance: RelevanceSettings = (
        RelevanceSettings()
    )  # who is the same as whom, and what else to evaluate by
    metrics: list[str] = list(metric_names.USUAL)
    shots: list[Annotated[int, Field(ge=1)]] = []  # of each test class, to adapt the last layer
    open_set: bool = False  # evaluate also queries of classes that the gallery does not have
