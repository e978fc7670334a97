"""Scripts that are refused: one located message each, and the repaired script beside it."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any, cast

import pytest

from shardproof.compat.tir_lifter import TirError, lift, main_lift

HEAD = "@T.prim_func\ndef f(A: T.Buffer((4, 6), 'float32'), C: T.Buffer((4, 6), 'float32')):\n"


def script(body: str) -> str:
    return HEAD + textwrap.indent(textwrap.dedent(body).strip(), "    ")


MAP = """
for i, j in T.grid(4, 6):
    with T.block("C"):
        {axes}
        C[vi, vj] = {value}
"""
PLAIN = "vi, vj = T.axis.remap('SS', [i, j])"


def mapped(axes: str = PLAIN, value: str = "A[vi, vj]") -> str:
    return script(MAP.format(axes=axes.replace("\n", "\n        "), value=value))


def reduced(kinds: str = "SR", init: str = "C[vi, 0] = T.float32(0)", loop: str = "serial") -> str:
    return f"""@T.prim_func
def f(A: T.Buffer((4, 6), 'float32'), C: T.Buffer((4, 1), 'float32')):
    for i in range(4):
        for k in T.{loop}(6):
            with T.block("C"):
                vi, vk = T.axis.remap("{kinds}", [i, k])
                with T.init():
                    {init}
                C[vi, 0] = C[vi, 0] + A[vi, vk]
