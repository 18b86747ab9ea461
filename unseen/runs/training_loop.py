"""The training loop: epochs, validation and selection, checkpoints, the event log."""

import json
import shlex
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from torch import Tensor

from unseen import runs
from unseen.config import build
from unseen.core.contracts import EmbeddedSampler, IntArray
from unseen.evaluation.evaluate import evaluate
from unseen.models.descriptor import described
from unseen.models.network import EMBEDDING, EmbeddingNetwork
from unseen.runs.batch_source import source_of
from unseen.runs.evaluate_layers import BEST, named_layers, recall_by_layer
from unseen.runs.initial_network import FILE as START_FILE
from unseen.runs.initial_network import save_start, saves_start
from unseen.runs.order_descriptor import while_training
from unseen.runs.prepare import Callbacks, RunContext, sampler_of
from unseen.runs.select_epoch import (
    FULL_PATIENCE,
    SELECT_BY,
    START,
    TIE_BY,
    Selector,
    too_few_to_select,
)
from unseen.runs.time_spent import Length
from unseen.runs.training_classes import some_classes, training_classes
from unseen.training import loggers
from unseen.training.checkpoint import Checkpoints
from unseen.training.event_log import EventLog, read
from unseen.training.events import (
    Epoch,
    LoggedEvent,
    Resumed,
    Start,
    Step,
    StoppedEarly,
    Unreadable,
    Warned,
)
from unseen.training.guards import NonFiniteStepError, collapse
from unseen.training.json_files import parsed, spelled
from unseen.training.run_folder import RunFolder
from unseen.training.selected_weights import FILE as SELECTION
from unseen.training.selected_weights import Selection, write_selection

SECONDS_BETWEEN_CHECKPOINTS = 60.0
Validated = TypeVar("Validated", Start, Epoch)


