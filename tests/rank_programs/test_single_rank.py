"""One altered rank of sixteen, inside and outside of a repeated block that talks to others."""

from __future__ import annotations

import re
import tempfile
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from benchmarks.rank_texts import rank_texts
from shardproof.synthesis.frontends.rank_programs import read_ranks
from shardproof.synthesis.frontends.rank_programs.form import header
from shardproof.verifier.domains.floats import Floats
from shardproof.verifier.kernel.contract import Contract
from shardproof.verifier.kernel.layout import Layout
from shardproof.verifier.kernel.placements import from_placements
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.refute.evaluate import evaluate
from shardproof.verifier.refute.scatter import piece
from shardproof.verifier.text.parser import parse_text
from shardproof.verifier.verdict import Counterexample, Proof, Trace, Unknown, Witness
from tests.rank_programs.judging import verify_ranks
from tests.rank_programs.running import Values, WrongError, run

BODY = """
  %h = scan %x, %up, %down {length=3, carry=1, xs=2} body layer {
    carry %in: f32[ROWS, 8]
    xs %a: f32[8, INNER]
    xs %b: f32[INNER, 8]
    %s = mul_scalar %in {value=1/4}
    %u = mm %s, %a
    %t = tanh %u
    %v = mul %t, %u
    %p = mm %v, %b
    REDUCED
    %r = add %q, %in
    return carry %r
  }
  %sq = mul %h, %h
  %row = sum %sq {dims=[1]}
  %loss = sum %row {dims=[0]}
"""
SEQUENTIAL = parse_text(f"""
program block
  input %x: f32[8, 8]
  param %up: f32[3, 8, 16]
  param %down: f32[3, 16, 8]
  {BODY.replace("REDUCED", "").replace("%q", "%p").replace("ROWS", "8").replace("INNER", "16")}
  %half = mul_scalar %loss {{value=1/16}}
  %e = exp %h
  %y = sub %e, %h
  return %half "half", %y "y"
""")
REDUCED = "%q = all_reduce %p {mesh_dim=tp, reduce=sum}"
DISTRIBUTED = parse_text(f"""
program block mesh(dp=4, tp=4)
  input %x: f32[2, 8]
  param %up: f32[3, 8, 4]
  param %down: f32[3, 4, 8]
  {BODY.replace("REDUCED", REDUCED).replace("ROWS", "2").replace("INNER", "4")}
  %total = all_reduce %loss {{mesh_dim=dp, reduce=sum}}
  %half = mul_scalar %total {{value=1/16}}
  %e = exp %h
  %y = sub %e, %h
  return %half "half", %y "y"
""")
RANKS = DISTRIBUTED.mesh.size


def _placed(shape: tuple[int, ...], **dims: str) -> Layout:
    sizes = DISTRIBUTED.mesh.dims
    return from_placements(shape, [(n, size, dims.get(n, "R")) for n, size in sizes])


CONTRACT = Contract(
    {
        "x": _placed((8, 8), dp="S(0)"),
        "up": _placed((3, 8, 16), tp="S(2)"),
        "down": _placed((3, 16, 8), tp="S(1)"),
    },
    {"output:half": _placed(()), "output:y": _placed((8, 8), dp="S(0)")},
)


@cache
def _texts() -> tuple[str, ...]:
    return tuple(text.decode() for _, text in rank_texts(DISTRIBUTED))


