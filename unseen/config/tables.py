"""The tables of a config: a component with its values, and what has a table of its own."""

from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    model_validator,
)
from pydantic_core import CoreSchema, core_schema

from unseen import models
from unseen.core import custom_components, registry
from unseen.training.optimizers import Optimizer

Auto = Literal["auto"]
AUTO: Any = "auto"
T = TypeVar("T")


class _OrAuto:
    """Lets a field be "auto" as well, in a config that has not been resolved."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.union_schema([handler(source), core_schema.literal_schema(["auto"])])


OrAuto = Annotated[T, _OrAuto()]  # to whoever reads a field: its type once it is resolved
Depth = Literal["head", "last_layers", "full"]

ELSEWHERE = {  # what other libraries call our keys, where the spelling does not lead there
    "learning_rate": "lr",
    "criterion": "loss",
    "augmentation": "transform",
    "amp": "precision",
    "minutes": "time_budget",
    "nested_weights": "nested.weights",
}


def _rising(sizes: list[int]) -> list[int]:
    if sizes != sorted(set(sizes)) or len(sizes) < 2:
        raise ValueError("sizes must rise, two or more, e.g. nested=[32,64,128,512]")
    return sizes


class Table(BaseModel):
    """A table of keys: it does not change, and takes no key that it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Component(BaseModel):
    """A method by name with its values; the method's constructor says which there are."""

    model_config = ConfigDict(frozen=True, extra="allow", strict=True)

    name: str
    preset: str | None = None

    @property
    def values(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


SUM = "sum"  # the name of a loss that is a sum of several


def named(value: Any) -> Any:
    """`loss = "margin"` is short for `[loss] name = "margin"`."""
    return {"name": value} if isinstance(value, str) else value


def as_sum(value: Any) -> Any:
    """`["margin", "triplet"]`, or such a list as a table's name, is a table of a sum."""
    table = {"name": value} if isinstance(value, str | list) else value
    if not isinstance(table, dict) or not isinstance(table.get("name"), list):
        return table
    return table | {"name": SUM, "parts": [named(component) for component in table["name"]]}


def _listed(value: Any) -> Any:
    """`regularizers = "density"` is short for a list of one."""
    return [value] if isinstance(value, str) else value


Named = BeforeValidator(named)


class WeightedComponent(Component):
    """A regularizer and what it weighs in the total; None: the weight its source used."""

    weight: float | None = None


WeightedComponents = Annotated[list[Annotated[WeightedComponent, Named]], BeforeValidator(_listed)]


class Stage(BaseModel):
    """One more training that starts from the best weights so far of its backbone, and the keys in
    which it differs from the run (`config/stages.py`).

    Args:
        after: trained where the stage before it gained on the validation classes, or did not, or
            where the stage of this name was selected.
        leads: those after it with the same loss start from its weights even if it gained nothing,
            until one does.
        minutes: planned for it.
        minutes_after: left for what comes after it.
        minutes_evaluating: for evaluation, where it is the one selected.
    """

    model_config = ConfigDict(frozen=True, extra="allow", strict=True)

    name: str = Field(pattern=r"^\w[\w. +-]*$")  # of its folder, too
    after: str = "any"  # "gain", "no gain", or the name of an earlier stage
    leads: bool = False
    minutes: float | None = None
    minutes_after: float = 0.0
    minutes_evaluating: float | None = None  # None: minutes_after

    @property
    def values(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class ScheduleSettings(Table):
    """How the learning rate goes. milestones: epochs after which `step` multiplies it by gamma.
    warm_up: first epochs, in which only layers without pretraining and the loss's own parameters
    are trained."""

    name: Literal["constant", "cosine", "step"] = "cosine"
    milestones: list[Annotated[int, Field(ge=1)]] = []
    gamma: float = Field(default=0.1, gt=0, le=1)
    warm_up: int = Field(default=0, ge=0)

    @model_validator(mode="after")
    def _milestones_are_of_step(self) -> "ScheduleSettings":
        if (self.name == "step") != bool(self.milestones):
            raise ValueError(
                "schedule=step needs milestones, the epochs after which the rate falls, and only "
                f"it has them: schedule.milestones=[10,20]; got {self.milestones} for {self.name}"
            )
        return self


class OptimizerSettings(Table):
    """How a gradient moves the weights.

    Args:
        name: `adamw`, `adam` (decay as an L2 term) or `sgd`.
        lr: the learning rate. Parameters of a loss have one of their own, `loss.lr`.
        weight_decay: of the network's weights and the loss's parameters.
        schedule: how the learning rate goes: `cosine`, `constant` or `step`.
        momentum: of sgd; none is 0.9.
        backbone_factor: the learning rate of pretrained layers over that of new ones.
        layer_decay: the rate of each pretrained layer over that of the next (networks of timm; 0.65
            to 0.85 is usual with transformers).
        clip_norm: the longest gradient of all parameters together.
    """

    name: Optimizer = "adamw"
    lr: OrAuto[Annotated[float, Field(gt=0)]] = AUTO
    weight_decay: float = Field(default=1e-4, ge=0)
    schedule: Annotated[ScheduleSettings, Named] = ScheduleSettings()
    momentum: Annotated[float, Field(ge=0, lt=1)] | None = None
    backbone_factor: float = Field(default=1.0, gt=0)
    layer_decay: float = Field(default=1.0, gt=0, le=1)
    clip_norm: Annotated[float, Field(gt=0)] | None = None

    @model_validator(mode="after")
    def _momentum_is_of_sgd(self) -> "OptimizerSettings":
        if self.momentum is not None and self.name != "sgd":
            raise ValueError(f"momentum is a value of optimizer=sgd, not of {self.name}")
        return self


class Head(Table):
    """The layers from the pooled descriptor to the embedding: `head.hidden=[512]`. start: auto is
    principal where the layers before are trained already, else default."""

    hidden: list[Annotated[int, Field(ge=1)]] = []
    dropout: float = Field(default=0.0, ge=0, lt=1)
    bias: bool = True
    start: Literal["default", "kaiming", "principal"] | Auto = "auto"


class NestedSettings(Table):
    """Prefixes of the embedding that are trained with it: `nested=[32,64,128,512]`. sizes: the
    whole embedding is the last. weights: one for each; none: alike."""

    sizes: Annotated[list[Annotated[int, Field(ge=1)]], AfterValidator(_rising)]
    weights: list[Annotated[float, Field(gt=0)]] = []


def _as_nested(value: Any) -> Any:
    """A list has the sizes; an empty one is none."""
    return ({"sizes": value} if value else None) if isinstance(value, list) else value


Nested = Annotated[NestedSettings | None, BeforeValidator(_as_nested)]


class Ensemble(Table):
    """Learners that look at one map through masks: `ensemble.num_heads=8` asks for one."""

    num_heads: int = Field(default=8, ge=1)
    masks_at: str = Field(default_factory=lambda: models.GOOGLENET[0])
    trunk_until: str = Field(default_factory=lambda: models.GOOGLENET[1])


class Adapter(Table):
    """Few parameters beside frozen pretrained layers (`models/lora.py`): `adapter=lora`. layers:
    their names, or words of them between dots; none: all that can be adapted."""

    name: Literal["lora"] = "lora"
    rank: int = Field(default=8, ge=1)
    alpha: float = Field(default=8.0, gt=0)
    layers: list[str] = []


class ShiftSettings(Table):
    """Which split of splits of growing shift (`protocols/shift.py`): `protocol=shift shift.step=5`.
    step: 1 is the smallest shift, 9 the largest. table: a file of `unseen data shift`; None: the
    stages is made of the data's features."""

    step: int = Field(ge=1, le=9)  # `evaluation/shift_splits.py` makes so many
    table: str | None = None


class Memory(Table):
    """Embeddings of earlier batches as references (cross-batch memory). size: how many. start_step:
    before it nothing is kept. weight: of the loss against them."""

    size: int = Field(default=1024, ge=1)
    start_step: int = Field(default=0, ge=0)
    weight: float = Field(default=1.0, gt=0)


class RelevanceSettings(Table):
    """What counts as the same (`core/relevance.py`). kind: auto is what the data say. by: further
    label
    columns to evaluate by, beside the class and its levels. least: the grade from which on two
    items
    are the same; none: 0.5, of label sets any. pairs: a table of pairs that are known to be the
    same or not. grades: a table of graded pairs, or a function, `./my.py:grade`."""

    kind: Literal["labels", "levels", "label_sets", "pairs", "graded"] | Auto = "auto"
    by: list[str] = []
    least: Annotated[float, Field(gt=0, le=1)] | None = None
    pairs: str | None = None
    grades: str | None = None

    @property
    def is_listed(self) -> bool:
        """Whether a table says which pairs there are."""
        by_function = self.grades is not None and custom_components.is_reference(self.grades)
        return self.pairs is not None or (self.grades is not None and not by_function)

    @property
    def from_grade(self) -> float:
        """The grade from which on two items are the same, of pairs and grades."""
        return 0.5 if self.least is None else self.least

    @model_validator(mode="after")
    def _one_of_them(self) -> "RelevanceSettings":
        if self.pairs is not None and self.grades is not None:
            raise ValueError("pairs and grades exclude each other: leave one of them out")
        for key, kind in (("pairs", "pairs"), ("grades", "graded")):
            value = getattr(self, key) is not None
            if value and self.kind not in ("auto", kind):
                raise ValueError(f"relevance.{key} means kind = {kind}, got {self.kind}")
            if self.kind == kind and not value:
                raise ValueError(f"relevance.kind={kind} needs relevance.{key}=FILE")
        return self


class MixupSettings(Table):
    """Manifold mixup: `manifold_mixup=true` asks for it. layers: where images are mixed, `input`
    or layers that everything passes through; None is all of these but the last. concentration: of
    the shares, from Beta(c, c)."""

    layers: Annotated[list[str], Field(min_length=1)] | None = None
    concentration: float = Field(default=2.0, gt=0)


def _as_mixup(value: Any) -> Any:
    """True and None are short for a table of defaults and for none."""
    return {} if value is True else False if value is None else value


Mixup = Annotated[MixupSettings | Literal[False], BeforeValidator(_as_mixup)]


class LabelNoiseSettings(Table):
    """Wrong training labels on purpose (`runs/label_noise.py`): `label_noise=0.2`."""

    fraction: float = Field(gt=0, lt=1)
    kind: Literal["symmetric", "small_cluster"] = "symmetric"


def _as_noise(value: Any) -> Any:
    """A number is the fraction; 0 is no noise, be it in a list of fractions."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    return {"fraction": float(value)} if value else None


LabelNoise = Annotated[LabelNoiseSettings | None, BeforeValidator(_as_noise)]


class LabelFilter(Table):
    """Items of a batch whose label looks wrong are left out (`training/prism.py`):
    `label_filter=prism`.
    fraction: of each batch. window: batches whose thresholds are averaged. size: of the memory.
    start_step: before it all items stay."""

    name: Literal["prism"] = "prism"
    fraction: float = Field(default=0.2, gt=0, lt=1)
    window: int = Field(default=30, ge=1)
    size: int = Field(default=8192, ge=1)
    start_step: int = Field(default=0, ge=0)


def is_on_maps(component: Component) -> bool:
    method = registry.find("regularizers", component.name)
    return "num_channels" in {p.name for p in registry.parameters(method)}


def weighted(component: WeightedComponent, in_ensemble: bool) -> WeightedComponent:
    """A regularizer with the weight of its source where it has none."""
    if component.weight is not None:
        return component
    result: Any = registry.find("regularizers", component.name)
    weight = getattr(result, "preset_weights", {}).get(component.preset)
    weight = getattr(result, "usual_weight", 1.0) if weight is None else weight
    if in_ensemble and hasattr(result, "weight_in_ensemble"):
        values = registry.entry("regularizers", component.name).defaults
        values |= (
            registry.preset_values("regularizers", component.name, component.preset)
            | component.values
        )
        weight = result.weight_in_ensemble(values)
    return component.model_copy(update={"weight": weight})


def usual_miner(losses: list[Component], chosen: Component) -> tuple[Component | None, str]:
    """The miner that goes with a loss and its preset, with the user's values for it; of a sum, with
    the first that has one."""
    for loss in losses:
        result: Any = registry.find("losses", loss.name)
        usual, preset = getattr(result, "usual_miner", None), loss.preset
        if loss.preset in getattr(result, "preset_miners", {}):
            usual, preset = result.preset_miners[loss.preset] or (None, None)
        if usual is not None:
            break
    if usual is None:
        for key in chosen.values:
            raise ValueError(f"{loss.name} has no usual miner: miner.{key} needs miner=<name> too")
        return None, f"{loss.name} needs none"
    presets = getattr(registry.find("miners", usual), "PRESETS", {})
    preset = chosen.preset or (preset if preset in presets else None)
    registry.check("miners", usual, chosen.values, preset)
    return Component(name=usual, preset=preset, **chosen.values), f"usual with {loss.name}"
