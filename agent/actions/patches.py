"""Actions on a directory that `parallelize` wrote, and on the files that its patch changes."""

from pathlib import Path
from typing import Annotated

from shardproof.agent.actions.action import Action, Argument, option
from shardproof.agent.actions.models import Root

Out = Annotated[Path, Argument("A directory that parallelize wrote.", "OUT")]
PATCH_EXITS = (
    "Exit codes: 0 done, 1 not applied (diff: does not fit; apply: rejected, or not proved), "
    "2 refused and nothing written, 70 our own fault, 130 interrupted."
)


class Diff(Action, work="patching.command:show", exits=PATCH_EXITS):
    """Show a patch and whether it fits the files. Writes nothing.

    \b
    Examples:
      shardproof diff out/
      shardproof diff out/ --root ~/project
    """

    out: Out
    root: Root = Path()


class Apply(Action, work="patching.command:apply", exits=PATCH_EXITS):
    """Apply a proved patch to your files, all of them or none.

    It checks the certificate, then reads and proves the patched source again;
    --no-recapture trusts the hashes of the directory instead. Every file must have its recorded
    hash. No git command runs on your tree. `shardproof undo` reverts the patch.

    \b
    Examples:
      shardproof apply out/
      shardproof apply out/ --root ~/project --yes
    """

    out: Out
    root: Root = Path()
    unsafe: bool = option(
        False, "Apply even if the program was only compared with the code on samples."
    )
    yes: bool = option(False, "Do not ask.")
    recapture: bool = option(True, "Read the patched source again and prove it first.")


class Undo(Action, work="patching.command:undo", exits=PATCH_EXITS):
    """Take back the patch that was applied last.

    Restores exact bytes and removes new files.

    \b
    Example:
      shardproof undo
    """

    root: Root = Path()


class Redo(Action, work="patching.command:redo", exits=PATCH_EXITS):
    """Apply again the patch that was undone last.

    \b
    Example:
      shardproof redo
    """

    root: Root = Path()