def _judged(rank: int, text: str, sequential: Program = SEQUENTIAL):
    """The verdict, and what was read, with one rank's text put in place of its own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "set.sp"
        texts = [text if r == rank else t for r, t in enumerate(_texts())]
        path.write_text("".join([f"{header('block', DISTRIBUTED.mesh)}\n", *texts]), "utf-8")
        return verify_ranks(sequential, path, CONTRACT)


def _right(rank: int, text: str) -> bool:
    """Whether all ranks compute what one device does, run each for itself on floats."""
    texts = [text if r == rank else t for r, t in enumerate(_texts())]
    rng = np.random.default_rng(0)
    for _ in range(2):
        whole = {i.name: rng.standard_normal(i.type.shape) for i in SEQUENTIAL.inputs}
        coords = DISTRIBUTED.mesh.coords()
        inputs: list[Values] = [
            {f"%{n}": piece(a, CONTRACT.inputs[n], c) for n, a in whole.items()} for c in coords
        ]
        one = evaluate(SEQUENTIAL, whole, Floats())
        try:
            found = run(texts, inputs)
        except WrongError:
            return False
        for out in SEQUENTIAL.outputs:
            layout = CONTRACT.outputs[f"output:{out.path}"]
            for local, at in zip(found, coords, strict=True):
                want = piece(one[out.value], layout, at)
                got = local.get(out.path)
                if got is None or got.shape != want.shape or not np.allclose(got, want, 1e-9):
                    return False
    return True


def test_texts_as_they_are_written_are_right_and_proved() -> None:
    assert _right(0, _texts()[0])
    assert isinstance(_judged(0, _texts()[0]).verdict, Proof)


ALTERED = {
    "a factor inside": (r"value=0.25", "value=0.2"),
    "a factor outside": (r"value=0.0625", "value=0.125"),
    "another op inside": (r"= tanh", "= exp"),
    "another op outside": (r"= exp", "= tanh"),
    "another operand inside": (r"%v = mul %t, %u", "%v = mul %t, %t"),
    "operands the other way round": (r"%y = sub %e, %h", "%y = sub %h, %e"),
    "no collective inside": (r"%q = all_reduce %p \{[^}]*\}", "%q = only %p"),
    "no collective outside": (r"%total = all_reduce %loss \{[^}]*\}", "%total = only %loss"),
    "one collective more inside": (
        r"( *)(%q) = (all_reduce) %p (\{[^}]*\})(.*)\n",
        r"\1%q0 = \3 %p \4\5\n\1%q = \3 %q0 \4\5\n",
    ),
    "another group inside": (r"(%q = .*ranks=)\[[^]]*\]", r"\1[1, 5, 9, 13]"),
    "another group outside": (r"(%total = .*ranks=)\[[^]]*\]", r"\1[4, 5, 6, 7]"),
    "another reduction inside": (r"(%q = .*reduce=)sum", r"\1max"),
    "a residual too few": (r"%r = add %q, %in", "%r = only %q"),
}


@pytest.mark.parametrize("rank", [5, 15])
@pytest.mark.parametrize("name", ALTERED)
def test_one_altered_rank_is_refuted_and_named(name: str, rank: int) -> None:
    pattern, new = ALTERED[name]
    text, count = re.subn(pattern, new, _texts()[rank], count=1)
    assert count == 1
    right = _right(rank, text)
    found = _judged(rank, text)
    if right:
        assert isinstance(found.verdict, Proof), found.verdict
        return
    assert isinstance(found.verdict, Counterexample), found.verdict
    assert [f.rank for f in found.ingested.of_kind("deviates")] == [rank]
    assert found.verdict.location is not None
    before = sum(t.count("\n") for t in _texts()[:rank])
    line = found.verdict.location.source.line - before - 1
    changed = [
        i
        for i, (a, b) in enumerate(
            zip(text.splitlines(), _texts()[rank].splitlines(), strict=False), 1
        )
        if a != b
    ]
    assert line in (changed[0], changed[0] + 1), (line, changed)


def test_a_block_that_one_rank_runs_backwards_is_named_and_not_proved() -> None:
    text = _texts()[5].replace("length=3, ", "length=3, reverse=true, ")
    assert not _right(5, text)
    found = _judged(5, text)
    assert isinstance(found.verdict, Unknown)
    assert [f.rank for f in found.ingested.of_kind("deviates")] == [5]


HARMLESS = {
    "the operands of a sum": (r"%r = add %q, %in", "%r = add %in, %q"),
    "another name": (r"%t\b(.*\n.*)%t\b", r"%other\1%other"),
    "something nobody reads": (r"( *)(%v = .*\n)", r"\1\2\1%dead = neg %v\n"),
    "lines that do not need each other": (r"(%sq = .*\n)((?:.*\n){4})(%e = .*\n)", r"\1\3\2"),
    "a note": (r"(%q = .*)", r"\1 @ model.py:12"),
}


@pytest.mark.parametrize("name", HARMLESS)
def test_one_rank_that_is_written_otherwise_is_proved(name: str) -> None:
    pattern, new = HARMLESS[name]
    text, count = re.subn(pattern, new, _texts()[6], count=1)
    assert count == 1
    assert _right(6, text)
    found = _judged(6, text)
    assert isinstance(found.verdict, Proof), found.verdict


NAME = re.compile(r"%[a-z]+")
OPS = ("mul", "add", "sub", "tanh", "exp", "neg", "all_reduce", "only", "mm")


@st.composite
def alterations(draw: st.DrawFn) -> tuple[int, str]:
    """One rank, and its text after an edit or two."""
    rank = draw(st.integers(0, RANKS - 1))
    lines = _texts()[rank].splitlines()
    for _ in range(draw(st.integers(1, 2))):
        i = draw(st.integers(1, len(lines) - 2))
        what = draw(st.sampled_from(("number", "name", "op", "drop", "twice", "swap", "operands")))
        line = lines[i]
        if what == "number" and (found := re.findall(r"(?<![\w%])\d+", line)):
            old = draw(st.sampled_from(found))
            new = str(draw(st.integers(0, 17)))
            line = re.sub(rf"(?<![\w%]){old}(?!\w)", new, line, count=1)
        elif what == "name" and (names := NAME.findall(line)):
            everywhere = sorted(set(NAME.findall("\n".join(lines))))
            old, new = draw(st.sampled_from(names)), draw(st.sampled_from(everywhere))
            line = new.join(line.rsplit(old, 1))
        elif what == "op":
            ops = [op for op in OPS if f"= {op} " in line]
            for op in ops[:1]:
                line = line.replace(f"= {op} ", f"= {draw(st.sampled_from(OPS))} ")
        elif what == "operands":
            line = re.sub(r"= (\w+) (%\w+), (%\w+)", r"= \1 \3, \2", line)
        elif what == "swap":
            lines[i], lines[i - 1] = lines[i - 1], lines[i]
            line = lines[i]
        lines[i : i + 1] = {"drop": [], "twice": [line, line]}.get(what, [line])
    return rank, "\n".join(lines) + "\n"


@settings(max_examples=60, deadline=None)
@given(alterations())
def test_no_altered_rank_is_proved_that_does_not_compute_the_same(given: tuple[int, str]) -> None:
    rank, text = given
    found = _judged(rank, text).verdict
    if isinstance(found, Proof):
        assert _right(rank, text)
    elif isinstance(found, Counterexample):
        assert not _right(rank, text)
    else:
        assert isinstance(found, Unknown)


def _loops(first: str, second: str, folder: Path) -> object:
    """Two ranks that add over both of them, each in a block or in lines of its own."""
    block = """%y = scan %x {length=STEPS, carry=1, xs=0} body b {
carry %c: f32[4]
%d = all_reduce %c {ranks=[0, 1], reduce=sum}
return carry %d
}
"""
    once = "%{1} = all_reduce %{0} {{ranks=[0, 1], reduce=sum}}\n"
    parts = {
        "loop 2": block.replace("STEPS", "2"),
        "loop 3": block.replace("STEPS", "3"),
        "lines 2": once.format("x", "m") + once.format("m", "y"),
    }
    lines = ["ranks 2 of pair mesh(dp=2)\n"]
    for rank, what in enumerate((first, second)):
        lines.append(f"rank {rank}\ninput %x: f32[4]\n{parts[what]}return %y\nend\n")
    (folder / "pair.sp").write_text("".join(lines), "utf-8")
    sequential = parse_text(
        "program one\n input %x: f32[4]\n %y = mul_scalar %x {value=4}\n return %y"
    )
    same = from_placements((4,), [("dp", 2, "R")])
    return verify_ranks(
        sequential, folder / "pair.sp", Contract({"x": same}, {"output:y": same})
    ).verdict


def test_a_block_meets_as_many_calls_as_it_has_steps(tmp_path: Path) -> None:
    assert isinstance(_loops("loop 2", "loop 2", tmp_path), Proof)
    apart = _loops("loop 2", "loop 3", tmp_path)
    assert isinstance(apart, Counterexample)
    assert isinstance(apart.witness, Trace)
    assert not isinstance(_loops("loop 2", "lines 2", tmp_path), Counterexample)
    found = _loops("loop 3", "loop 3", tmp_path)
    assert isinstance(found, Counterexample)
    assert isinstance(found.witness, Witness)


def test_every_rank_of_a_set_is_read(tmp_path: Path) -> None:
    for rank in range(RANKS):
        text = _texts()[rank].replace("value=0.25", "value=1/3")
        path = tmp_path / "set.sp"
        texts = [text if r == rank else t for r, t in enumerate(_texts())]
        path.write_text("".join([f"{header('block', DISTRIBUTED.mesh)}\n", *texts]), "utf-8")
        (told,) = read_ranks(path).findings
        assert told.rank == rank
