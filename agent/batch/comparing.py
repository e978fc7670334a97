"""Two runs of a batch side by side: what got better, what broke."""

from pathlib import Path
from typing import Literal

from pydantic import BaseModel

from shardproof.agent.batch.rows import ORDER, Row
from shardproof.agent.batch.summary import detail, rows_in
from shardproof.agent.run.errors import Exit, InputError
from shardproof.agent.run.run import Outcome, Run

SLOWER = 1.5
"""Times the seconds of the older run from which a job counts as slower, if it took a second."""


class Change(BaseModel, frozen=True, extra="forbid"):
    """A job that came out otherwise."""

    job: str
    kind: Literal["broke", "better", "slower", "plan", "new", "gone"]
    text: str


def compare(old: Path, new: Path) -> Outcome:
    """Compare the summaries of two folders; nothing that broke is exit code 0.

    Raises:
        InputError: a folder without a summary.
    """
    found = changes(_read(old), _read(new))
    lines = [f"{c.kind:<7} {c.job}: {c.text}" for c in found]
    broke = any(c.kind == "broke" for c in found)
    head = f"{len(found)} jobs changed" if found else "no job changed"
    return Outcome(Exit.NOT_PROVED if broke else Exit.PROVED, answer="\n".join([*lines, head]))


def compared(run: Run, old: Path, new: Path) -> Outcome:
    """`shardproof batch-compare`."""
    del run
    return compare(old, new)


def _read(root: Path) -> dict[str, Row]:
    found = rows_in(root)
    if not found:
        raise InputError("no summary of a batch", where=str(root), expected="a summary.json")
    return found


def changes(old: dict[str, Row], new: dict[str, Row]) -> list[Change]:
    """What is otherwise in the second run, what broke first."""
    out = [Change(job=n, kind="gone", text=_end(r)) for n, r in old.items() if n not in new]
    for name, row in new.items():
        before = old.get(name)
        change = Change(job=name, kind="new", text=_end(row)) if before is None else None
        change = _change(before, row) if before is not None else change
        out += [change] if change is not None else []
    kinds = ("broke", "slower", "gone", "plan", "new", "better")
    return sorted(out, key=lambda c: (kinds.index(c.kind), c.job))


def _change(old: Row, new: Row) -> Change | None:
    if "not run" in (old.status, new.status):
        return None
    was, now = _rank(old), _rank(new)
    if was != now:
        text = f"{_end(old)} -> {_end(new)}"
        return Change(job=new.name, kind="better" if now > was else "broke", text=text)
    if old.strategy != new.strategy:
        return Change(job=new.name, kind="plan", text=f"{old.strategy} -> {new.strategy}")
    if not new.kept and new.seconds > max(1.0, SLOWER * old.seconds):
        text = f"{old.seconds:.1f} s -> {new.seconds:.1f} s"
        return Change(job=new.name, kind="slower", text=text)
    return None


def _rank(row: Row) -> tuple[int, bool, bool]:
    return ORDER.index(row.status), row.useful is not False, row.agrees is not False


def _end(row: Row) -> str:
    useless = ", not useful" if row.status == "proved" and row.useful is False else ""
    why = f" ({detail(row)})" if row.cause is not None else ""
    return f"{row.status}{useless}{why}"
