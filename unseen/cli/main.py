"""The `unseen` command: one file per sub-command, imported when it is asked for.

Importing torch takes seconds, so the list of commands needs none of them.
"""

import importlib
import inspect
import io
import sys
import warnings
from contextlib import nullcontext
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

import unseen
from unseen.cli.mistakes import guarded
from unseen.names import advice
from unseen.outside import trusted

COMMANDS = {  # name -> where it is, what it does
    "demo": ("demo:demo", "The whole way on built-in characters, in minutes."),
    "train": ("train:train", "Train on some classes, be judged on others."),
    "features": ("features:features", "A data set through a backbone, once: train heads on it."),
    "evaluate": ("evaluate:evaluate", "Judge a stored run, its layers, or any embeddings."),
    "diagnose": ("diagnose:diagnose", "What a run's embedding space looks like, in words."),
    "explain": ("explain:explain", "Why two pictures are alike: which places of them."),
    "compare": ("compare:compare", "Two runs on the same queries: which is better?"),
    "report": ("report:report", "Write the page of a stored run."),
    "layers": ("layers:layers", "The layers of a run's network, or of a backbone."),
    "replay": ("replay:replay", "Repeat a step at which a run broke."),
    "study": ("study:study", "Many runs, compared fairly."),
    "data": ("data:app", "Check, show, list and pack pictures."),
    "embed": ("embed:embed", "Pictures to vectors in a file."),
    "index": ("index:app", "Build and keep an index of pictures."),
    "search": ("search:search", "Find pictures like this one."),
    "serve": ("serve:serve", "A page to search with."),
    "cluster": ("cluster:cluster", "The pictures of an index in groups of their kind."),
    "calibrate": ("calibrate:calibrate", "What a similarity means: threshold and probability."),
    "refine": ("refine:refine", "What whitening, expansion and re-ranking would bring."),
    "export": ("export:export", "ONNX, a torch program, a bundle with a model card."),
    "catalogue": ("list_methods:list_methods", "Every loss, miner, sampler, ... by name."),
}
TRUST = "--trust"
LOOK: dict[str, Any] = {
    "add_completion": False,
    "pretty_exceptions_enable": False,
    "rich_markup_mode": "rich",
}


class Commands(TyperGroup):
    """Lists commands by the table above and imports the one that is called."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        return TyperCommand(cmd_name, short_help=COMMANDS[cmd_name][1])

    def get_params(self, ctx: Any) -> list[Any]:
        return _without_type_of_flags(super().get_params(ctx))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        self.help = _flowing(self.help or "")
        super().format_help(ctx, formatter)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name = args[0]
        if name not in COMMANDS:
            ctx.fail(f"no command {name!r}: {advice(name, list(COMMANDS))}")
        return name, loaded(name), args[1:]


def loaded(name: str) -> Any:
    """The command itself."""
    module, _, attribute = COMMANDS[name][0].partition(":")
    found = getattr(importlib.import_module(f"unseen.cli.{module}"), attribute)
    if not isinstance(found, typer.Typer):
        alone = typer.Typer(**LOOK)
        alone.command(name)(found)
        found = alone
    command = get_command(found)
    for each in [command, *getattr(command, "commands", {}).values()]:
        each.help = _flowing(each.help or "")
        _without_type_of_flags(each.get_params(typer.Context(each)))
    return command


def _without_type_of_flags(params: list[Any]) -> list[Any]:
    """A flag takes no value: `<bool>` beside it would ask for one."""
    for param in params:
        if getattr(param, "is_flag", False):
            param.metavar = ""
    return params


def _flowing(text: str) -> str:
    """Without the line breaks of the source, which do not fit the terminal; what is indented
    stays."""
    paragraphs = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(p if p.startswith(" ") else p.replace("\n", " ") for p in paragraphs)


app = typer.Typer(name="unseen", cls=Commands, no_args_is_help=True, **LOOK)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"unseen {unseen.__version__}")
        raise typer.Exit


@app.callback()
def describe(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="and end")
    ] = False,
) -> None:
    """Example: unseen demo

    Metric learning that is judged on classes it has never seen.

    `--trust`, with any command: parts named in a config, run, index or study may come from
    anywhere (loss=package.module:MyLoss); without it, from below the current folder or from
    packages that announce them.
    """


def run() -> None:
    """Parses the words after `unseen` and runs the command they name."""
    for stream in (sys.stdout, sys.stderr):  # a file's name need not be text that can be written
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    warnings.filterwarnings("ignore", module=r"PIL\.")  # what is wrong with a file we say ourselves
    words = sys.argv[1:]
    before = words[: words.index("--")] if "--" in words else words  # what follows is no option
    with trusted() if TRUST in before else nullcontext():
        kept = [word for word in words if word != TRUST or word not in before]
        guarded(lambda: sys.exit(app(kept, standalone_mode=False)))