"""


REFUSED = {
    "no function": ("x = 1", "which function is meant", mapped()),
    "not python": (HEAD + "    for", "f.py:3:8: not Python syntax", mapped()),
    "an unknown statement": (
        script("while True:\n    pass"),
        "f.py:3:5: while statement is not understood",
        mapped(),
    ),
    "an unknown function": (
        mapped(value="T.lgamma(A[vi, vj])"),
        "f.py:6:25: function T.lgamma is not understood; expected one of T.",
        mapped(value="T.exp(A[vi, vj])"),
    ),
    "an unknown name": (
        mapped(value="A[vi, q]"),
        "f.py:6:31: q is not defined here",
        mapped(),
    ),
    "too few indices": (mapped(value="A[vi]"), "A has 2 dims; expected 2 indices, got 1", mapped()),
    "an index out of bounds": (
        mapped(value="A[vi, vj + 1]"),
        "f.py:6:25: index 1 of A can leave the buffer; expected 0 to 5, got 1 to 6",
        mapped(value="A[vi, 5 - vj]"),
    ),
    "a condition that does not guard enough": (
        mapped(value="T.if_then_else(vj < 5, A[vi, vj + 2], 0.0)"),
        "index 1 of A can leave the buffer",
        mapped(value="T.if_then_else(vj < 4, A[vi, vj + 2], 0.0)"),
    ),
    "a select guards nothing": (
        mapped(value="T.Select(vj < 4, A[vi, vj + 2], 0.0)"),
        "index 1 of A can leave the buffer",
        mapped(value="T.if_then_else(vj < 4, A[vi, vj + 2], 0.0)"),
    ),
    "an axis bound twice to one loop": (
        mapped("vi = T.axis.spatial(4, i)\nvj = T.axis.spatial(6, i)"),
        "is not a bijection",
        mapped("vi = T.axis.spatial(4, i)\nvj = T.axis.spatial(6, j)"),
    ),
    "an axis that leaves its domain": (
        mapped("vi = T.axis.spatial(4, i)\nvj = T.axis.spatial(6, j * 2)"),
        "f.py:6:13: axis vj of block 'C' leaves its domain; expected 0 to 5, got 10",
        mapped("vi = T.axis.spatial(4, i)\nvj = T.axis.spatial(6, 5 - j)"),
    ),
    "an instance that never runs": (
        mapped("vi = T.axis.spatial(4, i // 2)\nvj = T.axis.spatial(6, j)"),
        "runs more than once at vi=0",
        mapped("vi = T.axis.spatial(4, i)\nvj = T.axis.spatial(6, (j + 1) % 6)"),
    ),
    "a predicate that cuts too much": (
        mapped("vi = T.axis.spatial(4, i)\nvj = T.axis.spatial(6, j)\nT.where(j < 5)"),
        "runs never at vj=5",
        mapped("vi = T.axis.spatial(4, i)\nvj = T.axis.spatial(6, j)\nT.where(j < 6)"),
    ),
    "a read that is not declared": (
        mapped(PLAIN + "\nT.reads(A[vi, 0])\nT.writes(C[vi, vj])"),
        "the body reads A outside what T.reads declares",
        mapped(PLAIN + "\nT.reads(A[vi, 0:6])\nT.writes(C[vi, vj])"),
    ),
    "a write that is not declared": (
        mapped(PLAIN + "\nT.writes(A[vi, vj])"),
        "the body writes C outside what T.writes declares; expected C in T.writes",
        mapped(PLAIN + "\nT.writes(C[vi, vj])"),
    ),
    "a sum over a spatial axis": (
        reduced("SS"),
        "f.py:8:21: a race on C over the spatial axis vk",
        reduced("SR"),
    ),
    "a sum over a parallel loop": (
        reduced(loop="parallel"),
        "a race on C over the parallel loop k",
        reduced(loop="unroll"),
    ),
    "a sum that starts from nothing": (
        reduced(init="pass"),
        "C is read before it is written",
        reduced(),
    ),
    "a start in the wrong place": (
        reduced(init="C[3 - vi, 0] = T.float32(0)"),
        "C carries a value from one iteration to another",
        reduced(),
    ),
    "a start with an infinity for a sum": (
        reduced(init="C[vi, 0] = T.float32('-inf')"),
        "an infinity",
        reduced(init="C[vi, 0] = T.float32(1)"),
    ),
    "an output that is not whole": (
        script("for i, j in T.grid(4, 5):\n    C[i, j] = A[i, j]"),
        "C is not written everywhere; expected a store to every element, got nothing "
        "in C[0:4, 5:6]",
        script("for i, j in T.grid(4, 6):\n    C[i, j] = A[i, j]"),
    ),
    "a buffer read before it is written": (
        script(
            "B = T.alloc_buffer((4,), 'float32')\n"
            "for i in range(2):\n    B[i] = 1.0\n"
            "for i, j in T.grid(4, 6):\n    C[i, j] = A[i, j] + B[i]"
        ),
        "B is read before it is written; expected T.init, T.clear or a store first, got nothing in "
        "B[2:4]",
        script(
            "B = T.alloc_buffer((4,), 'float32')\n"
            "for i in range(4):\n    B[i] = 1.0\n"
            "for i, j in T.grid(4, 6):\n    C[i, j] = A[i, j] + B[i]"
        ),
    ),
    "a neighbour in a parallel loop": (
        script(
            "B = T.alloc_buffer((4, 6), 'float32')\n"
            "for i, j in T.Parallel(4, 6):\n"
            "    B[i, j] = A[i, j]\n"
            "    C[i, j] = B[i, 5 - j]"
        ),
        "a race on B over the parallel loop j",
        script(
            "B = T.alloc_buffer((4, 6), 'float32')\n"
            "for i, j in T.Parallel(4, 6):\n    B[i, j] = A[i, j]\n"
            "for i, j in T.Parallel(4, 6):\n    C[i, j] = B[i, 5 - j]"
        ),
    ),
    "an integer stored as a float": (
        mapped(value="T.cast(A[vi, vj], 'int32')"),
        "an integer is stored to C; expected f32",
        mapped(value="T.cast(T.cast(A[vi, vj], 'int32'), 'float32')"),
    ),
    "tiles that do not fit": (
        script("s = T.alloc_shared((3, 6), 'float32')\nT.copy(A, s)\nT.copy(A, C)"),
        "T.copy of tiles of different shapes; expected [3, 6], got [4, 6]",
        script("s = T.alloc_shared((4, 6), 'float32')\nT.copy(A, s)\nT.copy(s, C)"),
    ),
    "a strided store": (
        script("for i, j in T.grid(4, 3):\n    C[i, j * 2] = A[i, j]"),
        "index 1 of the store to C does not fill a box",
        script("for i, j, k in T.grid(4, 3, 2):\n    C[i, j * 2 + k] = A[i, j * 2 + k]"),
    ),
    "an argument that would be lost": (
        script("for i in T.serial(4, start=2):\n    C[i, 0] = 1.0"),
        "argument start of a loop",
        mapped(),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_script_is_refused_and_its_repair_is_lifted(name: str) -> None:
    wrong, message, right = REFUSED[name]
    with pytest.raises(TirError) as caught:
        lift(wrong, "f.py")
    assert message.replace("\n", " ") in str(caught.value)
    assert str(caught.value).startswith("f.py")
    assert "\n" not in str(caught.value)
    lift(right, "f.py", check=True)


SYMBOLIC = """
@T.prim_func
def f(a: T.handle, C: T.Buffer((4,), "float32")):
    n = T.int64()
    A = T.match_buffer(a, (n,), "float32")
    for i in range(4):
        C[i] = A[i]
