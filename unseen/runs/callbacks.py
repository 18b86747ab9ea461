"""What a training does beside its steps: validation, early stopping, checkpoints."""

import json
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from torch import Tensor

from unseen.config import build
from unseen.core.contracts import IntArray
from unseen.evaluation.evaluate import evaluate
from unseen.models.weights import packed
from unseen.runs.evaluate_layers import named_layers, recall_by_layer
from unseen.runs.prepare import RunContext
from unseen.runs.run_items import some_classes
from unseen.runs.run_networks import START_FILE, saves_start
from unseen.runs.select_epoch import (
    FULL_PATIENCE,
    SELECT_BY,
    START,
    TIE_BY,
    Selector,
    too_few_to_select,
)
from unseen.training.checkpoint import Checkpoints
from unseen.training.distributed import Processes
from unseen.training.events import Epoch, Resumed, Start, StoppedEarly
from unseen.training.json_files import parsed, spelled
from unseen.training.run_folder import SELECTED, RunFolder
from unseen.training.selected_weights import FILE as SELECTION
from unseen.training.selected_weights import Selection, write_selection
from unseen.training.step_checks import collapse

if TYPE_CHECKING:
    from unseen.runs.training_loop import TrainingLoop

SECONDS_BETWEEN_CHECKPOINTS = 60.0
Validated = TypeVar("Validated", Start, Epoch)


class LoopCallback:
    """Each method here does nothing: a callback overrides those it needs.

    The loop calls its callbacks in the order of its list. All processes of a run call the same
    methods after the same steps.
    """

    def on_start(self, loop: "TrainingLoop", is_new: bool) -> None:
        """Before any image is read. is_new: no step was taken before."""

    def before_epoch(self, loop: "TrainingLoop") -> None:
        """Before the steps of each epoch."""

    def on_step(self, loop: "TrainingLoop") -> None:
        """After a complete step."""

    def on_epoch(self, loop: "TrainingLoop", event: Epoch) -> Epoch:
        """After the steps of an epoch; returns its event, with what there is to add."""
        return event

    def after_epoch(self, loop: "TrainingLoop") -> None:
        """When the event of an epoch has been logged."""

    def is_over(self, loop: "TrainingLoop") -> bool:
        """Whether training is to end before its last epoch."""
        return False

    def on_end(self, loop: "TrainingLoop") -> None:
        """After the last epoch."""

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint holds of the callback."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resumes from a checkpoint."""


