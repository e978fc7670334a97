"""Whatever the loops and stores: a lifted program computes what the script does, or is refused.

Programs share loops, overwrite buffers, carry values from one iteration to the next, read what
was not written and leave their buffers; most must be refused, and none may be lifted wrong.
"""

from __future__ import annotations

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from verifier.tir_lifter import TirError, compare, lift_text

INDICES = ("i", "i", "i", "i", "5 - i", "j", "i // 2", "i % 3", "2", "i + 1", "i * 2 + j")
VALUES = ("A[{0}]", "X[{0}]", "C[{0}]", "1.0", "T.cast(i, 'float32')")
TARGETS = ("X", "C", "C", "Y")


@st.composite
def stores(draw: st.DrawFn) -> str:
    at = draw(st.sampled_from(INDICES))
    target = f"{draw(st.sampled_from(TARGETS))}[{at}]"
    parts = [
        draw(st.sampled_from((*VALUES, "Y[{0}]"))).format(draw(st.sampled_from((at, *INDICES))))
        for _ in range(draw(st.integers(1, 2)))
    ]
    update = draw(st.sampled_from(["", "", f"{target} + ", f"{target} * "]))
    return f"{target} = {update}{' + '.join(parts)}"


@st.composite
def nests(draw: st.DrawFn) -> list[str]:
    """Lines of one loop nest over i, j, or over i with stores around an inner loop."""
    kind = draw(st.sampled_from(["serial", "serial", "serial", "parallel"]))
    n = draw(st.sampled_from([3, 5, 6, 6]))
    lines = [f"for i in T.{kind}({n}):"]
    if draw(st.booleans()):
        body = draw(st.lists(stores(), min_size=1, max_size=3))
        return [*lines, *(f"    {s.replace('j', '1')}" for s in body)]
    before = draw(st.lists(stores(), max_size=1))
    inside = draw(st.lists(stores(), min_size=1, max_size=2))
    after = draw(st.lists(stores(), max_size=1))
    lines += [f"    {s.replace('j', '0')}" for s in before]
    lines += [f"    for j in T.serial({draw(st.sampled_from([2, 3]))}):"]
    lines += [f"        {s}" for s in inside]
    lines += [f"    {s.replace('j', '0')}" for s in after]
    return lines


START = ["for z in range(6):", "    X[z] = A[z] * 0.5", "for z in range(6):", "    C[z] = A[5 - z]"]


def script(nests: list[list[str]], started: bool) -> str:
    body = ['X = T.alloc_buffer((6,), "float32")', 'Y = T.alloc_buffer((6,), "float32")']
    body += START if started else []
    for nest in nests:
        body += nest
    head = "def f(A: T.Buffer((6,), 'float32'), C: T.Buffer((6,), 'float32')):"
    return "\n".join(["@T.prim_func", head, *(f"    {line}" for line in body)])


@settings(max_examples=250, deadline=None)
@given(st.lists(nests(), min_size=1, max_size=3), st.sampled_from([True] * 9 + [False]))
def test_a_program_is_lifted_right_or_refused(many: list[list[str]], started: bool) -> None:
    text = script(many, started)
    try:
        made = lift_text(text, "f.py")
    except TirError as error:
        event("refused")
        located = error.where.startswith("f.py:")
    else:
        event("lifted")
        compare(made)
        located = True
    assert located


@pytest.mark.parametrize(
    "line",
    [
        "C[i] = C[i - 1] + A[i]",
        "C[i // 2] = A[i]",
        "C[0] = A[i]",
        "X[i] = C[5 - i]\n        C[i] = X[i]",
    ],
)
def test_a_recurrence_is_refused(line: str) -> None:
    with pytest.raises(TirError, match=r"f.py:\d+:\d+: (C carries|an element of C|index 0 of C)"):
        lift_text(script([["for i in T.serial(6):", f"    {line}"]], True), "f.py")
