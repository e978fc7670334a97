"""Faults of order that were reported in public, each beside its repaired twin, and right programs
that look suspicious. A wrong file names the checks that refuse it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from shardproof.verifier.order.checks import CHECKS
from shardproof.verifier.order.machine import replay
from shardproof.verifier.order.text import parse_text
from shardproof.verifier.order.verify import shown, verify_time
from tests.order.printing import to_text

CORPUS = Path(__file__).with_name("corpus")
WRONG = sorted(CORPUS.glob("*.wrong.txt"))
RIGHT = sorted(CORPUS.glob("*.right.txt"))


def _read(path: Path):
    return parse_text(path.read_text(encoding="utf-8"), path.name)


@pytest.mark.parametrize("path", RIGHT, ids=lambda path: path.name)
def test_right_programs_pass(path: Path) -> None:
    assert [str(violation) for violation in verify_time(_read(path))] == []


@pytest.mark.parametrize("path", WRONG, ids=lambda path: path.name)
def test_wrong_programs_are_refused_and_shown(path: Path) -> None:
    expected = re.search(r"# expect: (.*)", path.read_text(encoding="utf-8"))
    assert expected is not None
    found = verify_time(_read(path))
    assert {violation.check for violation in found} == set(expected[1].split(", "))
    for violation in found:
        assert shown(violation), str(violation)
        assert all(place.source.line for place in violation.events)
        assert violation.trace is not None
        assert len(violation.trace.lines()) == len(violation.trace.steps)
        replay(violation.trace)


@pytest.mark.parametrize("path", WRONG + RIGHT, ids=lambda path: path.name)
def test_text_round_trip(path: Path) -> None:
    program = _read(path)
    again = parse_text(to_text(program))
    assert to_text(again) == to_text(program)
    assert {v.check for v in verify_time(again)} == {v.check for v in verify_time(program)}


def test_every_wrong_program_but_one_has_a_repaired_twin() -> None:
    right = {path.name.split(".")[0] for path in RIGHT}
    wrong = {path.name.split(".")[0] for path in WRONG}
    assert wrong - right == {"receive_before_its_send_can_come"}


def test_every_check_refuses_a_program_of_the_corpus() -> None:
    refused = {violation.check for path in WRONG for violation in verify_time(_read(path))}
    assert {check.name for check in CHECKS} - refused == {"p2p_peer", "p2p_size", "unissued_handle"}
    assert all(check.proves.endswith(".") and check.means.endswith(".") for check in CHECKS)


@pytest.mark.parametrize(
    ("text", "checks"),
    [
        ("rank 0\n  send to 0 reads a\n  recv from 0 writes a", {"p2p_peer"}),
        ("rank 0\n  send to 7 reads a", {"p2p_peer"}),
        ("rank 0\n  send to rank-1 reads a", {"p2p_peer"}),
        ("rank 0\n  wait h", {"unissued_handle"}),
        ("machine buffered\nrank 0\n  send to 1 reads a\nrank 1\n  sync", {"p2p_count"}),
        ("rank 0\n  send to 1 reads a\nrank 1\n  sync", {"p2p_count"}),
        ("rank 0\n  send to 1 via c size 4\nrank 1\n  recv from 0 via c size 8", {"p2p_size"}),
        ("rank 0\n  send to 1 via c\nrank 1\n  recv from 0 via d", {"p2p_count"}),
        ("communicator g = (0, 1)\nrank 0\n  barrier g", {"communicator"}),
        ("rank 0\n  alloc t\n  free t\n  compute writes t", {"undefined_use"}),
        ("rank 0\n  compute reads a from F\n  F: compute reads a", {"dependency"}),
        ("rank 0\n  group { send to 1 reads a; recv from 1 writes a }\nrank 1\n  group "
         "{ recv from 0 writes b; send to 0 reads c }", {"data_race"}),
        ("communicator g = (0, 1)\nranks 0-1\n  reduce g root 0 writes b handle h\n  sync", set()),
        ("communicator g = (0, 1)\nranks 0-1\n  all_reduce g writes b handle h\n  sync\n  "
         "compute reads b stream side", set()),
        ("communicator g = (0, 1)\nrank 0\n  broadcast g root 0\nrank 1\n  broadcast g root 1",
         {"collective_order"}),
        ("rank 0\n  compute writes a stream side\n  sync\n  compute reads a", set()),
        ("rank 0\n  compute writes a\n  free a\n  compute reads a", {"undefined_use"}),
        ("rank 0\n  compute writes a\n  free a\n  alloc a\n  compute writes a", set()),
        ("shared s\nrank 0\n  F: compute writes s\n  send to 1\nrank 1\n  F: recv from 0\n  "
         "compute reads s from F", {"dependency"}),
        ("shared s\nrank 0\n  compute writes s\n  send to 1\nrank 1\n  recv from 0\n  "
         "compute reads s", set()),
        ("shared s\nrank 0\n  compute writes s\n  recv from 1\nrank 1\n  send to 0\n  "
         "compute reads s", {"data_race"}),
    ],
)  # fmt: skip
def test_small_programs(text: str, checks: set[str]) -> None:
    found = verify_time(parse_text(text))
    assert {violation.check for violation in found} == checks
    assert all(map(shown, found))
