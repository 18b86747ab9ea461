"""The training loop: prepare, then epochs, each followed by the callbacks."""

import shlex
from collections.abc import Callable
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from unseen import runs
from unseen.config import build
from unseen.core.contracts import EmbeddedSampler
from unseen.models.descriptor import described
from unseen.models.network import EMBEDDING
from unseen.runs.batch_source import source_of
from unseen.runs.callbacks import Checkpointing, EarlyStopping, LoopCallback, Validation
from unseen.runs.evaluate_layers import BEST
from unseen.runs.prepare import Callbacks, RunContext, sampler_of
from unseen.runs.run_items import training_classes
from unseen.runs.run_networks import (
    save_start,
    saves_start,
    start_head,
    while_training,
)
from unseen.training import loggers
from unseen.training.event_log import EventLog, read
from unseen.training.events import Epoch, LoggedEvent, Step, Unreadable, Warned
from unseen.training.run_folder import RunFolder
from unseen.training.selected_weights import Selection
from unseen.training.step_checks import NonFiniteStepError


class TrainingLoop:
    """A run in training: what is on disk follows what is in memory. Of several processes the first
    writes and decides; all are in the same state.

    A stopped training resumes from its newest intact checkpoint, and its event log is cut back to
    it.

    Args:
        epochs: Trains for so many and keeps the last weights; None: as the config says, keeping
            those that validation selects.
        start: Puts other starting values into what was built.
        length: May end the training earlier than planned.
        goal: Scores to be surpassed: a training that will not do so ends (`gain_by`).
    """

    def __init__(
        self,
        context: RunContext,
        folder: RunFolder,
        callbacks: Callbacks,
        epochs: int | None = None,
        start: Callable[[build.Components], None] | None = None,
        length: LoopCallback | None = None,
        goal: dict[str, float] | None = None,
    ) -> None:
        config = context.config
        self.context, self.folder, self.callbacks = context, folder, callbacks
        self.epochs = config.training.epochs if epochs is None else epochs
        loggers.check(config.training.loggers)
        self.sampler = sampler_of(context)
        self.class_of = training_classes(context.training_labels, context.split.train)
        components = build.build(
            config,
            int(self.class_of.max()) + 1,
            len(self.sampler),
            context.processes,
            context.relevance,
        )
        self.network, self.trainer = components.network, components.trainer
        self.has_start = start is not None
        if start is not None:  # before the frozen layers are asked who they are
            start(components)
            self._restart_average()
        # epochs are compared by the run's descriptor; "best" is only known after the last one
        layer = config.evaluation.descriptor
        self.layer = EMBEDDING if layer == BEST else while_training(layer)
        described(self.network, self.layer)  # a layer that does not exist or run is refused here
        self.source = source_of(
            context, self.network, callbacks, (components.frozen, components.model)
        )
        if isinstance(self.sampler, EmbeddedSampler):
            self.trainer.embedded.append(self.sampler.update)
        self.checkpointing = Checkpointing(folder, context.processes, self.trainer.is_sharded)
        self.validation = Validation(context, folder) if epochs is None else None
        self.beside: list[LoopCallback] = [] if length is None else [length]
        if self.validation is not None:
            self.beside += [EarlyStopping(self.validation.selector, goal), self.validation]
        self.beside.append(self.checkpointing)

    @property
    def selection(self) -> Selection:
        """The weights that validation selects."""
        assert self.validation is not None, "a training for a given number of epochs has none"
        return self.validation.selector.best

    def run(self) -> None:
        """Trains until the last epoch, or until a callback ends it."""
        config, path = self.context.config, self.folder.file("events.jsonl")
        resumed = self.checkpointing.resume(self)
        self.event_log = EventLog(path, keep=resumed, writes=self.folder.writes)
        names = config.training.loggers if self.folder.writes else []
        step = self.trainer.place.step
        self.loggers = loggers.Loggers(names, self.folder.path, config.flat(), step)
        self.context.unreadable.remember(read(path))
        self.context.unreadable.log = self._note_unreadable
        try:
            for callback in self.beside:
                callback.on_start(self, is_new=step == 0)
            self._prepare(is_new=step == 0)
            if step == 0 and self.validation is not None:
                self.validation.validate_start(self)
            while self.trainer.place.epoch < self.epochs and not self._is_over():
                self._train_epoch()
            if self.validation is None:
                with self.trainer.averaged():
                    self.checkpointing.keep(self)
            for callback in self.beside:
                callback.on_end(self)
        except NonFiniteStepError as error:
            classes = int(self.class_of.max()) + 1
            broken_step = runs.keep_bad_step(self.folder, config, self.trainer, classes, error)
            again = f"unseen inspect replay {shlex.quote(str(broken_step))}"
            raise FloatingPointError(f"{error}; `{again}` repeats the step") from error
        finally:
            self.event_log.close()
            self.loggers.close()

    def _is_over(self) -> bool:
        return any(callback.is_over(self) for callback in self.beside)

    def _train_epoch(self) -> None:
        for callback in self.beside:
            callback.before_epoch(self)
        event = self._epoch()
        for callback in self.beside:
            event = callback.on_epoch(self, event)
        self.log(event)
        for callback in self.beside:
            callback.after_epoch(self)

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

    def _after_step(self, event: Step) -> None:
        self.log(event)
        for callback in self.beside:
            callback.on_step(self)

    def _prepare(self, is_new: bool) -> None:
        """Frozen layers run; regularizers that compare with the initial network see its
        descriptors once."""
        train, objective = self.context.split.train, self.trainer.objective
        starts = is_new and not self.has_start and self.context.config.model.starts_principal
        embedded = [train[:0]] if self.validation is None else [*self.validation.items.values()]
        if starts or objective.wants_pooled or isinstance(self.sampler, EmbeddedSampler):
            embedded.append(train)
        self.source.prepare(train, np.unique(np.concatenate(embedded)))
        if starts:
            start_head(self.context, self.network, self._embed_training("pooled"))
            self._restart_average()
        if is_new and saves_start(self.context.config):
            save_start(self.folder, self.network, self.context.config)
        if objective.wants_pooled:
            labels = self.context.training_labels[train]
            objective.prepare(self._embed_training("pooled"), self.class_of[labels])

    def _restart_average(self) -> None:
        if self.trainer.average is not None:
            self.trainer.average.restart()

    def _embed_training(self, field: Literal["embeddings", "pooled"]) -> Tensor:
        progress = self.callbacks.of("embedding the training images")
        return self.source.embed(self.context.split.train, progress, field=field)

    def is_validated(self, epoch: int) -> bool:
        """Whether an epoch is compared with others."""
        every = self.context.config.training.validation.validate_every
        return (epoch + 1) % every == 0 or epoch + 1 >= self.epochs

    def set_epochs(self, epochs: int) -> None:
        """Trains for so many, with a schedule of their own."""
        if epochs != self.epochs:
            self.epochs = epochs
            self.follow_schedule(epochs)

    def follow_schedule(self, epochs: int) -> None:
        """Learning rates are those of a training of so many epochs."""
        config = self.context.config.with_values({"epochs": max(1, epochs)})
        self.trainer.scheduled_optimizer.schedule = build.schedule(config, len(self.sampler))

    def log(self, event: LoggedEvent) -> None:
        """To the event log, the loggers and whoever listens."""
        self.event_log(event)
        self.loggers(event)
        self.callbacks.log(event)

    def warn(self, text: str) -> None:
        self.event_log(Warned(self.trainer.place.step, text))
        self.callbacks.warn(text)

    def _note_unreadable(self, event: Unreadable) -> None:
        self.event_log(event)
        self.callbacks.warn(str(event))
