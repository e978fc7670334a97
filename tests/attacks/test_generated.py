"""Some of the generated programs of `benchmarks/attacks`, run on gloo and judged."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.attacks.__main__ import Gloo, Row, row_of, summary
from benchmarks.attacks.compose import programs

pytestmark = pytest.mark.torch
KEYS = {
    "check buffers: drawn, hidden of mlp": "wrong",
    "check collectives: waited of moe": "right",
    "check hooks: hook of a parameter: g.contiguous() of mlp": "right",
    "check modes: not self.training, attribute, partial of mlp, v = v.clamp(max=0.1)": "wrong",
    "parallelize state: tick() > 1, helper, hidden of mlp alone, v = v.flip(-1)": "wrong",
    "parallelize modes: self.training, backward, hidden of attention alone, v = v.softmax(-1)": (
        "wrong"
    ),
}
"""Programs, and what is true of them."""
ASSUMED = "Later calls compute what the first two compute; only these are compared."


@pytest.fixture(scope="module")
def gloo() -> Iterator[Gloo]:
    runs = Gloo()
    yield runs
    runs.close()


@pytest.mark.gloo
@pytest.mark.parametrize("key", KEYS)
def test_wrong_ones_are_not_proved_and_right_ones_are(key, gloo, tmp_path: Path):
    program = next(p for p in programs() if p.key == key)
    row = row_of(program, tmp_path, gloo)
    assert row.truth == KEYS[key]
    assert (row.verdict == "proved") == (row.truth == "right"), row.said


def test_texts_are_python_and_more_than_600():
    made = programs()
    assert len(made) >= 600
    for program in made:
        compile(program.text, program.key, "exec")


def wrong(call: int, assumptions: list[str]) -> Row:
    return Row("a", "state", "wrong", [["train", True, 0, call]], "proved", "", assumptions)


def test_a_later_call_is_covered_where_the_verdict_says_so():
    assert not wrong(2, [ASSUMED]).proved_wrong
    assert wrong(1, [ASSUMED]).proved_wrong
    assert wrong(2, []).proved_wrong


def test_what_a_program_reads_is_covered_where_the_verdict_names_the_line():
    said = ["m.py:3 reads the clock: a run that reads something else is not covered."]
    read = replace(wrong(0, said), kind="process")
    assert not read.proved_wrong
    assert replace(read, kind="memory").proved_wrong
    assert replace(read, assumptions=[]).proved_wrong


def test_one_wrong_program_proved_or_few_right_ones_fail():
    right = Row("b", "state", "right", [], "proved", "")
    missed = Row("c", "state", "right", [], "refused", "")
    assert summary([right])[1]
    assert not summary([right, missed])[1]
    assert not summary([right, wrong(0, [])])[1]
