"""`unseen report`: the page of a stored run."""

from unseen.cli.options import MovedData, RunPath
from unseen.cli.terminal import console, display, stages
from unseen.reports import run_page
from unseen.runs.prepare import reopen


def report(
    run: RunPath,
    data: MovedData = None,
) -> None:
    """Example: unseen report runs/glyphs-multi_similarity-seed0

    Writes report/index.html in the run's folder: one file, opens anywhere, needs no network.
    """
    with display() as (_, callbacks):
        context, _folder = reopen(run, callbacks, data)
        written = run_page.write(run, context.dataset, stages(callbacks))
    console.print(f"report: {written}")
