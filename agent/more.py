"""`lift`, `schedule` and `order`: kernels, pipeline schedules, and events of ranks."""

from collections.abc import Sequence
from pathlib import Path

from agent import events
from agent.errors import Exit, InputError
from agent.run import Outcome, Run


def lift(
    run: Run,
    path: Path,
    mesh: str,
    place: Sequence[str],
    outputs: Sequence[str],
    collectives: Sequence[str],
    extents: Sequence[str],
    func: str | None,
    local: str | None,
) -> Outcome:
    """Lift a script; with a mesh, decide the split kernel too.

    Raises:
        InputError: a script or an option that is not understood.
    """
    from synthesis.frontends.tir.command import BAD_INPUT, main_lift

    with run.phase("lift"):
        code, said = main_lift(
            str(path),
            mesh,
            placements=place,
            outputs=outputs,
            collectives=collectives,
            extents=extents,
            func=func,
            local=local,
        )
    if code == BAD_INPUT:
        raise InputError(said, where=str(path))
    return Outcome(Exit.PROVED if code == 0 else Exit.NOT_PROVED, answer=said)


def schedule(
    run: Run,
    source: str,
    stages: int,
    micro_batches: int,
    chunks: int,
    svg: Path | None,
    text: bool,
) -> Outcome:
    """Generate a schedule, or check the one in a file.

    Raises:
        InputError: neither a kind nor a file.
        MalformedError: a file that holds no schedule.
    """
    from synthesis import schedules

    with run.phase("read") as phase:
        if source in schedules.GENERATORS:
            found = schedules.generate(source, stages, micro_batches, chunks)
        else:
            found = schedules.parse(_read(Path(source), _kinds()), source)
        phase.summary = f"{len(found.stages)} stages"
    with run.phase("check"):
        faults = schedules.check_schedule(found)
    if svg is not None:
        svg.write_text(schedules.draw_svg(found), encoding="utf-8")
    drawn = schedules.to_text(found) if text else "" if faults else schedules.draw_text(found)
    return _told(run, [(str(f), str(f.source)) for f in faults], drawn)


def order(run: Run, path: Path) -> Outcome:
    """Judge the events in a file.

    Raises:
        MalformedError: a file that holds no events.
    """
    from verifier.order.text import parse_text
    from verifier.order.verify import verify_time

    with run.phase("read"):
        program = parse_text(_read(path, "a file of events"), str(path))
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


def _kinds() -> str:
    from synthesis.schedules import GENERATORS

    return f"a kind ({', '.join(GENERATORS)}) or a file"


def _read(path: Path, expected: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            "cannot be read", where=str(path), expected=expected, got=str(error)
        ) from None
