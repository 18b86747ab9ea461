"""The stages of a run after its head: each is a training, selected by its validation gain."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from unseen.config.build import Components
from unseen.config.schema import ResolvedConfig
from unseen.config.stages import FIRST, stage_config
from unseen.config.tables import Stage
from unseen.core import read_limits
from unseen.core.statistics import Interval, bootstrap
from unseen.evaluation.evaluate import evaluate
from unseen.models.weights import fill
from unseen.runs.prepare import Callbacks, sampler_of
from unseen.runs.run_networks import stage_folder
from unseen.runs.select_epoch import SELECT_BY, TIE_BY, TOO_FEW
from unseen.runs.time_spent import AFTER, LEAST, Length, TimeBudget
from unseen.runs.training_loop import TrainingLoop
from unseen.training.event_log import append
from unseen.training.events import LoggedEvent, StageEnded, StageStarted
from unseen.training.run_folder import SELECTED, RunFolder
from unseen.training.selected_weights import (
    ChainLink,
    Selection,
    StageEnd,
    StageLog,
    StageScore,
    write_selection,
)

END, ANSWERS = "stage.json", "validation.npz"
WITHIN = 0.68  # the interval of one standard error to each side

Gain = tuple[Interval, float]  # over classes, and its standard error


@dataclass(frozen=True)
class TrainedStage:
    """A stage after its training. right: [Q] whether each validation query finds its class first;
    ranked: [Q] its mAP@R, NaN in runs that were begun without it."""

    name: str
    config: ResolvedConfig
    folder: RunFolder
    selection: Selection
    right: Tensor
    ranked: Tensor


def run_stages(first: TrainingLoop, selection: Selection, time_budget: TimeBudget) -> Selection:
    """Runs the stages, or resumes; returns the selection of the best stage, with all of them.

    Each stage is an ordinary training in `stages/<name>/` of the run folder. It begins with the
    best weights so far of its backbone, or with those of a stage that `leads` and has its loss;
    anew where no stage before it has its backbone. It is selected where its gain in recall@1
    over the best, on the same validation queries, is larger than the standard error over
    classes; where recall@1 cannot tell (few classes are easy to separate), mAP@R decides
    likewise. `after` says when a stage runs. Test classes are not read.
    """
    context, folder = first.context, first.folder
    labels = context.retrieval_task(context.split.validation).query_labels()
    is_evaluated = len(labels.unique()) >= TOO_FEW
    own = _own_folder(folder)
    for name in own.damaged(SELECTED):  # the run's own become those of the best stage
        own.write_tensors(name, folder.read_tensors(name))
    best = TrainedStage(
        FIRST, stage_config(context.config, FIRST), own, selection, *_answers(own, first)
    )
    records, chains, gained = [_record(best)], {FIRST: [best]}, True
    starts = [(best, True)]  # stages that later ones may begin with, and whether each gained
    for stage in context.config.training.stages:
        if not is_due(stage.after, gained, {record.name for record in records if record.selected}):
            continue
        # a head waits for all its images before the first epoch: nothing of that can be left out
        config = stage_config(context.config, stage.name)
        fraction = 1.0 if config.training.depth == FIRST else LEAST
        if not time_budget.allows(
            stage.name, stage.minutes, minutes_after(stage, time_budget), fraction
        ):
            continue
        start = _start_of(config, starts)
        reached = _trained(first, stage, start, best, time_budget)
        chains[stage.name] = [*(chains[start.name] if start else []), reached]
        in_recall = gain_of(best.right, reached.right, labels, context.config.training.seed)
        in_ranks = gain_of(best.ranked, reached.ranked, labels, context.config.training.seed)
        is_selected = is_better(in_recall, in_ranks) or not is_evaluated
        gained = is_selected and was_trained(reached.selection)
        ended = _ended(reached, best, in_recall, in_ranks, is_selected)
        records.append(_record(reached, ended))
        log_stage(folder, first.callbacks, ended)
        if is_selected:
            best = reached
        if is_selected or stage.leads:
            starts.append((reached, is_selected))
        time_budget.save()
    links = [ChainLink(stage.name, stage.selection.epoch + 1) for stage in chains[best.name]]
    metadata = StageLog(best.name, links, len(labels.unique()), records)
    for name in SELECTED:
        folder.write_tensors(name, best.folder.read_tensors(name))
    selection = replace(best.selection, stages=metadata)
    write_selection(folder, selection)
    return selection


def minutes_after(stage: Stage, time_budget: TimeBudget) -> float:
    """To be left after a stage; one that was not planned leaves the usual share."""
    is_planned = stage.minutes is not None or stage.minutes_after > 0
    return stage.minutes_after if is_planned else AFTER * (time_budget.minutes or 0.0)


def is_due(after: str, gained: bool, selected: set[str]) -> bool:
    """gained: whether the last stage did; selected: the names of those that ever were."""
    conditions = {"any": True, "gain": gained, "no gain": not gained}
    return conditions.get(after, after in selected)


def _start_of(
    config: ResolvedConfig, starts: list[tuple[TrainedStage, bool]]
) -> TrainedStage | None:
    """The newest stage with the same backbone: one that gained, or that has the same loss."""
    for stage, gained in reversed(starts):
        fits = gained or have_same_objective(stage.config, config)
        if fits and stage.config.model.backbone == config.model.backbone:
            return stage
    return None


def is_better(in_recall: Gain, in_ranks: Gain) -> bool:
    """More than its error in recall@1; where that is within its error, more so in mAP@R."""
    (gain, error), (ranked, ranked_error) = in_recall, in_ranks
    return gain.value > error or (abs(gain.value) <= error and ranked.value > ranked_error)


def was_trained(selection: Selection) -> bool:
    """Whether a stage is better by its epochs, not by its images alone."""
    return selection.epoch >= 0


def gain_of(before: Tensor, after: Tensor, labels: Tensor, seed: int) -> Gain:
    """The mean gain of the same queries with its 95 % interval over classes, and its standard
    error: how far the lower end of the 68 % interval lies below."""
    difference = (after - before)[:, None]
    gain = bootstrap(difference, labels, seed=seed)[0]
    near = bootstrap(difference, labels, level=WITHIN, seed=seed)[0]
    return gain, gain.value - near.low


def _own_folder(root: RunFolder) -> RunFolder:
    """Where the weights of the first stage stay."""
    return RunFolder(root.file(f"stages/{FIRST}"), root.processes)


def starting_from(folder: RunFolder, same_objective: bool) -> Callable[[Components], None]:
    """Puts the weights of a training into another that is to begin, and those of its loss if that
    is the same."""

    def start(components: Components) -> None:
        weights, objective = SELECTED
        folder.fill(components.network, weights)
        if same_objective:
            rows = components.objective.local_rows(folder.read_tensors(objective))
            fill(components.objective, rows, str(folder.file(objective)))

    return start


def have_same_objective(first: ResolvedConfig, second: ResolvedConfig) -> bool:
    return (first.loss, first.regularizers) == (second.loss, second.regularizers)


def log_stage(folder: RunFolder, callbacks: Callbacks, event: LoggedEvent) -> None:
    """To who watches, and at the end of the run's event log: the first training cuts what came
    after it when it is taken up again."""
    if folder.writes:
        append(folder.file("events.jsonl"), event)
    callbacks.log(event)


def _trained(
    first: TrainingLoop,
    stage: Stage,
    before: TrainedStage | None,
    best: TrainedStage,
    time_budget: TimeBudget,
) -> TrainedStage:
    """Trains a stage, or goes on with it; one that has come to its end is read. before: the stage
    it begins with; None: anew. best: the one it is to surpass."""
    config = stage_config(first.context.config, stage.name)
    context, folder = replace(first.context, config=config), stage_folder(first.folder, stage.name)
    length = Length(time_budget, stage.name, minutes_after(stage, time_budget), again=True)
    steps = len(sampler_of(context))
    start = "" if before is None else before.name
    log_stage(
        first.folder,
        first.callbacks,
        StageStarted(stage.name, start, config.training.epochs, steps),
    )
    if folder.holds(END) and not folder.damaged(SELECTED):
        length.resume(folder.read(END, StageEnd).epochs, config.training.epochs)
    else:
        begins = None
        if before is not None:
            begins = starting_from(before.folder, have_same_objective(before.config, config))
        goal = {SELECT_BY: _mean(best.right), TIE_BY: _mean(best.ranked)}
        few = config.training.validation.validation_images
        is_same = few is None or len(context.split.validation) <= few
        is_same = is_same and config.training.validation.select == "validation"
        fit = TrainingLoop(
            context, folder, first.callbacks, None, begins, length, goal if is_same else None
        )
        fit.run()
        _answers(folder, fit)
        folder.write_json(END, StageEnd(fit.selection, fit.trainer.place.epoch))
    selection = folder.read(END, StageEnd).selection
    return TrainedStage(stage.name, config, folder, selection, *_answers(folder))


def _answers(
    folder: RunFolder, fit: TrainingLoop | None = None
) -> tuple[Tensor, Tensor]:  # [Q], [Q]
    """Whether each query of the validation classes finds its class first, with the kept weights,
    and its mAP@R."""
    if fit is not None and not folder.holds(ANSWERS):
        items, context = fit.context.split.validation, fit.context
        folder.fill(fit.network, SELECTED[0])
        embeddings = fit.source.embed(
            items, fit.callbacks.of("evaluation the stage"), layer=fit.layer
        )
        request = context.retrieval_task(items).arguments(embeddings)
        normalize = context.config.evaluation.normalize
        score = evaluate(
            **request,
            metrics=(SELECT_BY, TIE_BY),
            normalize=normalize,
            resamples=0,
            non_finite="worst",
        )
        right, ranked = (score.per_query[name].numpy() for name in (SELECT_BY, TIE_BY))
        folder.write_arrays(ANSWERS, right=right, ranked=ranked)

    def read() -> tuple[Tensor, Tensor]:
        with read_limits.load(folder.checked(ANSWERS)) as arrays:
            return torch.from_numpy(arrays["right"]), torch.from_numpy(arrays["ranked"])

    return folder.processes.agreed(read)


def _ended(
    stage: TrainedStage,
    best: TrainedStage,
    in_recall: Gain,
    in_ranks: Gain,
    selected: bool,
) -> StageEnded:
    (gain, error), (ranked, ranked_error) = in_recall, in_ranks
    numbers = {"recall": _mean(stage.right), "error": error, "ranked_error": ranked_error}
    numbers |= {"gain": gain.value, "low": gain.low, "high": gain.high, "ranked": ranked.value}
    rounded = {name: round(number, 6) for name, number in numbers.items()}
    return StageEnded(name=stage.name, over=best.name, selected=selected, **rounded)


def _mean(answers: Tensor) -> float:
    """Over the queries that can be answered; NaN where there are none."""
    return float(answers.nanmean())


def _record(stage: TrainedStage, ended: StageEnded | None = None) -> StageScore:
    """What the result holds of a stage: no times, so that it can be compared."""
    config = stage.config
    metadata = {"name": stage.name, "recall": round(_mean(stage.right), 6), "selected": True}
    return StageScore(
        **(metadata if ended is None else vars(ended)),
        depth=config.training.depth,
        backbone=config.model.backbone,
        epoch=stage.selection.epoch,
        epochs=config.training.epochs,
        loss=config.loss_name,
        image_size=config.data.image_size,
        training_sizes=config.data.transform.training_sizes,
    )