class Validation(LoopCallback):
    """Compares epochs by the classes to select on, and has the best weights kept.

    What training begins with is a candidate like every epoch. Scores on as many training classes
    show how far training and unseen classes are apart; `monitor = "test"` adds the test classes,
    which select nothing.
    """

    def __init__(self, context: RunContext, folder: RunFolder) -> None:
        config, dataset, split = context.config, context.dataset, context.split
        self.context, self.folder = context, folder
        validation, seed = config.training.validation, config.training.seed
        self.selected_on = split.validation if validation.select == "validation" else split.test
        self.monitored = some_classes(split.train, dataset.labels, len(self.selected_on), seed)
        if (most := validation.validation_images) is not None:
            few = partial(some_classes, labels=dataset.labels, number=most, seed=seed)
            both = (self.monitored, self.selected_on)
            self.monitored, self.selected_on = (few(i) if len(i) > most else i for i in both)
        self.items = {"train": self.monitored, validation.select: self.selected_on}
        if validation.monitor == "test":  # last: the others are evaluated as without it
            self.items["test"] = split.test
        selecting = len(np.unique(dataset.labels[self.selected_on]))
        self.selector = Selector(validation.select, selecting, validation.select_by)
        self._written: Selection | None = None

    def on_start(self, loop: "TrainingLoop", is_new: bool) -> None:
        if is_new and (advice := too_few_to_select(self.context)) is not None:
            loop.warn(advice)

    def validate_start(self, loop: "TrainingLoop") -> None:
        """Scores of the network before its first step."""
        loop.log(self._select(loop, self._with_scores(loop, Start())))

    def on_epoch(self, loop: "TrainingLoop", event: Epoch) -> Epoch:
        if not loop.is_validated(event.epoch):
            return event
        with loop.trainer.averaged():
            event, every = (
                self._with_scores(loop, event),
                self.context.config.training.validation.layers_every,
            )
            if every and (event.epoch + 1) % every == 0:
                event = replace(event, layers=self._layers(loop))
            return self._select(loop, event)

    def write_selection(self) -> None:
        """Unless the folder holds it."""
        if self.selector.best != self._written:
            write_selection(self.folder, self.selector.best)
            self._written = self.selector.best

    def state_dict(self) -> dict[str, Any]:
        return {"best": spelled(self.selector.best), "selection": self.selector.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        best = parsed(Selection, json.dumps(state["best"]), str(self.folder.file("checkpoint")))
        self.selector.go_on(best, state["selection"])
        if self.folder.holds(SELECTION):  # by now it may say more: stages, the layer
            self._written = best

    def has_best(self, state: Mapping[str, Any]) -> bool:
        """Whether weights had been selected when a checkpoint was written."""
        return bool(state["best"]["value"] >= 0)

    def _select(self, loop: "TrainingLoop", event: Validated) -> Validated:
        """With whether it is the best so far, which is kept."""
        taken = self.selector.takes(
            event.epoch, getattr(event, self.context.config.training.validation.select)
        )
        if taken:
            loop.checkpointing.keep(loop)
        is_best = taken and not self.selector.keeps_last
        return replace(event, best=is_best, by=self.selector.by if is_best else None)

    def _with_scores(self, loop: "TrainingLoop", event: Validated) -> Validated:
        """With scores of each part; a collapsed space is warned about."""
        config = self.context.config
        if config.training.validation.select == "test":
            self.folder.note_test_read(f"selection, epoch {event.epoch + 1}", config.hash())
        elif "test" in self.items:
            self.folder.note_test_read(f"watched, epoch {event.epoch + 1}", config.hash())
        scores: dict[str, Any] = {}
        for name, items in self.items.items():
            embeddings = loop.source.embed(items, layer=loop.layer)
            scores[name] = (getattr(event, name) or {}) | self._scores(embeddings, items)
        if event.epoch != START and (advice := collapse(embeddings)) is not None:
            loop.warn(f"epoch {event.epoch + 1}: {advice}")
        return replace(event, **scores)

    def _layers(self, loop: "TrainingLoop") -> dict[str, dict[str, float]]:
        """Recall of every usual layer on each part."""
        context, network = self.context, loop.network
        _, transform = build.image_transforms(context.config, network)
        layers = named_layers(context, network, transform)
        return {
            name: recall_by_layer(context, network, transform, layers, items)
            for name, items in self.items.items()
        }

    def _scores(self, embeddings: Tensor, items: IntArray) -> dict[str, float]:
        """What epochs are compared by, without intervals."""
        request = self.context.retrieval_task(items).arguments(embeddings)
        normalize = self.context.config.evaluation.normalize
        metrics = (SELECT_BY, TIE_BY) if items is self.selected_on else (SELECT_BY,)

        def scores() -> dict[str, float]:
            score = evaluate(
                **request, metrics=metrics, normalize=normalize, resamples=0, non_finite="worst"
            )
            if not score.counts["queries"]:
                raise ValueError(
                    f"none of {len(items)} items can be found: nothing else of their class answers "
                    "them. Do the ignore groups hold whole classes?"
                )
            return {metric: score.values[metric].value for metric in metrics}

        return self.context.processes.agreed(scores)


class EarlyStopping(LoopCallback):
    """Three rules: no better epoch within `patience`; with `gain_by`, no gain over the start by
    then; and no way to reach `goal`, at the rate of the gain so far.

    Args:
        selector: What the epochs are compared by.
        goal: Scores that a later stage has to surpass.
    """

    def __init__(self, selector: Selector, goal: dict[str, float] | None = None) -> None:
        self.selector, self.goal = selector, goal

    def is_over(self, loop: "TrainingLoop") -> bool:
        config, selector = loop.context.config, self.selector
        patience, waited = (
            config.training.validation.patience,
            loop.trainer.place.epoch - 1 - selector.best.epoch,
        )
        if patience is None and selector.is_full:
            patience = FULL_PATIENCE * config.training.validation.validate_every
        is_stale = patience is not None and waited >= patience and not selector.keeps_last
        is_behind = self._is_due(loop) and (selector.is_behind or self._falls_short(loop))
        return is_stale or is_behind

    def on_end(self, loop: "TrainingLoop") -> None:
        epochs, selector = loop.trainer.place.epoch, self.selector
        if epochs < loop.epochs and selector.best.stopped_after is None:
            best = selector.best = replace(selector.best, stopped_after=epochs)
            is_full = loop.context.config.training.validation.patience is None and selector.is_full
            is_short = self._is_due(loop) and self._falls_short(loop)
            loop.log(StoppedEarly(epochs, best.epoch, is_full or None, is_short or None))

    def _is_due(self, loop: "TrainingLoop") -> bool:
        """Whether training has just been validated, and should have gained by now."""
        gain_by, epoch = loop.context.config.training.validation.gain_by, loop.trainer.place.epoch
        return gain_by is not None and epoch >= gain_by and loop.is_validated(epoch - 1)

    def _falls_short(self, loop: "TrainingLoop") -> bool:
        done, waited = loop.trainer.place.epoch, loop.context.config.optimizer.schedule.warm_up
        if self.goal is None or done <= waited:
            return False
        return self.selector.falls_short(self.goal, (loop.epochs - done) / (done - waited))


class Checkpointing(LoopCallback):
    """Writes the selected weights and where training stands, every minute and at the end.

    Between two checkpoints the selected weights wait in memory. A resumed training repeats the
    epochs since its checkpoint, which gives the same weights again.
    """

    def __init__(self, folder: RunFolder, processes: Processes, sharded: bool) -> None:
        self.folder = folder
        self.checkpoints = Checkpoints(folder.file("checkpoint"), processes, sharded)
        self.saved_at = time.monotonic()
        self._waiting: dict[str, bytes] = {}

    def keep(self, loop: "TrainingLoop") -> None:
        """Takes the network and its objective as they are now for the run's result."""
        states: tuple[Mapping[str, Tensor], ...]
        states = (loop.network.state_dict(), loop.trainer.objective_state())
        if self.folder.writes:
            self._waiting = {n: packed(state) for n, state in zip(SELECTED, states, strict=True)}

    def on_step(self, loop: "TrainingLoop") -> None:
        self._save_if_due(loop)

    def after_epoch(self, loop: "TrainingLoop") -> None:
        self._save_if_due(loop)

    def on_end(self, loop: "TrainingLoop") -> None:
        self._save(loop)

    def _save_if_due(self, loop: "TrainingLoop") -> None:
        is_due = time.monotonic() - self.saved_at > SECONDS_BETWEEN_CHECKPOINTS
        if self.checkpoints.sharded:  # all write, so all must at the same step
            is_due = self.folder.processes.agreed(lambda: is_due)
        if is_due:
            self._save(loop)

    def _save(self, loop: "TrainingLoop") -> None:
        for name, content in self._waiting.items():
            self.folder.write_bytes(name, content)
        if loop.validation is not None:
            loop.validation.write_selection()
        self._waiting = {}
        self.checkpoints.save(loop.trainer.place.step, self._state(loop))
        self.saved_at = time.monotonic()

    def _state(self, loop: "TrainingLoop") -> dict[str, Any]:
        state = {
            "trainer": loop.trainer.state_dict(),
            "sampler": loop.sampler.state_dict(),
            "event_log": loop.event_log.size(),
        }
        return state if loop.validation is None else state | loop.validation.state_dict()

    def resume(self, loop: "TrainingLoop") -> int:
        """Loads the newest whole checkpoint; returns how much of the event log belongs to it."""
        warn = loop.callbacks.warn
        state = self.checkpoints.newest(warn)
        if state is None:
            return 0
        step = state["trainer"]["place"]["step"]
        has_best = loop.validation is not None and loop.validation.has_best(state)
        has_start = step > 0 and saves_start(loop.context.config)
        needed = [*(SELECTED if has_best else ()), *([START_FILE] if has_start else ())]
        if damaged := self.folder.damaged(needed):
            warn(
                f"{', '.join(damaged)} of {self.folder.path} cannot be read: training starts "
                "anew, which gives the same result"
            )
            if self.folder.writes:
                self.checkpoints.clear()
            return 0
        loop.trainer.load_state_dict(state["trainer"])
        loop.sampler.load_state_dict(state["sampler"])
        if loop.validation is not None:
            loop.validation.load_state_dict(state)
        loop.callbacks.log(Resumed(loop.trainer.place.epoch, step))
        return int(state["event_log"])
