"""Distributed programs in time: what their text says of streams, storage, sends and receives."""

from __future__ import annotations

import pytest

from shardproof.verifier.kernel.program.errors import IRError
from shardproof.verifier.order.events import Collective, Group, Recv, Send
from shardproof.verifier.order.from_program import from_program
from shardproof.verifier.order.text import parse_text as parse_events
from shardproof.verifier.order.verify import shown, verify_time
from shardproof.verifier.text.parser import parse_text
from tests.order.printing import to_text

HEAD = "program p mesh(dp=4, tp=2)\ninput %x: f32[4, 4]\nparam %w: f32[4, 4]\n"
PIPE = """program p mesh(pp=2, tp=2)
input %x: f32[4, 4] on(pp=0)
param %w: f32[4, 4] on(pp=0)
param %v: f32[4, 4] on(pp=1)
"""
RIGHT = {
    "overlap": """
%y = mm %x, %w
%a = all_reduce %y {mesh_dim=tp} async
%q = mm %x, %w
%z = wait %a
%s = add %z, %q
return %s""",
    "two communicators in flight": """
%a = all_reduce %x {mesh_dim=tp} async
%b = all_gather %w {mesh_dim=dp, dim=0} async
%b2 = wait %b
%a2 = wait %a
return %a2, %b2""",
    "double buffer": """
%a = mm %x, %w into(one)
%ra = all_reduce %a {mesh_dim=dp} async
%b = mm %x, %w into(two)
%rb = all_reduce %b {mesh_dim=dp} async
%sa = wait %ra
%c = mm %x, %w into(one)
%rc = all_reduce %c {mesh_dim=dp} async
%sb = wait %rb
%sc = wait %rc
return %sa, %sb, %sc""",
    "a stream of its own": """
%y = mm %x, %w
%ready = wait %y stream(comm)
%a = all_reduce %ready {mesh_dim=tp} stream(comm)
%back = wait %a
return %back""",
    "an asynchronous product": """
%y = mm %x, %w async
%q = add %x, %x
%z = wait %y
%s = add %z, %q
return %s""",
    "in place": """
%y = all_reduce %x {mesh_dim=tp} into(x)
%z = mm %y, %w
return %z""",
    "a ring": """
%a = ring_shift %x {mesh_dim=dp}
%b = ring_shift %a {mesh_dim=dp} async
%q = mm %a, %w
%c = wait %b
%s = add %c, %q
return %s""",
    "rooted calls": """
%a = broadcast %x {mesh_dim=dp, index=2}
%b = reduce_to %a {mesh_dim=dp, index=1}
%c = broadcast %b {mesh_dim=dp, index=1}
return %c""",
}
WRONG = {
    "missing_wait, orphaned_handle": """
%a = all_reduce %x {mesh_dim=tp} async
%z = mm %a, %w
return %z""",
    "in_flight_overwrite": """
%y = mm %x, %w into(b)
%a = all_reduce %y {mesh_dim=tp} async
%q = mm %w, %x into(b)
%z = wait %a
%s = add %z, %q
return %s""",
    "dependency": """
%y = mm %x, %w into(b)
%q = mm %w, %x into(b)
%s = add %y, %q
return %s""",
    "data_race": """
%y = mm %x, %w
%a = all_reduce %y {mesh_dim=tp} stream(comm)
%z = wait %a
return %z""",
    "buffer_aliasing": """
%a = all_reduce %x {mesh_dim=tp} async into(b)
%c = all_reduce %w {mesh_dim=tp} async into(b)
%d = wait %a
%e = wait %c
return %e""",
    "data_race, missing_wait": """
%y = mm %x, %w async
%q = add %y, %x
%a = all_reduce %q {mesh_dim=tp} async
%z = wait %a stream(side)
return %z""",
}
PIPE_RIGHT = {
    "send and receive": """
%y = mm %x, %w
%t = send %y {mesh_dim=pp, src=0, dst=1}
%r = recv %t {mesh_dim=pp, src=0, dst=1}
%z = mm %r, %v
return %z""",
    "a send alone": """
%y = mm %x, %w
%t = send %y {mesh_dim=pp, src=0, dst=1}
%z = mm %t, %v
return %z""",
    "asynchronous": """
%y = mm %x, %w
%t = send %y {mesh_dim=pp, src=0, dst=1} async
%q = mm %x, %y
%r = recv %t {mesh_dim=pp, src=0, dst=1} async
%d = mm %v, %v
%r2 = wait %r
%z = mm %r2, %d
return %z, %q""",
}
PIPE_WRONG = {
    "p2p_order": """
%y = mm %x, %w
%q = mm %w, %x
%t1 = send %y {mesh_dim=pp, src=0, dst=1}
%t2 = send %q {mesh_dim=pp, src=0, dst=1}
%r2 = recv %t2 {mesh_dim=pp, src=0, dst=1}
%r1 = recv %t1 {mesh_dim=pp, src=0, dst=1}
%z = mm %r1, %r2
return %z""",
    "missing_wait, orphaned_handle": """
%t = send %x {mesh_dim=pp, src=0, dst=1}
%r = recv %t {mesh_dim=pp, src=0, dst=1} async
%z = mm %r, %v
return %z""",
    "deadlock": """
%t = send %x {mesh_dim=pp, src=0, dst=1}
%u = send %v {mesh_dim=pp, src=1, dst=0}
%ru = recv %u {mesh_dim=pp, src=1, dst=0}
%rt = recv %t {mesh_dim=pp, src=0, dst=1}
%a = mm %x, %ru
%b = mm %rt, %v
return %a, %b""",
}


