"""A run that ends within its minutes: depth, picture sizes, epochs by what the machine does.

The machine is measured (`speed.py`) and the longest training that fits is found (`planner.py`).
What the user gave holds. The plan becomes part of the settled config, so that a run repeats without
the clock; where the machine turns out slower than measured, `clock.py` shortens it.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from unseen.config import Config, depth_of
from unseen.config_tables import Rung
from unseen.experiment.planner import Plan, Work, plan
from unseen.experiment.run_context import NO_TIME, RunContext
from unseen.experiment.speed import Speeds, speeds_of
from unseen.networks.backbone import backbone_facts
from unseen.rungs import FIRST, LARGER, LAST, WHOLE, can_climb, cut_of_last_layers
from unseen.rungs import gentle as gentle_rungs
from unseen.rungs import larger as larger_rung
from unseen.rungs import last as last_rung
from unseen.rungs import proxies as proxies_rung
from unseen.rungs import whole as whole_rung
from unseen.settle import larger_network, settle

MINUTES = 20.0  # for photographs, unless given
CLASSES, PICTURES = 5, 400  # to validate and to train on; fewer do not say whether depth pays
MORE = 1.25  # times the minutes: the next to be tried for the whole network
ROUNDED = 0.5  # minutes: what rounding may add to the sum of the steps


def planned(
    context: RunContext, measure: Callable[[RunContext, str | None], Speeds] = speeds_of
) -> RunContext:
    """A run with its plan: of photographs that a network knows, and where a budget was given."""
    asked = context.asked
    assert asked is not None, "a stored run is not planned again"
    minutes = asked.minutes
    if minutes is None and "minutes" not in asked.model_fields_set and _is_usual(asked):
        minutes = MINUTES
    if minutes is None or not _can_be_planned(context, asked):
        return context
    if asked.depth == "auto" and (few := _too_few(context)):
        return replace(context, reasons=[*context.reasons, f"depth = head: {few}"])
    config, split = context.config, context.split
    own = _own_size(config.backbone)
    given = asked.picture_size if isinstance(asked.picture_size, int) else None
    if context.device.type != "cpu":  # no need to make pictures smaller than a network wants them
        given = given or own
    larger = None if given or asked.depth == FIRST else larger_network(asked, config)
    made = context.processes.agreed(lambda: measure(_as_deep(context), larger))
    counts = (len(split.train), len(split.validation), len(split.test))
    other = None if larger is None else (larger, _own_size(larger))
    work = Work(minutes, *counts, own, given, other, asked.depth)
    found = plan(work, made)
    values: dict[str, Any] = {"minutes": minutes, "picture_size": found.size}
    values["ladder"] = _rungs(asked, found, config.backbone)
    free = {"refit": True, "mirror": found.mirror}
    values |= {key: value for key, value in free.items() if key not in asked.model_fields_set}
    values["depth"] = WHOLE if WHOLE in found.rungs else LAST if LAST in found.rungs else FIRST
    settled, reasons = settle(asked.model_copy(update=values), context.dataset)
    data = [line for line in context.reasons if line.startswith("data.")]
    told = _reasons(work, found, made, is_usual=asked.minutes is None)
    return replace(context, config=settled, reasons=data + reasons + told, plan=told)


def _own_size(backbone: str) -> int:
    return backbone_facts(backbone).input_spec.size


def _as_deep(context: RunContext) -> RunContext:
    """With the processes and threads of a run that trains all layers, where it may."""
    assert context.asked is not None
    if context.asked.depth not in ("auto", WHOLE):
        return context
    trial, _ = settle(context.asked.model_copy(update={"depth": WHOLE}), context.dataset)
    return replace(context, config=trial)


def _is_usual(asked: Config) -> bool:
    """Nothing was said about how deep or how long to train."""
    return "auto" == asked.depth == asked.freeze_until == asked.epochs and not asked.ladder


def _can_be_planned(context: RunContext, asked: Config) -> bool:
    is_head = depth_of(context.config.freeze_until) == FIRST
    is_open = asked.freeze_until == "auto" and not asked.ladder
    return is_head and is_open and can_climb(context.config)


def _too_few(context: RunContext) -> str:
    """Why these data do not say whether depth pays, in words; nothing where they do."""
    split = context.split
    classes, pictures = len(np.unique(context.dataset.labels[split.validation])), len(split.train)
    if classes >= CLASSES and pictures >= PICTURES:
        return ""
    return (
        f"{classes:,} validation classes and {pictures:,} training pictures do not say whether "
        f"more pays, {CLASSES} and {PICTURES} would"
    )


def _rungs(asked: Config, found: Plan, backbone: str) -> list[Rung]:
    """In the order they are climbed."""
    made = proxies_rung(asked) if {LAST, WHOLE} & found.rungs.keys() else []
    for name, values in found.rungs.items():
        if name == LAST:
            made.append(last_rung(asked, cut_of_last_layers(backbone, found.size), **values))
        elif name == WHOLE:
            made.append(whole_rung(asked, **values))
        elif name == LARGER:
            made.append(larger_rung(asked, **values))
        else:
            made += gentle_rungs(asked, made[-1], **values)
    return made


def _reasons(work: Work, found: Plan, speed: Speeds, is_usual: bool) -> list[str]:
    size = found.rungs.get(WHOLE, {}).get("training_sizes", [work.own])[-1]
    embeds, trains = (
        f"{1 / line.at(at):,.0f}" for line, at in ((speed.embed, work.own), (speed.train, size))
    )
    why = "unless given, minutes=none trains the head alone" if is_usual else "as asked"
    steps = ", ".join(f"{name} {minutes:g}" for name, minutes in found.steps.items())
    is_longer = sum(found.steps.values()) > found.minutes + ROUNDED
    lines = [
        f"minutes = {work.minutes:g}: {why}",
        f"speed: {embeds} pictures/s embedded at {work.own} px, {trains} trained at {size} px"
        + (" in bf16" if speed.bf16 else ""),
        f"plan: {steps} minutes{'; not all of them come' if is_longer else ''}, "
        f"{found.minutes:.1f} of {work.minutes:g} at most",
    ]
    if work.depth in ("auto", WHOLE) and WHOLE not in found.rungs:
        lines.append(f"{NO_TIME}{_enough(work, speed)}")
    if found.minutes > work.minutes:
        lines.append(f"plan: {work.minutes:g} minutes are too few for so many pictures")
    return lines


def _enough(work: Work, speed: Speeds) -> str:
    """How many minutes would do for the whole network, in words; nothing where that is days."""
    for minutes in (round(work.minutes * MORE**power) for power in range(1, 20)):
        if WHOLE in plan(replace(work, minutes=minutes), speed).rungs:
            return f", about {minutes} minutes would do"
    return ""
