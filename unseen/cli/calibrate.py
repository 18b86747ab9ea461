"""`unseen calibrate`: what a similarity means on unseen classes."""

from typing import Annotated

import typer

from unseen.cli.options import MovedData, RunPath
from unseen.cli.terminal import console, display, stages
from unseen.evaluation.calibration import Calibration
from unseen.reports import run_page
from unseen.runs.calibrate_run import NAME, calibrate_run
from unseen.runs.prepare import reopen
from unseen.runs.trained_run import Trained


def calibrate(
    run: RunPath,
    fmr: Annotated[
        float, typer.Option(help="share of pairs of different classes that may be matched")
    ] = 1e-3,
    confidence: Annotated[float, typer.Option(help="of the bound, above 0.5")] = 0.95,
    data: MovedData = None,
) -> None:
    """Example: unseen calibrate runs/birds --fmr 1e-3

    Finds, on the validation classes, the similarity that so few wrong pairs reach, how sure that
    is for other new classes, and how probable "same class" is at each similarity. Search and the
    report use it from then on.
    """
    trained = Trained.open(run)
    with display() as (_, callbacks):
        context, _folder = reopen(run, callbacks, data)
        calibration = calibrate_run(context, trained, callbacks, fmr, confidence)
        if (run / "report").exists():
            run_page.write(run, context.dataset, stages(callbacks))
    for line in message(calibration):
        console.print(line)
    console.print(f"written: {run / NAME}")


def message(result: Calibration) -> list[str]:
    """The calibration in sentences."""
    return [
        f"threshold {result.threshold:.4f}: reached by {_fraction(result.measured_fmr)} of "
        f"{result.wrong_pairs:,} pairs of different classes ({result.classes} validation classes)",
        f"  on other new classes: at most {_fraction(result.bound)}, with {result.confidence:.0%} "
        f"confidence ({result.classes} classes are the sample: more of them narrow it)",
        f"  {_fraction(result.fnmr)} of the pairs of one class stay below it",
        f"  {_fraction(result.images_with_false_match)} of the images find some wrong image "
        f"above it among {result.gallery:,}; in a larger index more of them do",
        f"probability of the same class: off by {100 * result.error:.1f} points on average, on "
        "classes it was not fitted to",
    ]


def _fraction(value: float) -> str:
    return f"{100 * value:.3g} %"
