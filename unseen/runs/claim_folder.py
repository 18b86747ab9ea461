"""Which folder a run gets: a free name, its own one again after a stop, never another run's."""

import itertools
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from unseen.config import schema as configs
from unseen.config.schema import ResolvedConfig
from unseen.config.stages import FULL
from unseen.core.custom_components import short_name
from unseen.core.files import InUseError
from unseen.core.names import by_front_end
from unseen.core.reason import Reason
from unseen.runs.prepare import RunContext, config_at_start, stored_config
from unseen.runs.run_items import changes_since
from unseen.training.run_folder import RunFolder

BY_MACHINE = (
    "device",
    "threads",
    "workers",
    "cpu_processes",
    "micro_batch",
)  # what "auto" resolves by where it runs
BY_PLAN = ("time_budget", "depth", "stages", "image_size", "mirror", "refit")  # `time_budget.py`
MOST = 3  # differences that a name says


def claimed(
    context: RunContext, out: Path | None, locks: ExitStack, accept_changes: bool = False
) -> Path:
    """The folder of a run, this process's alone as long as `locks` lives; a finished one is only
    read. A run with other settings is not touched: without `out` the next name is tried. A run that
    began with other items is an error, or passed over."""
    changes = ""
    for path in names(context, out):
        folder = RunFolder(path)
        changed = other_settings(folder, context)
        if result := other_items(folder, context, changed):
            changes = changes or result
            continue
        if not changed:
            if changes and not accept_changes and not folder.is_started:
                raise ValueError(
                    f"{changes}. {by_front_end('--accept-changes', 'accept_changes=True')} trains "
                    "a new run on them"
                )
            if is_done(folder):
                return path
            purpose = as_stored(context, folder).config.hash()
            try:
                lock = locks.enter_context(ExitStack())
                lock.enter_context(folder.lock(purpose))
            except InUseError as error:
                if path == out or (error.owner is not None and error.owner.purpose == purpose):
                    raise
                continue
            if not (changed := other_settings(folder, context)):  # nobody was faster
                return path
            lock.close()
        if path == out:
            raise ValueError(
                f"{path} holds a run with other settings ({', '.join(changed)}): "
                f"choose another {by_front_end('--out', 'out')}"
            )
    raise AssertionError("names never end")


def as_stored(context: RunContext, folder: RunFolder) -> RunContext:
    """A run goes on with what "auto" was resolved to where it began, on whatever machine."""
    if context.request is None or not folder.is_started:
        return context
    stored, request = config_at_start(folder).flat(), context.request.flat()
    same = {key: stored[key] for key in BY_MACHINE if request[key] == "auto"}
    plan_at_start: Sequence[Reason] = ()
    if context.config.training.time_budget is not None:
        plan_at_start = folder.manifest().plan or ()
        user_keys = {key for key in context.request.user_keys() if request[key] != stored[key]}
        if request["depth"] == FULL and any(reason.key == "depth" for reason in plan_at_start):
            user_keys.discard("depth")
        same |= {key: stored[key] for key in BY_PLAN if key not in user_keys}
    now = context.config.flat()
    differing = {k: v for k, v in same.items() if now[k] != v}
    if differing.get("device") and not torch.cuda.is_available():
        raise ValueError(
            f"{folder.path} was trained on {same['device']}, which is not here: go on where there "
            f"is one, or start anew with another {by_front_end('--out', 'out')}"
        )
    reasons = [reason for reason in context.reasons if reason.key not in differing]
    plan = context.plan
    if "stages" in differing:  # what this machine would plan today is of no use
        plan = plan_at_start
        reasons = [reason for reason in reasons if reason not in context.plan] + list(plan)
    explained = {"stages", *(reason.key for reason in plan)}
    reasons += [
        Reason(key, value, "as when the run began")
        for key, value in differing.items()
        if key not in explained
    ]
    config = configs.make_resolved(now | differing)
    return replace(context, config=config, reasons=reasons, plan=plan)


def is_done(folder: RunFolder) -> bool:
    """Finished, and whole: a damaged network is restored, as after a stop."""
    return folder.is_finished and folder.is_whole


def other_items(folder: RunFolder, context: RunContext, changed: list[str]) -> str:
    """What has become of the items of a stored run, if nothing else is different: what "auto" is
    resolved to depends on the items."""
    request = context.request or context.config
    if not folder.is_started or any(request.flat()[key] != "auto" for key in changed):
        return ""
    return changes_since(folder, context.dataset)


def changed_keys(folder: RunFolder, config: ResolvedConfig) -> list[str]:
    """Keys whose values differ between a stored run and a config."""
    stored, now = config_at_start(folder).flat(), config.flat()
    return [key for key in now if stored[key] != now[key]]


def other_settings(folder: RunFolder, context: RunContext) -> list[str]:
    """Keys in which a stored run differs from one that would go on with it."""
    if not folder.is_started:
        return []
    return changed_keys(folder, as_stored(context, folder).config)


def names(context: RunContext, out: Path | None) -> Iterator[Path]:
    """`out`, or a name by data, loss and seed; then one that says in what it differs from the run
    of that name (`birds-margin-seed0-lr0.0003-epochs5`), then numbers."""
    config = context.config
    root = config.data.values.get("root", short_name(config.data.name))
    path = Path(str(root)).resolve()
    data = path.name if path.is_dir() else path.stem
    loss = config.loss_name.replace(":", "_")
    first = out or Path("runs") / f"{data}-{loss}-seed{config.training.seed}"
    yield first
    base = first.with_name(f"{first.name}{_difference(RunFolder(first), context)}")
    if base != first:
        numbered = (first.with_name(f"{first.name}-{number}") for number in itertools.count(2))
        yield from itertools.takewhile(Path.exists, numbered)
        yield base
    for number in itertools.count(2):
        yield base.with_name(f"{base.name}-{number}")


def _difference(folder: RunFolder, context: RunContext) -> str:
    """A few keys with their values, as they may stand in a file's name; "" where too much differs,
    or nothing that can be said so."""
    if not folder.is_started:
        return ""
    stored, now, words = stored_config(folder).flat(), context.config.flat(), []
    for key in other_settings(folder, context):
        words += _changed_values(key, stored.get(key), now[key])
    plain = [word for word in words if re.fullmatch(r"[\w.,+-]{1,30}", word)]
    return "".join(f"-{word}" for word in words) if 0 < len(plain) == len(words) <= MOST else ""


def _changed_values(key: str, before: Any, now: Any) -> list[str]:
    """Of a table (loss.alpha), each value by its own name."""
    if not isinstance(now, dict):
        return [f"{key}{now}"] if isinstance(now, str | int | float) else [f"{key}?"]
    old = before if isinstance(before, dict) else {}
    changed = {name: value for name, value in now.items() if old.get(name) != value}
    return [word for name, value in changed.items() for word in _changed_values(name, None, value)]
