"""The way down from the head: last layers, then the whole network, while validation classes gain.

Each rung is an ordinary training (`Fit`) in `rungs/<name>/` of the run's folder, which begins with
the best weights so far of its backbone, or with those of a rung that `leads` and has its loss; anew
where no rung before it has its backbone. A rung is kept where its gain in recall@1 over the best,
on the same queries of the validation classes, is larger than its standard error over classes; where
recall@1 cannot tell (few classes are easily told apart), mAP@R decides likewise. The next one is
climbed as its `after` says. The kept weights become the run's own; every rung's score is in the
selection, which the result and the report show. Test classes are not read.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import isnan

import numpy as np
import torch
from torch import Tensor

from unseen.assemble import Assembly
from unseen.config import SettledConfig
from unseen.config_tables import Rung
from unseen.evaluation.evaluate import evaluate
from unseen.experiment.clock import AFTER, LEAST, Clock, Length
from unseen.experiment.fit import Fit
from unseen.experiment.run_context import RunContext, Watch, begun_config, sampler_of
from unseen.experiment.selection import SELECT_BY, TIE_BY, TOO_FEW
from unseen.networks.weights import fill
from unseen.rungs import FIRST, rung_config
from unseen.statistics import Interval, bootstrap
from unseen.training.events import Kept, RungBegun, RungEnded
from unseen.training.journal import append
from unseen.training.run_folder import COPIES, RunFolder
from unseen.training.selection import FILE as SELECTION
from unseen.training.selection import (
    ChainLink,
    Ladder,
    RungEnd,
    RungScore,
    Selection,
    read_selection,
    write_selection,
)

FILES = ("weights.safetensors", "objective.safetensors")
END, ANSWERS = "rung.json", "validation.npz"
WITHIN = 0.68  # the interval of one standard error to each side

Gain = tuple[Interval, float]  # over classes, and its standard error


@dataclass(frozen=True)
class Climbed:
    """A rung after its training. right: [Q] whether each validation query finds its class first;
    ranked: [Q] its mAP@R, NaN in runs that were begun without it."""

    name: str
    config: SettledConfig
    folder: RunFolder
    selection: Selection
    right: Tensor
    ranked: Tensor


def kept_context(context: RunContext, selection: Selection) -> RunContext:
    """The run with the config of the rung it has kept."""
    if selection.ladder is None:
        return context
    return replace(context, config=rung_config(context.config, selection.ladder.kept))


def start_of_kept(context: RunContext, folder: RunFolder) -> tuple[RunContext, RunFolder]:
    """The run as the training of its kept network began, and where that start is kept: on the first
    of the rungs that led to it."""
    config = begun_config(folder)
    if not config.ladder:
        return context, folder
    ladder = read_selection(folder).ladder if folder.holds(SELECTION) else None
    name = ladder.chain[0].name if ladder is not None and ladder.chain else FIRST
    return replace(context, config=rung_config(config, name)), rung_folder(folder, name)


def climb(first: Fit, selection: Selection, clock: Clock) -> Selection:
    """Climbs, or goes on with it; returns the selection of the best rung, with all of them."""
    context, folder = first.context, first.folder
    labels = context.retrieval_task(context.split.validation).query_labels()
    is_judged = len(labels.unique()) >= TOO_FEW
    best = Climbed(
        FIRST, rung_config(context.config, FIRST), folder, selection, *_answers(folder, first)
    )
    records, chains, gained = [_record(best)], {FIRST: [best]}, True
    starts = [(best, True)]  # rungs that later ones may begin with, and whether each gained
    for rung in context.config.ladder:
        if not is_due(rung.after, gained, {record.name for record in records if record.kept}):
            continue
        # a head waits for all its pictures before the first epoch: nothing of that can be left out
        config = rung_config(context.config, rung.name)
        share = 1.0 if config.depth == FIRST else LEAST
        if not clock.allows(rung.name, rung.minutes, minutes_after(rung, clock), share):
            continue
        start = _start_of(config, starts)
        reached = _climbed(first, rung, start, best, clock)
        chains[rung.name] = [*(chains[start.name] if start else []), reached]
        in_recall = gain_of(best.right, reached.right, labels, context.config.seed)
        in_ranks = gain_of(best.ranked, reached.ranked, labels, context.config.seed)
        kept = is_better(in_recall, in_ranks) or not is_judged
        gained = kept and was_trained(reached.selection)
        ended = _ended(reached, best, in_recall, in_ranks, kept)
        records.append(_record(reached, ended))
        tell(folder, first.watch, ended)
        if kept:
            best = reached
        if kept or rung.leads:
            starts.append((reached, kept))
        clock.keep()
    links = [ChainLink(rung.name, rung.selection.epoch + 1) for rung in chains[best.name]]
    facts = Ladder(best.name, links, len(labels.unique()), records)
    for name in FILES:
        folder.write_tensors(name, kept_tensors(best.folder, name))
    selection = replace(best.selection, ladder=facts)
    write_selection(folder, selection)
    return selection


def minutes_after(rung: Rung, clock: Clock) -> float:
    """To be left after a rung; one that was not planned leaves the usual share."""
    is_planned = rung.minutes is not None or rung.minutes_after > 0
    return rung.minutes_after if is_planned else AFTER * (clock.minutes or 0.0)


def is_due(after: str, gained: bool, kept: set[str]) -> bool:
    """gained: whether the last rung did; kept: the names of those that ever were."""
    conditions = {"any": True, "gain": gained, "no gain": not gained}
    return conditions.get(after, after in kept)


def _start_of(config: SettledConfig, starts: list[tuple[Climbed, bool]]) -> Climbed | None:
    """The newest rung with the same backbone: one that gained, or that has the same loss."""
    for rung, gained in reversed(starts):
        fits = gained or have_same_objective(rung.config, config)
        if fits and rung.config.backbone == config.backbone:
            return rung
    return None


def is_better(in_recall: Gain, in_ranks: Gain) -> bool:
    """More than its error in recall@1; where that is within its error, more so in mAP@R."""
    (gain, error), (ranked, ranked_error) = in_recall, in_ranks
    return gain.value > error or (abs(gain.value) <= error and ranked.value > ranked_error)


def was_trained(selection: Selection) -> bool:
    """Whether a rung is better by its epochs, not by its pictures alone."""
    return selection.epoch >= 0


def gain_of(before: Tensor, after: Tensor, labels: Tensor, seed: int) -> Gain:
    """The mean gain of the same queries with its 95 % interval over classes, and its standard
    error: how far the lower end of the 68 % interval lies below."""
    difference = (after - before)[:, None]
    gain = bootstrap(difference, labels, seed=seed)[0]
    near = bootstrap(difference, labels, level=WITHIN, seed=seed)[0]
    return gain, gain.value - near.low


def rung_folder(root: RunFolder, name: str) -> RunFolder:
    return root if name == FIRST else RunFolder(root.file(f"rungs/{name}"), root.processes)


def kept_tensors(folder: RunFolder, name: str) -> dict[str, Tensor]:
    """As a training kept them; what lies beside may have become those of a better rung."""
    return folder.read_tensors(f"{COPIES}/{name}")


def starting_from(folder: RunFolder, same_objective: bool) -> Callable[[Assembly], None]:
    """Puts the weights of a training into another that is to begin, and those of its loss if that
    is the same."""

    def start(made: Assembly) -> None:
        weights, objective = FILES
        fill(made.network, kept_tensors(folder, weights), str(folder.file(weights)))
        if same_objective:
            kept = made.objective.own_part(kept_tensors(folder, objective))
            fill(made.objective, kept, str(folder.file(objective)))

    return start


def have_same_objective(first: SettledConfig, second: SettledConfig) -> bool:
    return (first.loss, first.regularizers) == (second.loss, second.regularizers)


def tell(folder: RunFolder, watch: Watch, event: Kept) -> None:
    """To who watches, and at the end of the run's journal: the first training cuts what came after
    it when it is taken up again."""
    if folder.writes:
        append(folder.file("journal.jsonl"), event)
    watch.tell(event)


def _climbed(
    first: Fit, rung: Rung, before: Climbed | None, best: Climbed, clock: Clock
) -> Climbed:
    """Trains a rung, or goes on with it; one that has come to its end is read. before: the rung it
    begins with; None: anew. best: the one it is to surpass."""
    config = rung_config(first.context.config, rung.name)
    context, folder = replace(first.context, config=config), rung_folder(first.folder, rung.name)
    length = Length(clock, rung.name, minutes_after(rung, clock), again=True)
    steps = len(sampler_of(context))
    start = "" if before is None else before.name
    tell(first.folder, first.watch, RungBegun(rung.name, start, config.epochs, steps))
    if folder.holds(END):
        length.begun(folder.read(END, RungEnd).epochs, config.epochs)
    else:
        begins = None
        if before is not None:
            begins = starting_from(before.folder, have_same_objective(before.config, config))
        fit = Fit(context, folder, first.watch, start=begins, length=length)
        goal = {SELECT_BY: _mean(best.right), TIE_BY: _mean(best.ranked)}
        is_same = len(fit.selected_on) == len(context.split.validation)  # look_pictures: fewer
        selection = fit.run(goal if is_same else None)
        _answers(folder, fit)
        folder.write_json(END, RungEnd(selection, fit.trainer.place.epoch))
    selection = folder.read(END, RungEnd).selection
    return Climbed(rung.name, config, folder, selection, *_answers(folder))


def _answers(folder: RunFolder, fit: Fit | None = None) -> tuple[Tensor, Tensor]:  # [Q], [Q]
    """Whether each query of the validation classes finds its class first, with the kept weights,
    and its mAP@R."""
    if fit is not None and not folder.holds(ANSWERS):
        items, context = fit.context.split.validation, fit.context
        fit.network.load_state_dict(kept_tensors(folder, FILES[0]))
        embeddings = fit.source.embed(items, fit.watch.of("judging the rung"), layer=fit.layer)
        asked = context.retrieval_task(items).arguments(embeddings)
        normalise = context.config.normalise
        score = evaluate(**asked, metrics=(SELECT_BY, TIE_BY), normalise=normalise, resamples=0)
        right, ranked = (score.per_query[name].numpy() for name in (SELECT_BY, TIE_BY))
        folder.write_arrays(ANSWERS, right=right, ranked=ranked)

    def read() -> tuple[Tensor, Tensor]:
        with np.load(folder.checked(ANSWERS)) as arrays:
            right = torch.from_numpy(arrays["right"])
            has_both = "ranked" in arrays.files
            ranked = torch.from_numpy(arrays["ranked"]) if has_both else right * float("nan")
            return right, ranked

    return folder.processes.agreed(read)


def _ended(
    rung: Climbed,
    best: Climbed,
    in_recall: Gain,
    in_ranks: Gain,
    kept: bool,
) -> RungEnded:
    (gain, error), (ranked, ranked_error) = in_recall, in_ranks
    return RungEnded(
        name=rung.name,
        over=best.name,
        recall=round(_mean(rung.right), 6),
        gain=round(gain.value, 6),
        low=round(gain.low, 6),
        high=round(gain.high, 6),
        error=round(error, 6),
        kept=kept,
        ranked=None if isnan(ranked.value) else round(ranked.value, 6),
        ranked_error=None if isnan(ranked.value) else round(ranked_error, 6),
    )


def _mean(answers: Tensor) -> float:
    """Over the queries that can be answered; NaN where there are none."""
    return float(answers.nanmean())


def _record(rung: Climbed, ended: RungEnded | None = None) -> RungScore:
    """What the result holds of a rung: no times, so that it can be compared."""
    config = rung.config
    facts = {"name": rung.name, "recall": round(_mean(rung.right), 6), "kept": True}
    return RungScore(
        **(facts if ended is None else vars(ended)),
        depth=config.depth,
        backbone=config.backbone,
        epoch=rung.selection.epoch,
        epochs=config.epochs,
        loss=config.loss.name,
        picture_size=config.picture_size,
        training_sizes=config.training_sizes,
    )
