"""The plan of a run within its time budget: depth, image sizes and epochs."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from unseen.config.resolve import bigger_network, resolve
from unseen.config.schema import Config, depth_of
from unseen.config.stages import (
    BIGGER,
    FIRST,
    LAST,
    WHOLE,
    bigger_head,
    can_have_stages,
    cut_of_last_layers,
    full_low_lr,
)
from unseen.config.stages import last as last_stage
from unseen.config.stages import proxies as proxies_stage
from unseen.config.stages import whole as whole_stage
from unseen.config.tables import Stage
from unseen.core.reason import Reason
from unseen.evaluation.training_gain import USUAL_MINUTES
from unseen.models.backbone import backbone_info
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
    request = context.request
    assert request is not None, "a stored run is not planned again"
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
        None if fixed_size or request.training.depth == FIRST else bigger_network(request, config)
    )
    speeds = context.processes.agreed(lambda: measure(_as_deep(context), bigger))
    counts = (len(split.train), len(split.validation), len(split.test))
    other = None if bigger is None else (bigger, _own_size(bigger))
    work = Work(minutes, *counts, own, fixed_size, other, request.training.depth)
    result = plan(work, speeds)
    values: dict[str, Any] = {"time_budget": minutes, "image_size": result.size}
    values["stages"] = _stages(request, result, config.model.backbone)
    free = {"refit": True, "mirror": result.mirror}
    values |= {key: value for key, value in free.items() if key not in request.user_keys()}
    values["depth"] = WHOLE if WHOLE in result.stages else LAST if LAST in result.stages else FIRST
    resolved, reasons = resolve(request.with_values(values), context.dataset)
    data = [reason for reason in context.reasons if reason.key.startswith("data.")]
    of_plan = _reasons(
        work, result, speeds, values["depth"], is_usual=request.training.time_budget is None
    )
    return replace(context, config=resolved, reasons=data + reasons + of_plan, plan=of_plan)


def _own_size(backbone: str) -> int:
    return backbone_info(backbone).input_spec.size


def _as_deep(context: RunContext) -> RunContext:
    """With the processes and threads of a run that trains all layers, where it may."""
    assert context.request is not None
    if context.request.training.depth not in ("auto", WHOLE):
        return context
    trial, _ = resolve(context.request.with_values({"depth": WHOLE}), context.dataset)
    return replace(context, config=trial)


def _is_usual(request: Config) -> bool:
    """Nothing was said about how deep or how long to train."""
    return (
        "auto"
        == request.training.depth
        == request.model.frozen.freeze_until
        == request.training.epochs
        and not request.training.stages
    )


def _can_be_planned(context: RunContext, request: Config) -> bool:
    is_head = depth_of(context.config.model.frozen.freeze_until) == FIRST
    is_open = request.model.frozen.freeze_until == "auto" and not request.training.stages
    return is_head and is_open and can_have_stages(context.config)


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
    stages = proxies_stage(request) if {LAST, WHOLE} & result.stages.keys() else []
    for name, values in result.stages.items():
        if name == LAST:
            stages.append(last_stage(request, cut_of_last_layers(backbone, result.size), **values))
        elif name == WHOLE:
            stages.append(whole_stage(request, **values))
        elif name == BIGGER:
            stages.append(bigger_head(request, **values))
        else:
            stages += full_low_lr(request, stages[-1], **values)
    return stages


def _reasons(work: Work, result: Plan, speed: Speeds, depth: str, is_usual: bool) -> list[Reason]:
    size = result.stages.get(WHOLE, {}).get("training_sizes", [work.own])[-1]
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
    if work.depth in ("auto", WHOLE) and WHOLE not in result.stages:
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
        if WHOLE in plan(replace(work, minutes=minutes), speed).stages:
            return minutes
    return None
