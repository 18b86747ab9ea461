"""The settings of `unseen.fit`: every key of a config as it is written alone."""

from typing import Any, Literal, TypedDict

from unseen.config.tables import Auto, Depth

Values = dict[str, Any]  # of a table


class Settings(TypedDict, total=False):
    """The keys, which `unseen.fit` describes, and the tables that they are in. A method with values
    is a table, {"name": "margin", "beta": 0.6}; what may be an object of your own is `Any`."""

    loss: Any
    miner: Any
    sampler: Any
    regularizers: Any
    optimizer: str | Values
    image_size: int | Auto | None
    transform: str | Values | None
    label_noise: float | Values | None
    relevance: Values
    strict: bool
    smallest_crop: float | None
    training_sizes: list[int]
    network: Any
    backbone: str
    weights: str | None
    pooling: str | None
    mirror: bool | Literal["evaluation"]
    adapter: str | Values | None
    embedding_size: int | Auto
    nested: list[int] | Values | None
    head: Values
    ensemble: Values | None
    freeze_until: str | None
    frozen_bn: Literal["off", "stats", "full"]
    cached_augmentations: int | Auto
    lr: float | Auto
    weight_decay: float
    schedule: str | Values
    seed: int
    epochs: int | Auto
    batch_size: int | Auto
    precision: Literal["float32", "bf16", "fp16"]
    ema: float | None
    depth: Depth | Auto
    stages: list[Values]
    time_budget: float | None
    memory: Values | None
    label_filter: str | Values | None
    manifold_mixup: bool | Values | None
    loggers: list[str]
    validate_every: int
    validation_images: int | None
    select: Literal["validation", "test"]
    select_by: Literal["recall@1", "map_at_r", "last"]
    monitor: Literal["validation", "test"]
    layers_every: int
    patience: int | None
    gain_by: int | None
    refit: bool
    device: str
    threads: int | Auto
    workers: int | Auto
    cpu_processes: int | Auto
    micro_batch: int | Auto | None
    protocol: Any
    descriptor: str
    normalize: bool | Auto
    metrics: Any
    shots: list[int]
    open_set: bool
    validation_fraction: float | Auto
    split_seed: int
    folds: int
    fold: int
    shift: Values | None
    train_domain: str | None
    model: Values
    training: Values
    evaluation: Values
