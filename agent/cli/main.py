"""The command line: what the commands are called, what they take, and what they exit with."""

import gc
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from shardproof.agent.chat import command as sessions
from shardproof.agent.cli import (
    batch as cli_batch,
    checks as cli_checks,
    models as cli_models,
    patches as cli_patches,
    plans as cli_plans,
    schedules as cli_more,
)
from shardproof.agent.cli.arguments import EXITS, Guarded, Json
from shardproof.agent.cli.command import command

if TYPE_CHECKING:
    from shardproof.agent.run.run import Outcome, Run

# Everything heavier than typer is imported inside a command: `--help` must answer at once.

FIRST = ("parallelize", "check", "verify", "apply", "batch", "chat")
"""The commands that people need first; `--help` lists the others apart."""


class Commands(TyperGroup):
    """The list of commands in two groups."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        words = ["batch-compare", *args[2:]] if args[:2] == ["batch", "compare"] else args
        return super().resolve_command(ctx, words)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        rest = [name for name in self.list_commands(ctx) if name not in FIRST]
        for title, names in (("Commands", FIRST), ("More", rest)):
            width = formatter.width - 6 - max(map(len, names))
            found = [self.get_command(ctx, name) for name in names]
            with formatter.section(title):
                rows = [(c.name, c.get_short_help_str(width)) for c in found if c is not None]
                formatter.write_dl(rows, col_spacing=2)


app = typer.Typer(
    cls=Commands,
    invoke_without_command=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _version(asked: bool) -> None:
    if asked:
        from shardproof.agent import __version__

        typer.echo(f"shardproof {__version__}")
        raise typer.Exit


@app.callback(epilog=EXITS)
def shardproof(
    context: typer.Context,
    prompts: sessions.Prompts = [],
    json: Json = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> int:
    """Turn a PyTorch model into a parallel one that is proved equal to it.

    Without a command it starts `chat`, a session in this terminal.
    """
    if context.invoked_subcommand is not None:
        context.default_map = _project(context.invoked_subcommand, json)
        return 0
    return sessions.bare(prompts, json, context.get_help())


def _project(command: str, json: bool) -> dict[str, Any]:
    """Defaults of a project's file; a file that cannot be used ends the command."""
    path = Path("shardproof.toml")
    if not path.is_file():
        return {}
    from shardproof.agent.cli.project import defaults
    from shardproof.agent.run.errors import InputError

    try:
        return defaults(path, sys.argv[1:])
    except InputError as error:
        from shardproof.agent.run.run import refused

        raise typer.Exit(refused(command, error, json=json or "--json" in sys.argv)) from None


@command(app)
def guard(
    run: "Run",
    script: Annotated[
        list[str],
        typer.Argument(metavar="COMMAND", help="The command that starts the script, after --."),
    ],
    asked: Guarded,
) -> "Outcome":
    """Run a training script and check its collectives.

    Compares what its ranks exchange as they run. Does not change the script.

    The exit code is the script's own, or 6 after a bad exchange.

    \b
    Examples:
      shardproof guard -- torchrun --nproc-per-node 4 train.py
      shardproof guard --every 1 --level T3 --log guard.jsonl -- torchrun train.py --steps 10
    """
    from shardproof.agent.cli import guarding

    return guarding.guard(run, script, asked)


@command(app)
def doctor(
    run: "Run",
    probe: Annotated[
        bool, typer.Option("--probe", help="Also probe the model with a few short calls.")
    ] = False,
) -> "Outcome":
    """Print what is installed and what is missing.

    \b
    Examples:
      shardproof doctor
      shardproof doctor --probe
    """
    from shardproof.agent.cli import doctor as visit
    from shardproof.agent.run.errors import Exit
    from shardproof.agent.run.run import Outcome

    with run.phase("look") as phase:
        found = [*visit.parts(), visit.model(probe)]
        missing = [part.name for part in found if part.needed and not part.found]
        phase.summary = f"{len(missing)} needed parts missing" if missing else "nothing missing"
        phase.facts.update({part.name: part.found for part in found})
    code = Exit.INPUT if missing else Exit.PROVED
    return Outcome(code, answer=visit.table(found))


@command(app)
def ops(
    run: "Run",
    markdown: Annotated[bool, typer.Option("--markdown", help="As the page docs/ops.md.")] = False,
    json: Json = False,
) -> "Outcome":
    """List the ops with signature, attributes and gradient.

    \b
    Examples:
      shardproof ops
      shardproof ops --markdown > docs/ops.md
    """
    from shardproof.agent.cli import ops_table as optable
    from shardproof.agent.run import events
    from shardproof.agent.run.errors import Exit
    from shardproof.agent.run.run import Outcome

    text = optable.markdown().removesuffix("\n") if markdown else optable.table()
    if json:
        run.emit(events.Said(text=text))
    return Outcome(Exit.PROVED, answer=text)


for part in (cli_models, cli_batch, cli_plans, cli_checks, cli_more, sessions, cli_patches):
    app.registered_commands += part.app.registered_commands


def main() -> None:
    """Run the command line on the process's arguments and exit."""
    gc.set_threshold(200_000, 20, 20)  # programs are many objects that stay, in few circles
    sys.exit(_run())


def _run() -> int:
    from shardproof.agent.run.errors import Exit

    try:
        result: object = app(standalone_mode=False)
    except typer.TyperException as error:
        return _usage(error)
    except (KeyboardInterrupt, typer.Abort):
        return int(Exit.INTERRUPTED)
    return result if isinstance(result, int) else 0


def _example(context: typer.Context | None) -> str:
    """The first example of the command that was asked for, and what lists the others."""
    help = (context.command.help or "") if context else ""
    found = re.search(r"Examples?:\n +((?:.*\\\n)*.*)", help)
    if context is None or found is None:
        return "shardproof --help"
    first = re.sub(r" \\\n +", " ", found[1])
    return f"{first}; shardproof {context.info_name} --help has more"


def _usage(error: typer.TyperException) -> int:
    """A command line that typer refused: same form and same last event as any other error."""
    from shardproof.agent.run.errors import InputError
    from shardproof.agent.run.run import refused

    command = next((a for a in sys.argv[1:] if not a.startswith("-")), "")
    said = InputError(error.format_message(), hint=_example(getattr(error, "ctx", None)))
    return refused(command, said, json="--json" in sys.argv[1:])
