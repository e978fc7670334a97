"""Order queries and verdicts against every execution of small programs, one step at a time."""

from __future__ import annotations

from hypothesis import HealthCheck, assume, event, given, settings

from shardproof.verifier.order.checks import CHECKS
from shardproof.verifier.order.context import Context
from shardproof.verifier.order.graph import build
from shardproof.verifier.order.machine import Execution
from shardproof.verifier.order.matching import Step, match
from shardproof.verifier.order.order import Order
from shardproof.verifier.order.verify import shown, verify_time
from tests.order.strategies import programs, states

SMALL = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.filter_too_much]
)
RACES = {*("data_race", "missing_wait", "buffer_aliasing", "in_flight_overwrite", "use_after_free")}
VALUES = {"dependency", "undefined_use"}


def _steps(run: Execution) -> frozenset[Step]:
    return frozenset({(*unit, "start") for unit in run.started} | {(*u, "end") for u in run.ended})


@SMALL
@given(programs(most=3))
def test_an_order_is_said_exactly_where_every_execution_keeps_it(program) -> None:
    """`a` before `b` iff no reachable state has `b` without `a`."""
    ctx = Context(program)
    assume(ctx.ends and ctx.order is not None and program.size <= 9)
    reached = [_steps(run) for run in states(program, "eager")]
    steps = {step: ctx.graph.node[step] for step in ctx.graph.node}
    searched = Order(build(program, match(program), waits=False), limit=0)
    for a, first in steps.items():
        for b, then in steps.items():
            always = all(a in done for done in reached if b in done)
            assert ctx.order.before(first, then) == always, (a, b)
            assert searched.before(first, then) == always, (a, b)


@SMALL
@given(programs())
def test_faults_are_reported_exactly_where_an_execution_has_them(program) -> None:
    """Hangs, overlapping accesses and wrong values, against every state that can be reached."""
    assume(program.size <= 7)
    found = [violation for check in CHECKS for violation in check.find(Context(program))]
    assert bool(found) == bool(verify_time(program))
    checks = {violation.check for violation in found}
    hangs = any(not run.enabled() and not run.finished() for run in states(program, "waits"))
    blocking = {"deadlock", "collective_order", "p2p_count", "communicator", "unissued_handle"}
    event("hangs" if hangs else "ends")
    assert hangs == bool(checks & blocking)
    if not hangs:
        sights = {sight for run in states(program, "eager") for sight in run.sights}
        overlaps = {frozenset((s.unit, s.other)) for s in sights if s.kind == "overlap"}
        pairs = {
            frozenset((place.rank, place.index, place.part) for place in violation.events)
            for violation in found
            if violation.check in RACES
        }
        event("races" if overlaps else "no races")
        assert pairs <= overlaps
        assert bool(pairs) == bool(overlaps)
        if not overlaps:
            wrong = {sight.unit for sight in sights if sight.kind in ("stale", "undefined")}
            event("wrong values" if wrong else "right values")
            assert wrong == {
                (violation.events[0].rank, violation.events[0].index, violation.events[0].part)
                for violation in found
                if violation.check in VALUES
            }
        queued = any(not run.enabled() and not run.finished() for run in states(program, "queue"))
        assert queued == ("launch_order" in checks)
    assert all(shown(violation) for violation in found)


@SMALL
@given(programs(most=8))
def test_a_stream_is_ordered_by_the_numbers_of_its_nodes(program) -> None:
    """What the checker of certificates takes a stream to mean follows from the edges."""
    graph = build(program, match(program), waits=False)
    for a in range(len(graph.steps)):
        reached, todo = {a}, [a]
        while todo:
            for then in graph.after[todo.pop()]:
                if then not in reached:
                    reached.add(then)
                    todo.append(then)
        assert {b for b in range(len(graph.steps)) if graph.follows(a, b)} <= reached
