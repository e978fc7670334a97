"""`shardproof diff`, `apply`, `undo` and `redo`."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from shardproof.agent.patching import tree
from shardproof.agent.patching.facts import Applied, Preview
from shardproof.agent.run import events
from shardproof.agent.run.errors import Exit, InputError
from shardproof.agent.run.run import Outcome, Run
from shardproof.agent.verdict import reverify as recheck


def show(run: Run, out: Path, root: Path) -> Outcome:
    """Show what a patch would do to a tree. Ends in 1 where it could not be applied.

    Raises:
        InputError: no patch of ours, or no root.
    """
    seen = tree.preview(out, root)
    _emit(run, seen, "preview")
    if not seen.ready or seen.applicability == "display-only":
        for file in seen.files:
            if file.note:
                run.warn(f"{file.path}: {file.note}")
        for path in seen.stale:
            run.warn(f"{path}: the model was captured from it, and it changed since")
        for why in seen.because:
            run.warn(f"{seen.applicability}: {why}")
        return Outcome(Exit.NOT_PROVED, answer=seen.diff.rstrip("\n"))
    return Outcome(Exit.PROVED, "proved", answer=seen.diff.rstrip("\n"))


def apply(
    run: Run,
    out: Path,
    root: Path,
    *,
    unsafe: bool,
    yes: bool,
    recapture: bool = True,
    state_dir: Path | None = None,
) -> Outcome:
    """Show a patch, check its certificate and (with `recapture`) read it again, ask, apply it.

    Raises:
        InputError: it may not be applied, or not to this tree, or nobody said yes.
    """
    tree.recover(root, state_dir)
    seen = tree.preview(out, root)
    _emit(run, seen, "preview")
    tree.check_ready(seen, unsafe=unsafe)
    checked, rests = recheck.examined(run, seen.patch.parent, recapture, root)
    if checked.exit is not Exit.PROVED:
        return checked
    if not yes and not _agreed(seen, rests, read=recapture):
        return Outcome(Exit.NOT_PROVED, answer="not applied")
    done = tree.apply_patch(out, root, state_dir, unsafe=unsafe)
    read = "read again and proved" if recapture else "not read again"
    outcome = _done(run, done, f"applied, {read}; shardproof undo{_root(root)} reverts it")
    return replace(outcome, verdict=checked.verdict)


def undo(run: Run, root: Path, state_dir: Path | None = None) -> Outcome:
    """Take the last applied patch back.

    Raises:
        InputError: nothing to undo, or a file changed since.
    """
    return _done(
        run, tree.undo(root, state_dir), f"undone; shardproof redo{_root(root)} applies it"
    )


def redo(run: Run, root: Path, state_dir: Path | None = None) -> Outcome:
    """Apply again what was undone last.

    Raises:
        InputError: nothing to redo, or a file changed since.
    """
    done = tree.redo(root, state_dir)
    return _done(run, done, f"applied again; shardproof undo{_root(root)} reverts it")


def _root(root: Path) -> str:
    return "" if root == Path() else f" --root {root}"


def _agreed(seen: Preview, rests: Sequence[str], *, read: bool) -> bool:
    """Show the diff and what it rests on, and ask on the terminal."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise InputError(
            "nobody is there to say yes",
            where="apply",
            hint="shardproof diff shows the patch; --yes applies it without asking",
        )
    from shardproof.agent.run.console import printable

    sys.stderr.write(printable(seen.diff))
    for line in rests:
        sys.stderr.write(f"assumes: {printable(line)}\n")
    if not read:
        sys.stderr.write(f"{recheck.NOT_READ}\n")
    sys.stderr.write(f"apply to {seen.root}? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _emit(run: Run, seen: Preview, action: Literal["preview"]) -> None:
    run.emit(
        events.Patched(
            action=action,
            root=str(seen.root),
            files=[
                events.PatchedFile(path=f.path, added=f.added, removed=f.removed, state=f.state)
                for f in seen.files
            ],
            applicability=seen.applicability,
            diff=seen.diff,
        )
    )


def _done(run: Run, done: Applied, answer: str) -> Outcome:
    tell(run, done)
    return Outcome(Exit.PROVED, answer=answer)


def tell(run: Run, done: Applied) -> None:
    """Say what was done to the tree, and what had to be taken back first."""
    if done.recovered is not None:
        run.warn(str(done.recovered))
    run.emit(
        events.Patched(
            action=done.doing,
            root=str(done.root),
            files=[events.PatchedFile(path=path) for path in done.files],
        )
    )