class TrainingLoop:
    """A run in training: what is on disk follows what is in memory. Of several processes the first
    writes and decides; all are in the same state.

    The newest intact checkpoint is taken up again, and the event log cut back to it.
    Checkpoints are written after every epoch and every minute: how often changes only how much
    is repeated after a crash.
    """

    def __init__(
        self,
        context: RunContext,
        folder: RunFolder,
        callbacks: Callbacks,
        epochs: int | None = None,
        start: Callable[[build.Components], None] | None = None,
        length: Length | None = None,
    ) -> None:
        """epochs: trains for so many and keeps the last weights; None: as the config says, keeping
        the best ones. start: puts other starting values into what was built. length: may end
        it earlier than planned."""
        config, dataset, split = context.config, context.dataset, context.split
        self.context, self.folder, self.callbacks = context, folder, callbacks
        self.epochs = config.training.epochs if epochs is None else epochs
        self.selects = epochs is None
        loggers.check(config.training.loggers)
        self.sampler = sampler_of(context)
        self.class_of = training_classes(context.training_labels, split.train)
        num_classes = int(self.class_of.max()) + 1
        components = build.build(
            config, num_classes, len(self.sampler), context.processes, context.relevance
        )
        self.network, self.trainer = components.network, components.trainer
        self.has_start, self.length = start is not None, length
        if start is not None:  # before the frozen layers are asked who they are
            start(components)
            if self.trainer.average is not None:
                self.trainer.average.restart()
        # epochs are compared by the run's descriptor; "best" is only known after the last one
        layer = config.evaluation.descriptor
        self.layer = EMBEDDING if layer == BEST else while_training(layer)
        described(self.network, self.layer)  # a layer that does not exist or run is refused here
        self.source = source_of(
            context, self.network, callbacks, (components.frozen, components.model)
        )
        if isinstance(self.sampler, EmbeddedSampler):
            self.trainer.embedded.append(self.sampler.update)
        validation, seed = config.training.validation, config.training.seed
        self.selected_on = split.validation if validation.select == "validation" else split.test
        self.monitored = some_classes(split.train, dataset.labels, len(self.selected_on), seed)
        if (most := validation.validation_images) is not None:
            few = partial(some_classes, labels=dataset.labels, number=most, seed=seed)
            both = (self.monitored, self.selected_on)
            self.monitored, self.selected_on = (few(i) if len(i) > most else i for i in both)
        self.validated_on = {"train": self.monitored, validation.select: self.selected_on}
        if validation.monitor == "test":  # last: the others are looked at as without it
            self.validated_on["test"] = split.test
        selecting = len(np.unique(dataset.labels[self.selected_on]))
        self.selector = Selector(
            config.training.validation.select, selecting, config.training.validation.select_by
        )
        self.checkpoints = Checkpoints(
            folder.file("checkpoint"), context.processes, self.trainer.is_sharded
        )
        self.saved_at = time.monotonic()

    def run(self, goal: dict[str, float] | None = None) -> Selection:
        """Trains for all epochs, keeps the weights that were best on the classes to select on.
        goal: scores to be surpassed; where `gain_by` is set, one that will not do so ends."""
        config, path = self.context.config, self.folder.file("events.jsonl")
        self.event_log = EventLog(path, keep=self._resume(), writes=self.folder.writes)
        step, values = self.trainer.place.step, config.flat()
        names = config.training.loggers if self.folder.writes else []
        self.loggers = loggers.Loggers(names, self.folder.path, values, step)
        self.context.unreadable.remember(read(path))
        self.context.unreadable.log = self._note_unreadable
        try:
            is_new = self.selects and self.trainer.place.step == 0
            if is_new and (advice := too_few_to_select(self.context)) is not None:
                self._warn(advice)
            self._prepare()
            if is_new:
                self._validate_start()
            if self.length is not None:
                self._set_epochs(self.length.resume(self.trainer.place.epoch, self.epochs))
            while not self._is_over(goal):
                event = self._epoch()
                self._shorten()
                if self.selects and self._is_validated(event.epoch):
                    with self.trainer.averaged():
                        event = self._select(self._validate(event))
                self._log(event)
                self._save()
            self._end(goal)
        except NonFiniteStepError as error:
            classes = int(self.class_of.max()) + 1
            broken_step = runs.keep_bad_step(self.folder, config, self.trainer, classes, error)
            again = f"unseen inspect replay {shlex.quote(str(broken_step))}"
            raise FloatingPointError(f"{error}; `{again}` repeats the step") from error
        finally:
            self.event_log.close()
            self.loggers.close()
        return self.selector.best

    def _is_over(self, goal: dict[str, float] | None) -> bool:
        """All epochs are done, nothing got better on the classes to select on for too long, or it
        is not on its way to be any better."""
        config, epoch = self.context.config, self.trainer.place.epoch
        patience, waited = config.training.validation.patience, epoch - 1 - self.selector.best.epoch
        if patience is None and self.selector.is_full:
            patience = FULL_PATIENCE * config.training.validation.validate_every
        is_stale = patience is not None and waited >= patience and not self.selector.keeps_last
        is_behind = self._is_due() and (self.selector.is_behind or self._falls_short(goal))
        return (self.selects and (is_stale or is_behind)) or epoch >= self.epochs

    def _is_due(self) -> bool:
        """Whether training has just been looked at, and should have gained by now."""
        gain_by, epoch = self.context.config.training.validation.gain_by, self.trainer.place.epoch
        return gain_by is not None and epoch >= gain_by and self._is_validated(epoch - 1)

    def _falls_short(self, goal: dict[str, float] | None) -> bool:
        done, waited = self.trainer.place.epoch, self.context.config.optimizer.schedule.warm_up
        if goal is None or done <= waited:
            return False
        return self.selector.falls_short(goal, (self.epochs - done) / (done - waited))

    def _end(self, goal: dict[str, float] | None) -> None:
        if not self.selects:
            with self.trainer.averaged():
                self._save_weights()
        epochs = self.trainer.place.epoch
        if epochs < self.epochs:
            best = self.selector.best = replace(self.selector.best, stopped_after=epochs)
            write_selection(self.folder, best)
            is_full = (
                self.context.config.training.validation.patience is None and self.selector.is_full
            )
            is_short = self._is_due() and self._falls_short(goal)
            self._log(StoppedEarly(epochs, best.epoch, is_full or None, is_short or None))

    def _epoch(self) -> Epoch:
        config, place = self.context.config, self.trainer.place
        if config.optimizer.schedule.warm_up:
            self.network.warm_up(place.epoch < config.optimizer.schedule.warm_up)
        self.sampler.set_epoch(place.epoch)
        if isinstance(self.sampler, EmbeddedSampler) and self.sampler.is_due():
            self.sampler.fill(self._embed_training("embeddings"))
        batches = self.source.loader.training_batches(
            self.sampler, place.epoch, place.step_in_epoch
        )
        if config.data.label_noise is not None:
            labels = torch.from_numpy(self.context.training_labels)
            batches = (batch._replace(labels=labels[batch.indices]) for batch in batches)
        return self.trainer.epoch(batches, self.class_of, self._after_step)

    def _shorten(self) -> None:
        """Asks whether there is time for all epochs; fewer have a schedule of their own."""
        if self.length is not None:
            done = self.trainer.place.epoch
            self._set_epochs(self.length.next(done, self.epochs))

    def _set_epochs(self, epochs: int) -> None:
        if epochs != self.epochs:
            self.epochs = epochs
            self.follow_schedule(epochs)

    def follow_schedule(self, epochs: int) -> None:
        """Learning rates are those of a training of so many epochs."""
        config = self.context.config.with_values({"epochs": max(1, epochs)})
        self.trainer.scheduled_optimizer.schedule = build.schedule(config, len(self.sampler))

    def _is_validated(self, epoch: int) -> bool:
        return (
            epoch + 1
        ) % self.context.config.training.validation.validate_every == 0 or epoch + 1 >= self.epochs

    def _validate_start(self) -> None:
        """What training begins with is a candidate like every epoch."""
        self._log(self._select(self._with_scores(Start())))

    def _validate(self, event: Epoch) -> Epoch:
        """With scores, and recall by layer where it is due."""
        event, every = (
            self._with_scores(event),
            self.context.config.training.validation.layers_every,
        )
        if every and (event.epoch + 1) % every == 0:
            event = replace(event, layers=self._layers())
        return event

    def _with_scores(self, event: Validated) -> Validated:
        """With scores on training classes and those to select on; a collapsed space is warned
        about."""
        config = self.context.config
        if config.training.validation.select == "test":
            self.folder.note_test_read(f"selection, epoch {event.epoch + 1}", config.hash())
        elif "test" in self.validated_on:
            self.folder.note_test_read(f"watched, epoch {event.epoch + 1}", config.hash())
        scores: dict[str, Any] = {}
        for name, items in self.validated_on.items():
            embeddings = self.source.embed(items, layer=self.layer)
            scores[name] = (getattr(event, name) or {}) | self._scores(embeddings, items)
        if event.epoch != START and (advice := collapse(embeddings)) is not None:
            self._warn(f"epoch {event.epoch + 1}: {advice}")
        return replace(event, **scores)

    def _layers(self) -> dict[str, dict[str, float]]:
        """Recall of every usual layer on the classes looked at."""
        _, transform = build.image_transforms(self.context.config, self.network)
        layers = named_layers(self.context, self.network, transform)
        return {
            name: recall_by_layer(self.context, self.network, transform, layers, items)
            for name, items in self.validated_on.items()
        }

    def _prepare(self) -> None:
        """Frozen layers run; regularizers that compare with the initial network see its
        descriptors once."""
        objective = self.trainer.objective
        evaluated = list(self.validated_on.values()) if self.selects else [self.monitored[:0]]
        config, is_new = self.context.config, self.trainer.place.step == 0
        starts = config.model.starts_principal and is_new and not self.has_start
        if starts or objective.wants_pooled or isinstance(self.sampler, EmbeddedSampler):
            evaluated.append(self.context.split.train)
        self.source.prepare(self.context.split.train, np.unique(np.concatenate(evaluated)))
        if starts:
            self._start_head()
        if is_new and saves_start(config):
            save_start(self.folder, self.network, config)
        if objective.wants_pooled:
            labels = self.context.training_labels[self.context.split.train]
            objective.prepare(self._embed_training("pooled"), self.class_of[labels])

    def _start_head(self) -> None:
        """The head begins with the principal directions of the training items."""
        assert isinstance(self.network, EmbeddingNetwork), "other networks have no head to choose"
        head = self.network.head
        head.start_from(self._embed_training("pooled").to(self.context.device))
        head.load_state_dict(self.context.processes.agreed(head.state_dict))
        if self.trainer.average is not None:
            self.trainer.average.restart()

    def _embed_training(self, field: Literal["embeddings", "pooled"]) -> Tensor:
        items = self.context.split.train
        progress = self.callbacks.of("embedding the training images")
        return self.source.embed(items, progress, field=field)

    def _after_step(self, event: Step) -> None:
        self._log(event)
        is_due = time.monotonic() - self.saved_at > SECONDS_BETWEEN_CHECKPOINTS
        if self.checkpoints.sharded:  # all write, so all must at the same step
            is_due = self.context.processes.agreed(lambda: is_due)
        if is_due:
            self._save()

    def _select(self, event: Validated) -> Validated:
        """With whether it is the best so far, which is kept."""
        on = self.context.config.training.validation.select
        taken = self.selector.takes(event.epoch, getattr(event, on))
        if taken:
            self._save_weights()
            write_selection(self.folder, self.selector.best)
        is_best = taken and not self.selector.keeps_last
        return replace(event, best=is_best, by=self.selector.by if is_best else None)

    def _save_weights(self) -> None:
        self.folder.keep("weights.safetensors", self.network.state_dict())
        self.folder.keep("objective.safetensors", self.trainer.objective_state())

    def _is_whole(self, best: Selection, step: int) -> bool:
        """Whether all that was kept before a checkpoint is there, or could be restored."""
        names = ["weights.safetensors", "objective.safetensors"] if best.value >= 0 else []
        if saves_start(self.context.config) and step:
            names.append(START_FILE)
        return all(self.folder.mend(name, self.callbacks.warn) for name in names)

    def _warn(self, text: str) -> None:
        self.event_log(Warned(self.trainer.place.step, text))
        self.callbacks.warn(text)

    def _note_unreadable(self, event: Unreadable) -> None:
        self.event_log(event)
        self.callbacks.warn(str(event))

    def _log(self, event: LoggedEvent) -> None:
        self.event_log(event)
        self.loggers(event)
        self.callbacks.log(event)

    def _save(self) -> None:
        state = {
            "trainer": self.trainer.state_dict(),
            "sampler": self.sampler.state_dict(),
            "best": spelled(self.selector.best),
            "selection": self.selector.state_dict(),
            "event_log": self.event_log.size(),
        }
        self.checkpoints.save(self.trainer.place.step, state)
        self.saved_at = time.monotonic()

    def _resume(self) -> int:
        """Takes up the newest checkpoint; returns how much of the event log belongs to it."""
        state = self.checkpoints.newest(self.callbacks.warn)
        if state is None:
            return 0
        best = parsed(Selection, json.dumps(state["best"]), str(self.checkpoints.folder))
        if not self._is_whole(best, state["trainer"]["place"]["step"]):
            self.callbacks.warn("training starts anew, which gives the same result")
            if self.folder.writes:
                self.checkpoints.clear()
            return 0
        self.trainer.load_state_dict(state["trainer"])
        self.sampler.load_state_dict(state["sampler"])
        self.selector.go_on(best, state["selection"])
        if self.selects and not self.folder.holds(SELECTION):
            write_selection(self.folder, self.selector.best)
        place = self.trainer.place
        self.callbacks.log(Resumed(place.epoch, place.step))
        return int(state["event_log"])

    def _scores(self, embeddings: Tensor, items: IntArray) -> dict[str, float]:
        """What epochs are compared by; a quick look between them, without intervals."""
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
