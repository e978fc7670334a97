"""Whether a program of events can hang or see wrong values."""

from dataclasses import replace

from shardproof.verifier.order.checks import CHECKS
from shardproof.verifier.order.context import Context
from shardproof.verifier.order.events import TimeProgram
from shardproof.verifier.order.machine import replay
from shardproof.verifier.order.paths import paths
from shardproof.verifier.order.violation import Violation


def verify_time(program: TimeProgram) -> list[Violation]:
    """Every violation of the checks; none: the program is safe in time.

    An order is judged only of programs that come to their end: where ranks hang, or calls do not
    fit, that is what is reported.

    Raises:
        MalformedError: conditions with too many ways to turn out.
    """
    found: dict[tuple[object, ...], Violation] = {}
    for path, chosen in paths(program):
        ctx = Context(chosen)
        violations = [violation for check in CHECKS for violation in check.find(ctx)]
        if not violations and (not ctx.ends or ctx.order is None):
            raise AssertionError("a program that does not end passed all checks")
        for violation in violations:
            key = _key(violation)
            known = found.get(key)
            if known is None:
                found[key] = replace(violation, path=path)
            elif violation.events:
                seen = {known.events[0].rank, *known.ranks}
                new = {violation.events[0].rank} - seen
                found[key] = replace(known, ranks=tuple(sorted({*known.ranks, *new})))
    return list(found.values())


def _key(violation: Violation) -> tuple[object, ...]:
    """The same for violations of ranks that run the same text; events of several ranks tell which
    are alike."""
    names = [place.rank for place in violation.events]
    alike = tuple(names.index(rank) for rank in names)
    return violation.check, violation.message, alike, tuple(p.event for p in violation.events)


def shown(violation: Violation) -> bool:
    """Whether running the trace of a violation shows it.

    Raises:
        ValueError: the trace is no execution.
    """
    if violation.trace is None:
        return False
    outcome = replay(violation.trace)
    units = {(place.rank, place.index, place.part) for place in violation.events}
    match violation.check:
        case "deadlock" | "launch_order" | "consistent_order":
            waiting = {unit[:2] for unit, _ in outcome.blocked}
            return outcome.stuck and bool(waiting & {unit[:2] for unit in units})
        case "orphaned_handle":
            return units <= set(outcome.in_flight)
        case "p2p_count" | "p2p_peer":
            return units <= set(outcome.left_over)
        case "unrecorded_mark":
            return any(s.unit in units and s.kind == "mark" for s in outcome.sights)
        case "p2p_order" | "p2p_size":
            return any(units == {s.unit, s.other} for s in outcome.sights)
        case "dependency" | "undefined_use":
            return any(s.unit in units and s.kind in ("stale", "undefined") for s in outcome.sights)
        case "data_race" | "missing_wait" | "buffer_aliasing" | "in_flight_overwrite":
            return any(units == {s.unit, s.other} for s in outcome.sights)
        case "use_after_free":
            return any(units == {s.unit, s.other} for s in outcome.sights)
        case _:
            return outcome.stuck
