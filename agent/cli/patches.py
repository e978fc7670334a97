"""diff, apply, undo and redo on the command line."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shardproof.agent.cli.arguments import Root
from shardproof.agent.cli.command import command

if TYPE_CHECKING:
    from shardproof.agent.run.run import Outcome, Run

app = typer.Typer()

Out = Annotated[Path, typer.Argument(metavar="OUT", help="A directory that parallelize wrote.")]
PATCH_EXITS = (
    "Exit codes: 0 done, 1 not applied (diff: does not fit; apply: rejected, or not proved), "
    "2 refused and nothing written, 70 our own fault, 130 interrupted."
)


@command(app, epilog=PATCH_EXITS)
def diff(run: "Run", out: Out, root: Root = Path()) -> "Outcome":
    """Show a patch and whether it fits the files. Writes nothing.

    \b
    Examples:
      shardproof diff out/
      shardproof diff out/ --root ~/project
    """
    from shardproof.agent.patching import command

    return command.show(run, out, root)


@command(app, epilog=PATCH_EXITS)
def apply(
    run: "Run",
    out: Out,
    root: Root = Path(),
    unsafe: Annotated[
        bool,
        typer.Option(
            "--unsafe", help="Apply even if the program was only compared with the code on samples."
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    recapture: Annotated[
        bool,
        typer.Option(
            "--recapture/--no-recapture", help="Read the patched source again and prove it first."
        ),
    ] = True,
) -> "Outcome":
    """Apply a proved patch to your files, all of them or none.

    First the certificate is checked, and the patched source is read again and proved;
    --no-recapture trusts the hashes of the directory instead. Every file must have its recorded
    hash. No git command runs on your tree. `shardproof undo` reverts the patch.

    \b
    Examples:
      shardproof apply out/
      shardproof apply out/ --root ~/project --yes
    """
    from shardproof.agent.patching import command

    return command.apply(run, out, root, unsafe=unsafe, yes=yes, recapture=recapture)


@command(app, epilog=PATCH_EXITS)
def undo(run: "Run", root: Root = Path()) -> "Outcome":
    """Take back the patch that was applied last.

    Restores exact bytes and removes new files.

    \b
    Example:
      shardproof undo
    """
    from shardproof.agent.patching import command

    return command.undo(run, root)


@command(app, epilog=PATCH_EXITS)
def redo(run: "Run", root: Root = Path()) -> "Outcome":
    """Apply again the patch that was undone last.

    \b
    Example:
      shardproof redo
    """
    from shardproof.agent.patching import command

    return command.redo(run, root)
