"""diff, apply, undo and redo on the command line."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from agent.arguments import Json, Recapture, Root

Out = Annotated[Path, typer.Argument(metavar="OUT", help="A directory that parallelize wrote.")]
PATCH_EXITS = (
    "Exit codes: 0 done, 1 not applied (diff: does not fit; apply: rejected, or not proved), "
    "2 refused and nothing written, 70 our own fault, 130 interrupted."
)


def diff(out: Out, root: Root = Path(), json: Json = False) -> int:
    """Show a patch and whether it fits the files. Writes nothing.

    \b
    Examples:
      shardproof diff out/
      shardproof diff out/ --root ~/project
    """
    from agent.run import Outcome, Run, conduct

    def work(run: Run) -> Outcome:
        from agent.patching import command

        return command.show(run, out, root)

    return conduct("diff", sys.argv[1:], work, json=json)


def apply(
    out: Out,
    root: Root = Path(),
    unsafe: Annotated[
        bool,
        typer.Option("--unsafe", help="Also where a program was bound to the code by trials only."),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    recapture: Recapture = False,
    json: Json = False,
) -> int:
    """Apply a proved patch to your files, all of them or none.

    `shardproof undo` takes it back. The certificate is checked again, every file must be as it was
    when the patch was made, and no git command is run on your tree. With --recapture the patch
    itself is read and proved first.

    \b
    Examples:
      shardproof apply out/ --recapture
      shardproof apply out/ --root ~/project --yes
    """
    from agent.run import Outcome, Run, conduct

    def work(run: Run) -> Outcome:
        from agent.patching import command

        return command.apply(run, out, root, unsafe=unsafe, yes=yes, recapture=recapture)

    return conduct("apply", sys.argv[1:], work, json=json)


def undo(root: Root = Path(), json: Json = False) -> int:
    """Take back the patch that was applied last.

    Files get the exact bytes they had; new files are removed.

    \b
    Example:
      shardproof undo
    """
    from agent.run import Outcome, Run, conduct

    def work(run: Run) -> Outcome:
        from agent.patching import command

        return command.undo(run, root)

    return conduct("undo", sys.argv[1:], work, json=json)


def redo(root: Root = Path(), json: Json = False) -> int:
    """Apply again the patch that was undone last.

    \b
    Example:
      shardproof redo
    """
    from agent.run import Outcome, Run, conduct

    def work(run: Run) -> Outcome:
        from agent.patching import command

        return command.redo(run, root)

    return conduct("redo", sys.argv[1:], work, json=json)


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    for command in (diff, apply, undo, redo):
        app.command(epilog=PATCH_EXITS)(command)