def _cases():
    for head, right, wrong in ((HEAD, RIGHT, WRONG), (PIPE, PIPE_RIGHT, PIPE_WRONG)):
        yield from ((head + body, "") for body in right.values())
        yield from ((head + body, expected) for expected, body in wrong.items())


@pytest.mark.parametrize(("text", "expected"), list(_cases()))
def test_programs_in_time(text: str, expected: str) -> None:
    events = from_program(parse_text(text))
    found = verify_time(events)
    assert {v.check for v in found} == set(expected.split(", ") if expected else ())
    assert all(shown(violation) for violation in found)
    assert to_text(parse_events(to_text(events))) == to_text(events)


@pytest.mark.parametrize(("text", "expected"), list(_cases()))
def test_two_ranks_stand_for_all_that_do_the_same(
    text: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = parse_text(text)
    few = from_program(program)
    monkeypatch.setitem(from_program.__globals__, "enough", lambda program, few: program.mesh)
    every = from_program(program)
    assert len(every.ranks) == program.mesh.size >= len(few.ranks)
    assert {v.check for v in verify_time(every)} == {v.check for v in verify_time(few)}


def test_a_wrong_node_is_named_with_its_source() -> None:
    text = HEAD + (
        "%a = all_reduce %x {mesh_dim=tp} async  @ model.py:7 layer | h = dist.all_reduce(x)\n"
        "%z = mm %a, %w  @ model.py:8\nreturn %z"
    )
    found = {v.check: v for v in verify_time(from_program(parse_text(text)))}
    places = [place.source for place in found["missing_wait"].events]
    assert [(source.file, source.line) for source in places] == [("model.py", 7), ("model.py", 8)]
    assert found["missing_wait"].ranks == (1, 2, 3)


def test_events_of_a_pipeline() -> None:
    events = from_program(parse_text(PIPE + PIPE_RIGHT["send and receive"]))
    sends = {(r.rank, e.peer) for r in events.ranks for e in r.events if isinstance(e, Send)}
    recvs = {(r.rank, e.peer) for r in events.ranks for e in r.events if isinstance(e, Recv)}
    assert sends == {(0, 2), (1, 3)}
    assert recvs == {(2, 0), (3, 1)}


def test_roots_and_rings() -> None:
    events = from_program(parse_text(HEAD + RIGHT["rooted calls"]))
    roots = {(e.op, e.root) for e in events.ranks[1].events if isinstance(e, Collective)}
    assert roots == {("broadcast", 5), ("reduce", 3), ("broadcast", 3)}
    ring = from_program(parse_text(HEAD + RIGHT["a ring"]))
    groups = [e for e in ring.ranks[0].events if isinstance(e, Group)]
    assert [[part.peer for part in group.parts] for group in groups] == [[2, 6], [2, 6]]
    back = from_program(parse_text(HEAD + "%a = ring_shift %x {mesh_dim=dp, shift=3}\nreturn %a"))
    assert [part.peer for part in back.ranks[0].events[0].parts] == [6, 2]


SCAN = """program p mesh(tp=2)
input %x: f32[4, 4]
param %ws: f32[3, 4, 4]
%y = scan %x, %ws {{length=3, carry=1, xs=1}} {{
  carry %h: f32[4, 4]
  xs %w: f32[4, 4]
  %a = mm %h, %w into(slot)
  %b = all_reduce %a {{mesh_dim=tp}}{async_}
  {then}
  return carry %c
}}
return %y"""


@pytest.mark.parametrize(
    ("async_", "then", "checks"),
    [
        ("", "%c = add %b, %h", set()),
        (" async", "%b2 = wait %b\n  %c = add %b2, %h", set()),
        (" async", "%c = add %h, %h", {"in_flight_overwrite", "orphaned_handle"}),
        (" async", "%c = add %b, %h", {"in_flight_overwrite", "missing_wait", "orphaned_handle"}),
    ],
)
def test_steps_of_a_scan_follow_each_other(async_: str, then: str, checks: set[str]) -> None:
    events = from_program(parse_text(SCAN.format(async_=async_, then=then)))
    assert {v.check for v in verify_time(events)} == checks


def test_a_step_of_a_scan_reads_what_the_last_one_made() -> None:
    events = from_program(parse_text(SCAN.format(async_="", then="%c = add %b, %h")))
    adds = [e for e in events.ranks[0].events if e.label.startswith("c")]
    assert [(e.label, [a.of for a in e.reads]) for e in adds] == [
        ("c", ["b", ""]),
        ("c.1", ["b.1", "c"]),
        ("c.2", ["b.2", "c.1"]),
    ]
    last = events.ranks[0].events[-1]
    assert [access.of for access in last.reads] == ["c.2"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            PIPE
            + "%t = send %x {mesh_dim=pp, src=0, dst=1}\n%b = mm %t, %v\n"
            + "%r = recv %t {mesh_dim=pp, src=0, dst=1}\nreturn %r, %b",
            "on its way",
        ),
        ("program p mesh(tp=2)\ninput %x: f32[4] on(tp=0)\n%y = all_reduce %x {mesh_dim=tp}\n"
         "return %y", "never join"),
    ],
)  # fmt: skip
def test_programs_without_a_meaning_in_time_are_one_error(text: str, words: str) -> None:
    with pytest.raises(IRError, match=words):
        from_program(parse_text(text))