"""


def test_a_symbolic_extent_must_be_given() -> None:
    with pytest.raises(TirError, match=r"f.py:4:5: extent n is symbolic.*extents="):
        lift(SYMBOLIC, "f.py")
    with pytest.raises(TirError, match="index 0 of A can leave the buffer"):
        lift(SYMBOLIC, "f.py", extents={"n": 3})
    with pytest.raises(TirError, match="the script has no extent q"):
        lift(SYMBOLIC, "f.py", extents={"n": 4, "q": 1})
    assert lift(SYMBOLIC, "f.py", extents={"n": 4}).outputs[0].path == "C"


FACTORY = """
def make(n=4):
    size = n
    {line}
    @T.prim_func
    def f(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
        for i in range(size):
            C[i] = A[i]
    return f
"""


@pytest.mark.parametrize("line", ["if n > 2:\n        size = 8", "size = min(n)", "size += 4"])
def test_a_constant_that_is_not_one_is_not_guessed(line: str) -> None:
    with pytest.raises(TirError, match="a loop bound is not a known integer"):
        lift(FACTORY.format(line=line), "f.py")
    lift(FACTORY.format(line="size = 2 * size"), "f.py")
    lift(FACTORY.format(line=line), "f.py", extents={"size": 8})


def test_two_functions_need_a_name() -> None:
    twice = mapped() + "\n" + mapped().replace("def f", "def g")
    with pytest.raises(TirError, match=r"which function is meant.*got f, g"):
        lift(twice)
    assert lift(twice, func="g").name == "g"


@pytest.mark.parametrize(
    "text", ["", "\0", "(" * 300, "-" * 20000 + "1", "@T.prim_func\ndef f(*a): pass",
             "@T.prim_func\ndef f(): pass",
             "@T.prim_func\ndef f(A: T.Buffer((0,), 'float32')): pass",
             "@T.prim_func\ndef f(A: T.Buffer((2**80,), 'float32')):\n    A[0] = 1.0",
             "@T.prim_func\ndef f(A: T.Buffer((1 / 0,), 'float32')): pass"]
)  # fmt: skip
def test_odd_text_is_one_error(text: str) -> None:
    with pytest.raises(TirError):
        lift(text, "f.py")


def test_the_command_tells_input_errors_from_verdicts(tmp_path: Path) -> None:
    assert main_lift("/nowhere/f.py")[0] == 2
    path = str(tmp_path / "f.py")
    Path(path).write_text(mapped())
    assert main_lift(path)[0] == 0
    for options in ({"mesh": "tp"}, {"mesh": "tp=2", "placements": ["A"]},
                    {"mesh": "tp=2", "collectives": ["C"]}, {"extents": ["M"]},
                    {"mesh": "tp=2", "placements": ["Q:tp=S(0)"]},
                    {"mesh": "tp=3", "placements": ["A:tp=S(0)"]},
                    {"mesh": "tp=2", "placements": ["A:dp=S(0)"]},
                    {"mesh": "tp=2", "placements": ["A:tp=S(0)"]}):  # fmt: skip
        code, message = main_lift(path, **cast(Any, options))
        assert code == 2, message
        assert "\n" not in message
