"""`lift`, `schedule`, `order` and `bench`: kernels, pipeline schedules, events of ranks, chats."""

import sys
from collections.abc import Sequence
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path

from shardproof.agent.actions.runs import Bench, Lift, Schedule
from shardproof.agent.run import events
from shardproof.agent.run.errors import Exit, InputError
from shardproof.agent.run.files import read_text
from shardproof.agent.run.run import Outcome, Run
from shardproof.installed import IMPORTED_FROM


def lift(run: Run, asked: Lift) -> Outcome:
    """Lift a kernel, and prove it on ranks where a mesh is given. Raises InputError."""
    from shardproof.synthesis.frontends.tir.command import BAD_INPUT, main_lift

    with run.phase("lift"):
        code, said = main_lift(
            str(asked.path),
            asked.mesh,
            placements=asked.place,
            outputs=asked.output,
            collectives=asked.collective,
            extents=asked.extent,
            func=asked.func,
            local=asked.local,
        )
    if code == BAD_INPUT:
        raise InputError(said, where=str(asked.path))
    return Outcome(Exit.PROVED if code == 0 else Exit.NOT_PROVED, answer=said)


def schedule(run: Run, asked: Schedule) -> Outcome:
    """Check a schedule, and draw it. Raises InputError."""
    from shardproof.synthesis import schedules

    with run.phase("read") as phase:
        if asked.source in schedules.GENERATORS:
            sizes = asked.stages, asked.micro_batches, asked.chunks
            found = schedules.generate(asked.source, *sizes)
        else:
            kinds = f"a kind ({', '.join(schedules.GENERATORS)}) or a file"
            found = schedules.parse(
                read_text(Path(asked.source), "the schedule", kinds), asked.source
            )
        phase.summary = f"{len(found.stages)} stages"
    with run.phase("check"):
        faults = schedules.check_schedule(found)
    if asked.svg is not None:
        asked.svg.write_text(schedules.draw_svg(found), encoding="utf-8")
    drawn = schedules.to_text(found) if asked.text else "" if faults else schedules.draw_text(found)
    return _told(run, [(str(f), str(f.source)) for f in faults], drawn)


def order(run: Run, path: Path) -> Outcome:
    """Check events of ranks. Raises InputError."""
    from shardproof.verifier.order.text import parse_text
    from shardproof.verifier.order.verify import verify_time

    with run.phase("read"):
        program = parse_text(read_text(path, "the events", "a file of events"), str(path))
    with run.phase("check"):
        found = verify_time(program)
    lines: list[tuple[str, str]] = []
    for violation in found:
        steps = violation.trace.lines() if violation.trace is not None else []
        shown = "\n".join([f"{violation.check}: {violation.message}", *(f"  {s}" for s in steps)])
        lines.append((shown, "; ".join(map(str, violation.events))))
    return _told(run, lines, "")


def _told(run: Run, faults: Sequence[tuple[str, str]], drawn: str) -> Outcome:
    for message, where in faults:
        run.emit(events.VerdictReached(verdict="refuted", message=message, where=where))
    if faults:
        return Outcome(Exit.NOT_PROVED, "refuted", answer=drawn or "refuted")
    return Outcome(Exit.PROVED, "proved", answer=drawn or "in order")


def bench(run: Run, asked: Bench) -> Outcome:
    """Ask a model of a chat. Raises InputError: nothing to run, or not installed."""
    if asked.what != "agent" or asked.offline not in ("", "scripted"):
        got = asked.what if asked.what != "agent" else f"--offline {asked.offline}"
        raise InputError("nothing to run", got=got, expected="agent, --offline scripted")
    sys.path.insert(0, IMPORTED_FROM)
    try:
        running = import_module("benchmarks.agent.running")
        scripted = import_module("tests.chat.strong").asked if asked.offline else nullcontext
    except ModuleNotFoundError as error:
        hint = "run it in a checkout of the project"
        raise InputError("the benchmark is not installed", got=str(error), hint=hint) from None
    with scripted():
        found = running.bench(asked.results, asked.only, asked.without, run.note)
    left = running.unsolved_rows(found)
    return Outcome(
        Exit.NOT_PROVED if left else Exit.PROVED, answer="\n".join([running.table(found), *left])
    )
