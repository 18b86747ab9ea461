"""The `unseen` command: one file per sub-command, imported when it is asked for.

Importing torch takes seconds, so the list of commands needs none of them.
"""

import importlib
import inspect
import io
import sys
import tomllib
import warnings
from contextlib import ExitStack
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

import unseen
from unseen.cli.console import errors
from unseen.cli.options import STYLE
from unseen.cli.user_errors import guarded
from unseen.core.custom_components import trust, trusted
from unseen.core.names import advice, on_command_line
from unseen.core.uris import remote_rows

COMMANDS = {  # name -> where it is, what it does
    "demo": ("demo:demo", "The whole way on built-in characters, in minutes."),
    "data": ("data:app", "Check, show, list and pack images; compute features."),
    "backbones": ("backbones:backbones", "Which network suits your images: a race."),
    "train": ("train:train", "Train on some classes, be evaluated on others."),
    "evaluate": ("evaluate:app", "Evaluate a stored run or any embeddings; compare two runs."),
    "inspect": ("inspect:app", "What a run learned: layers, diagnosis, two images, a broken step."),
    "report": ("report:report", "Write the page of a stored run."),
    "calibrate": ("calibrate:calibrate", "What a similarity means: threshold and probability."),
    "study": ("study:study", "Many runs, compared fairly."),
    "embed": ("embed:embed", "Images to vectors in a file."),
    "index": ("index:app", "Build, update and group an index of images."),
    "search": ("search:search", "Find images like this one."),
    "serve": ("serve:serve", "A page to search with."),
    "export": ("export:export", "ONNX, a torch program, a bundle with a model card."),
    "catalogue": ("catalogue:list_methods", "Every loss, miner, sampler, ... by name."),
}
SWITCHES = {"--trust": trusted, "--allow-remote": remote_rows}  # of every command


class Commands(TyperGroup):
    """Lists commands by the table above and imports the one that is called."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        return TyperCommand(cmd_name, short_help=COMMANDS[cmd_name][1])

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        trust([_meant(word) for word in args])
        return super().parse_args(ctx, args)

    def get_params(self, ctx: Any) -> list[Any]:
        return _without_type_of_flags(super().get_params(ctx))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        self.help = _flowing(self.help or "")
        super().format_help(ctx, formatter)

    def invoke(self, ctx: Any) -> Any:
        with on_command_line():
            return super().invoke(ctx)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name = args[0]
        if name not in COMMANDS:
            ctx.fail(f"no command {name!r}: {advice(name, list(COMMANDS))}")
        with errors.status(f"loading {name}"):  # torch takes seconds
            command = loaded(name)
        return name, command, args[1:]


def _meant(word: str) -> list[Any]:
    """What a word of the command line may name: itself, or the value of `key=value`."""
    value = word.partition("=")[2]
    try:
        return [word, value, tomllib.loads(f"value = {value}")]
    except (tomllib.TOMLDecodeError, RecursionError):
        return [word, value]


def loaded(name: str) -> Any:
    """The command itself."""
    module, _, attribute = COMMANDS[name][0].partition(":")
    result = getattr(importlib.import_module(f"unseen.cli.{module}"), attribute)
    if not isinstance(result, typer.Typer):
        alone = typer.Typer(**STYLE)
        alone.command(name)(result)
        result = alone
    command = get_command(result)
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


app = typer.Typer(name="unseen", cls=Commands, no_args_is_help=True, **STYLE)


def _print_version(request: bool) -> None:
    if request:
        typer.echo(f"unseen {unseen.__version__}")
        raise typer.Exit


@app.callback()
def describe(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="and end")
    ] = False,
) -> None:
    """Example: unseen demo

    Metric learning that is evaluated on classes it has never seen.

    `--trust`, with any command: code that a config, run, index or study names may run
    (loss = "package.module:MyLoss"). What you type yourself, or trusted before, needs no word, nor
    what an installed package announces.

    `--allow-remote`, with any command: a table on this disk may name files elsewhere
    (https://..., s3://...); without it, only a table that lies elsewhere itself.
    """


def run() -> None:
    """Parses the words after `unseen` and runs the command they name."""
    for stream in (sys.stdout, sys.stderr):  # a file's name need not be text that can be written
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    warnings.filterwarnings("ignore", module=r"PIL\.")  # what is wrong with a file we say ourselves
    words = sys.argv[1:]
    before = words[: words.index("--")] if "--" in words else words  # what follows is no option
    with ExitStack() as stack:
        for word in {*SWITCHES} & {*before}:
            stack.enter_context(SWITCHES[word]())
        rest = [w for at, w in enumerate(words) if w not in SWITCHES or at >= len(before)]
        guarded(lambda: sys.exit(app(rest, standalone_mode=False)))
