"""The plan of a run within its time budget: depth, image sizes and epochs."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from unseen.config.resolve import FAMILY, ResolvedKeys
from unseen.config.schema import Config, ResolvedConfig, depth_of
from unseen.config.stages import (
    BIGGER,
    FIRST,
    FULL,
    LAST_LAYERS,
    bigger_head_stage,
    can_have_stages,
    full_low_lr_stages,
    full_stage,
    last_layers_freeze_point,
    last_layers_stage,
    proxies_stage,
)
from unseen.config.tables import Stage
from unseen.core.reason import Reason
from unseen.data.images.transforms import USER_TRANSFORM
from unseen.evaluation.training_gain import USUAL_MINUTES
from unseen.models.backbone import IMAGENET, backbone_info, has_weights
from unseen.runs.prepare import RunContext
from unseen.runs.speed import Speeds, speeds_of
from unseen.runs.time_plan import Plan, Work, plan
from unseen.runs.time_spent import ENOUGH

CLASSES, IMAGES = 5, 400  # to validate and to train on; fewer do not say whether depth pays
MORE = 1.25  # times the minutes: the next to be tried for the whole network
ROUNDED = 0.5  # minutes: what rounding may add to the sum of the steps


def planned(
    context: RunContext, measure: Callable[[RunContext, str | None], Speeds] = speeds_of
) -> RunContext:
    """A run with its plan: of photographs that a network knows, and where a budget was given.

    `speed.py` measures the machine, `time_plan.py` finds the longest training that fits. What
    the user set stays. The plan becomes part of the resolved config, so that a run repeats
    without a timer; where the machine is slower than measured, `time_spent.py` shortens the
    training.
    """
    request, keys = context.request, context.keys
    assert request is not None, "a stored run is not planned again"
    assert keys is not None, "nor one whose config was given"
    minutes = request.training.time_budget
    if minutes is None and "time_budget" not in request.user_keys() and _is_usual(request):
        minutes = USUAL_MINUTES  # for photographs, unless given
    if minutes is None or not _can_be_planned(context, request):
        return context
    if request.training.depth == "auto" and (few := _too_few(context)):
        return replace(context, reasons=[*context.reasons, Reason("depth", FIRST, few)])
    config, split = context.config, context.split
    own = _own_size(config.model.backbone)
    fixed_size = request.data.image_size if isinstance(request.data.image_size, int) else None
    if context.device.type != "cpu":  # no need to make images smaller than a network wants them
        fixed_size = fixed_size or own
    bigger = (
        None if fixed_size or request.training.depth == FIRST else _bigger_network(request, config)
    )
    speeds = context.processes.agreed(lambda: measure(_as_deep(context, keys), bigger))
    counts = (len(split.train), len(split.validation), len(split.test))
    other = None if bigger is None else (bigger, _own_size(bigger))
    work = Work(minutes, *counts, own, fixed_size, other, request.training.depth)
    result = plan(work, speeds)
    values: dict[str, Any] = {"time_budget": minutes, "image_size": result.size}
    values["stages"] = _stages(request, result, config.model.backbone)
    free = {"refit": True, "mirror": result.mirror}
    values |= {key: value for key, value in free.items() if key not in request.user_keys()}
    values["depth"] = next((name for name in (FULL, LAST_LAYERS) if name in result.stages), FIRST)
    resolved, reasons = keys.with_values(values).complete()
    data = [reason for reason in context.reasons if reason.key.startswith("data.")]
    of_plan = _reasons(
        work, result, speeds, values["depth"], is_usual=request.training.time_budget is None
    )
    return replace(context, config=resolved, reasons=data + reasons + of_plan, plan=of_plan)


def _bigger_network(config: Config, resolved: ResolvedConfig) -> str | None:
    """The largest of its family with weights, for who has named none; None: there is no larger."""
    model = resolved.model
    is_named = config.model.backbone != "auto"
    if is_named or model.weights != IMAGENET or model.backbone not in FAMILY:
        return None
    bigger = FAMILY[FAMILY.index(model.backbone) + 1 :]
    return next((name for name in reversed(bigger) if has_weights(name)), None)


def _own_size(backbone: str) -> int:
    return backbone_info(backbone).input_spec.size


def _as_deep(context: RunContext, keys: ResolvedKeys) -> RunContext:
    """With the processes and threads of a run that trains all layers, where it may."""
    if keys.request.training.depth not in ("auto", FULL):
        return context
    return replace(context, config=keys.with_values({"depth": FULL}).complete()[0])


def _is_usual(request: Config) -> bool:
    """Nothing was said about how deep or how long to train."""
    values = request.flat()
    is_open = all(values[key] == "auto" for key in ("depth", "freeze_until", "epochs"))
    return is_open and not request.training.stages


def _can_be_planned(context: RunContext, request: Config) -> bool:
    is_head = depth_of(context.config.model.frozen.freeze_until) == FIRST
    is_open = request.model.frozen.freeze_until == "auto" and not request.training.stages
    has_own_tensors = context.config.data.transform.name == USER_TRANSFORM  # of one size
    return is_head and is_open and not has_own_tensors and can_have_stages(context.config)


def _too_few(context: RunContext) -> str:
    """Why these data do not say whether depth pays, in words; nothing where they do."""
    split = context.split
    classes, images = len(np.unique(context.dataset.labels[split.validation])), len(split.train)
    if classes >= CLASSES and images >= IMAGES:
        return ""
    return (
        f"{classes:,} validation classes and {images:,} training images do not say whether "
        f"more pays, {CLASSES} and {IMAGES} would"
    )


def _stages(request: Config, result: Plan, backbone: str) -> list[Stage]:
    """In the order in which they run."""
    stages = proxies_stage(request) if {LAST_LAYERS, FULL} & result.stages.keys() else []
    for name, values in result.stages.items():
        if name == LAST_LAYERS:
            point = last_layers_freeze_point(backbone, result.size)
            stages.append(last_layers_stage(request, point, **values))
        elif name == FULL:
            stages.append(full_stage(request, **values))
        elif name == BIGGER:
            stages.append(bigger_head_stage(request, **values))
        else:
            stages += full_low_lr_stages(request, stages[-1], **values)
    return stages


def _reasons(work: Work, result: Plan, speed: Speeds, depth: str, is_usual: bool) -> list[Reason]:
    size = result.stages.get(FULL, {}).get("training_sizes", [work.own])[-1]
    embeds, trains = (
        f"{1 / line.at(at):,.0f}" for line, at in ((speed.embed, work.own), (speed.train, size))
    )
    why = "unless given, time_budget=none trains the head alone" if is_usual else "as asked"
    steps = ", ".join(f"{name} {minutes:g}" for name, minutes in result.steps.items())
    is_longer = sum(result.steps.values()) > result.minutes + ROUNDED
    rate = f"{embeds} images/s embedded at {work.own} px, {trains} trained at {size} px" + (
        " in bf16" if speed.bf16 else ""
    )
    sums = (
        f"{steps} minutes{'; not all of them come' if is_longer else ''}, "
        f"{result.minutes:.1f} of {work.minutes:g} at most"
    )
    reasons = [
        Reason("time_budget", work.minutes, why),
        Reason("speed", "", rate),
        Reason("plan", "", sums),
    ]
    if work.fixed_size is None and result.size < work.own:
        why = f"the head's images fit the time budget; its network is made for {work.own}"
        reasons.append(Reason("image_size", result.size, why))
    if work.depth in ("auto", FULL) and FULL not in result.stages:
        reasons.append(Reason("depth", depth, "no time for the whole network"))
        if (enough := _enough(work, speed)) is not None:
            reasons.append(Reason(ENOUGH, enough, "minutes that would do"))
    if result.minutes > work.minutes:
        reasons.append(
            Reason("plan", "", f"{work.minutes:g} minutes are too few for so many images")
        )
    return reasons


def _enough(work: Work, speed: Speeds) -> int | None:
    """How many minutes would do for the whole network; None where that is days."""
    for minutes in (round(work.minutes * MORE**power) for power in range(1, 20)):
        if FULL in plan(replace(work, minutes=minutes), speed).stages:
            return minutes
    return None
