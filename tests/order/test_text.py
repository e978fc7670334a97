"""The text of event programs: one located error for anything that is not one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from shardproof.verifier.kernel.program.errors import MalformedError
from shardproof.verifier.order.builder import TimeBuilder
from shardproof.verifier.order.events import Compute, Send
from shardproof.verifier.order.text import parse_text
from shardproof.verifier.order.verify import verify_time
from tests.order.printing import to_text
from tests.order.strategies import programs

GOOD = """events p
communicator tp = (0, 1)
condition on
shared out
ranks 0-1
  holds w
  F: compute reads x, w[0:4] writes h  @ model.py:3 layer | h = f(x)
  all_reduce tp size 8 reads h from F writes h handle a stream side when not on
  broadcast tp root 0 reads h writes b when on
  group handle g { send to rank+1%2 via c as m size 4 reads h; recv from rank-1%2 via c as m }
  wait a when not on
  wait g
  record m
  await m stream side
  join side
  alloc t
  free t
  sync
"""


def test_everything_that_can_be_said_comes_back() -> None:
    program = parse_text(GOOD, "p.txt")
    assert to_text(parse_text(to_text(program))) == to_text(program)
    first = program.ranks[0].events[0]
    assert (first.source.file, first.source.line, first.source.text) == ("model.py", 3, "h = f(x)")
    assert program.ranks[1].events[1].source.line == 8
    assert [part.peer for part in program.ranks[0].events[3].parts] == [1, 1]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "at least one rank"),
        ("compute reads x", "p.txt:1:1: an event outside of a section"),
        ("rank 0\n  compte reads x", "p.txt:2:3: an event; expected one of"),
        ("rank 0\n  compte reads x", "did you mean compute?"),
        ("rank 0\n  compute read x", "did you mean reads?"),
        ("rank 0\n  compute reads x reads y", "given twice"),
        ("rank 0\n  compute reads x[4:2]", "lo < hi"),
        ("rank 0\n  compute reads", "a buffer such as"),
        ("rank 0\n  compute reads x from F", "p.txt:2: x from F; expected the label"),
        ("rank 0\n  F: compute\n  F: compute", "p.txt:3: label F of rank 0"),
        ("rank 0\n  all_reduce tp reads x", "a declared communicator"),
        ("communicator tp = (0, 0)\nrank 0\n  barrier tp", "rank 0 twice"),
        ("communicator tp = (0, 1) (1, 2)\nrank 0\n  barrier tp", "rank 1 twice"),
        ("communicator tp =\nrank 0\n  barrier tp", "at least one rank"),
        ("communicator tp = (0)\nrank 0\n  broadcast tp", "its root"),
        ("communicator tp = (0)\nrank 0\n  barrier tp root 0", "no root"),
        ("rank 0\n  send to x", "p.txt:2:11: a peer"),
        ("rank 0\n  send to rank+1%0", "a modulus above 0"),
        ("rank 0\n  group { compute }", "send or recv"),
        ("rank 0\n  group handle h", "in braces"),
        ("rank 0\n  group { send to 1 handle h }", "on the group"),
        ("rank 0\n  wait h reads x", "wait with reads"),
        ("rank 0\n  compute when maybe", "a declared condition"),
        ("ranks 5-2\n  sync", "a range such as 0-3"),
        ("ranks 0-999999999\n  sync", "a range such as 0-3"),
        ("machine loud\nrank 0\n  sync", "concurrent or buffered"),
        ("rank 0\n  compute @ nowhere", "source note"),
        ("rank 0\n  send to 1 size 1-2", "a number"),
        ("rank 0\n  compute $", "text after an event"),
    ],
)
def test_what_is_no_program_is_one_located_error(text: str, words: str) -> None:
    with pytest.raises(MalformedError) as error:
        parse_text(text, "p.txt")
    assert words in str(error.value)
    assert str(error.value).startswith("p.txt") or "rank" in words or "communicator" in text


@settings(max_examples=100, deadline=None)
@given(programs())
def test_random_programs_come_back(program) -> None:
    again = parse_text(to_text(program))
    assert to_text(parse_text(to_text(again))) == to_text(again)
    assert {v.check for v in verify_time(again)} == {v.check for v in verify_time(program)}


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_damaged_text_is_read_or_refused_but_never_worse(data: st.DataObject) -> None:
    lines = GOOD.splitlines()
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(lines) - 1))
        cut = data.draw(st.integers(0, len(lines[at])))
        put = data.draw(
            st.sampled_from(["", " ", "reads", "0-", "{", "}", ":", "@", "#", "é", "rank"])
        )
        lines[at] = lines[at][:cut] + put + lines[at][cut + data.draw(st.integers(0, 4)) :]
    try:
        program = parse_text("\n".join(lines), "p.txt")
    except MalformedError as error:
        said = str(error)
    else:
        verify_time(program)
        said = "p.txt"
    assert "p.txt" in said or "model.py" in said


def test_a_builder_refuses_what_the_text_refuses() -> None:
    builder = TimeBuilder()
    rank = builder.rank(0)
    rank.collective("all_reduce", "tp", "x")
    with pytest.raises(MalformedError, match="a declared communicator"):
        builder.build()
    rank.events[:] = [Compute(label="a"), Compute(label="a")]
    with pytest.raises(MalformedError, match="label a of rank 0"):
        builder.build()
    rank.events[:] = []
    rank.group(Send(peer=1, when=(("on", True),)))
    with pytest.raises(MalformedError, match="part of a group"):
        builder.build()


def test_too_many_ways_for_conditions_to_turn_out_are_refused() -> None:
    text = "condition c local\nranks 0-12\n  compute reads x when c"
    with pytest.raises(MalformedError, match="at most 4096 ways"):
        verify_time(parse_text(text))
    assert verify_time(parse_text(text.replace("12", "3"))) == []
