"""The `unseen` command: one file per sub-command."""

import sys

import typer

from unseen.cli import data, index
from unseen.cli.calibrate import calibrate
from unseen.cli.compare import compare
from unseen.cli.demo import demo
from unseen.cli.diagnose import diagnose
from unseen.cli.embed import embed
from unseen.cli.evaluate import evaluate
from unseen.cli.export import export
from unseen.cli.features import features
from unseen.cli.layers import layers
from unseen.cli.list_methods import list_methods
from unseen.cli.replay import replay
from unseen.cli.report import report
from unseen.cli.search import search
from unseen.cli.serve import serve
from unseen.cli.study import study
from unseen.cli.terminal import guarded
from unseen.cli.train import train

app = typer.Typer(
    name="unseen",
    help="Example: unseen demo\n\nMetric learning that is judged on classes it has never seen.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
app.command(short_help="The whole way on built-in characters, in minutes.")(demo)
app.command(short_help="Train on some classes, be judged on others.")(train)
app.command(short_help="A data set through a backbone, once: train heads on it.")(features)
app.command(short_help="Judge a stored run, its layers, or any embeddings.")(evaluate)
app.command(short_help="What a run's embedding space looks like, in words.")(diagnose)
app.command(short_help="Two runs on the same queries: which is better?")(compare)
app.command(short_help="Write the page of a stored run.")(report)
app.command(short_help="Pictures to vectors in a file.")(embed)
app.command(short_help="What a similarity means: threshold and probability.")(calibrate)
app.add_typer(data.app, name="data", short_help="Check, show and pack pictures.")
app.add_typer(index.app, name="index", short_help="Build and keep an index of pictures.")
app.command(short_help="Find pictures like this one.")(search)
app.command(short_help="Repeat a step at which a run broke.")(replay)
app.add_typer(study, name="study", short_help="Many runs, compared fairly.")
app.command(short_help="The layers of a run's network, or of a backbone.")(layers)
app.command(short_help="ONNX, a torch program, a bundle with a model card.")(export)
app.command(short_help="A page to search with.")(serve)
app.command("catalogue", short_help="Every loss, miner, sampler, ... by name.")(list_methods)


def run() -> None:
    """Parses the words after `unseen` and runs the command they name."""
    guarded(lambda: app(sys.argv[1:]))
