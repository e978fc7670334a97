"""Runs the tasks, keeps a row for each, and shows them as a table."""

from __future__ import annotations

import json
import os
import re
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.agent.bases import Bases
from benchmarks.agent.tasks import TASKS, Seen, Task, unsolved
from shardproof.agent.chat.models import Asker, Source
from shardproof.agent.chat.state import Spent
from shardproof.agent.llm.answers import Answer
from shardproof.agent.llm.client import Form, Message
from shardproof.agent.run import events
from shardproof.agent.run.errors import InputError

WITHOUT: dict[str, tuple[str, ...]] = {
    "": (),
    "search": ("plan", "candidates", "price", "why-not"),
    "counterexample": ("cex", "explain"),
    "fixes": ("repair",),
}
"""Commands that the model is not offered in an ablation."""
REFUTED = re.compile(r"(refuted): .*(?:\n +.*)*")


@dataclass(frozen=True)
class Row:
    """What came of a task."""

    task: str
    without: str
    model: str
    solved: bool
    why: str
    """Why it is not solved."""
    steps: int
    """Commands that the model had run."""
    questions: int
    prompt_tokens: int
    completion_tokens: int
    usd: float | None
    seconds: float


class Blind(Asker):
    """An asker whose model is told that a program is refuted, and not by what."""

    def ask(self, messages: Sequence[Message], form: Form | None = None) -> Answer:
        hidden = [{**m, "content": REFUTED.sub(r"\1", m["content"])} for m in messages]
        return super().ask(hidden, form)


def files(folder: Path) -> dict[str, bytes]:
    """Every file under a folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }


def run(bases: Bases, task: Task, without: str = "") -> Row:
    """One task, from a copy of its base."""
    asker = Blind(Source.USER) if without == "counterexample" else Asker(Source.USER)
    session, heard = bases.begin(task.base, asker)
    session.withheld = frozenset(WITHOUT[without])
    session.agree = lambda _: True
    before, spent = files(bases.tree), session.asker.spent
    heard.seen.clear()
    begun = time.monotonic()
    try:
        for line in task.asked:
            session.do(line)
        seconds = time.monotonic() - begun
        happened = list(heard.seen)
        why = unsolved(task, Seen(session, before, files(bases.tree), happened))
    finally:
        session.close()
    return _row(task, without, happened, why, spent, seconds)


def _row(
    task: Task, without: str, seen: list[events.Event], why: str, spent: Spent, seconds: float
) -> Row:
    for event in seen:
        if isinstance(event, events.ModelAnswered):
            spent = spent.plus(event)
    failed = [e.message for e in seen if isinstance(e, events.Problem) and e.kind == "model"]
    return Row(
        task.name,
        without,
        ", ".join(spent.models),
        not why,
        "; ".join([why, *failed[:1]]) if why else "",
        sum(isinstance(e, events.CommandRun) for e in seen),
        sum(isinstance(e, events.ModelAsked) for e in seen),
        spent.prompt_tokens,
        spent.completion_tokens,
        spent.usd,
        round(seconds, 2),
    )


def rows(path: Path) -> list[Row]:
    """The rows of a results file; a last line that is torn is left out.

    Raises:
        InputError: a line that is no row.
    """
    found: list[Row] = []
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    for number, line in enumerate(text.split("\n")[:-1], 1):
        try:
            found.append(Row(**json.loads(line)))
        except (ValueError, TypeError):
            raise InputError("not a row of results", where=f"{path}:{number}") from None
    return found


def wanted(only: Iterable[str]) -> tuple[Task, ...]:
    """The tasks of these names; all where none is named.

    Raises:
        InputError: no such task.
    """
    known = {task.name: task for task in TASKS}
    wrong = [name for name in only if name not in known]
    if wrong:
        raise InputError("no such task", where="--only", got=wrong[0], expected=", ".join(known))
    return tuple(known[name] for name in only) or TASKS


def bench(
    results: Path, only: Sequence[str], ablations: Sequence[str], tell: Callable[[str], None]
) -> list[Row]:
    """Run what the results file has no row of; every row is on the disk when its task ends.

    Raises:
        InputError: no such task or ablation, or a results file that cannot be read.
    """
    tasks = wanted(only)
    unknown = [name for name in ablations if name not in WITHOUT]
    if unknown:
        names = ", ".join(name for name in WITHOUT if name)
        raise InputError("no such ablation", where="--without", got=unknown[0], expected=names)
    results = results.resolve()
    done = {(row.task, row.without) for row in rows(results)}
    results.parent.mkdir(parents=True, exist_ok=True)
    os.environ["SHARDPROOF_ANSWER_CACHE"] = "0"  # every run asks
    here = Path.cwd()
    with tempfile.TemporaryDirectory() as scratch:
        bases = Bases(Path(scratch))
        try:
            for without in ablations or ("",):
                for task in tasks:
                    if (task.name, without) in done:
                        continue
                    row = run(bases, task, without)
                    with results.open("a", encoding="utf-8") as out:
                        out.write(json.dumps(asdict(row)) + "\n")
                    tell(f"{row.task}: {'solved' if row.solved else row.why}")
        finally:
            os.chdir(here)
    return rows(results)


def table(found: Sequence[Row]) -> str:
    """One row for each ablation, as Markdown."""
    heads = ("without", "solved", "commands", "questions", "tokens in", "tokens out", "USD", "s")
    lines = ["| " + " | ".join(heads) + " |", "|---|" + "---:|" * (len(heads) - 1)]
    for without in dict.fromkeys(row.without for row in found):
        lines.append("| " + " | ".join(_cells(without, found)) + " |")
    return "\n".join(lines)


def _cells(without: str, found: Sequence[Row]) -> list[str]:
    mine = [row for row in found if row.without == without]

    def mean(name: str) -> float:
        return statistics.fmean(getattr(row, name) for row in mine)

    costs = [row.usd for row in mine]
    usd = "-" if any(cost is None for cost in costs) else f"{sum(c or 0.0 for c in costs):.3f}"
    return [
        (without and f"no {without}") or "nothing",
        f"{sum(row.solved for row in mine)} of {len(mine)}",
        f"{mean('steps'):.1f}",
        f"{mean('questions'):.1f}",
        f"{mean('prompt_tokens'):,.0f}",
        f"{mean('completion_tokens'):,.0f}",
        usd,
        f"{mean('seconds'):.1f}",
    ]


def unsolved_rows(found: Sequence[Row]) -> list[str]:
    """What was not solved, a line each."""
    return [
        f"{row.task}{row.without and f' (no {row.without})'}: {row.why}"
        for row in found
        if not row.solved
    ]
