"""What outputs need is found through ops that use every entry, and through no choice."""

from __future__ import annotations

import numpy as np
import pytest

from shardproof.verifier.analysis.definedness import in_scope, needed
from shardproof.verifier.domains.floats import Floats
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.ops import REGISTRY
from shardproof.verifier.refute.evaluate import run_node
from shardproof.verifier.text.parser import parse_text

HEAD = "program one\n input %x: f32[2, 3]\n input %w: f32[3, 2]\n input %i: i64[2]\n"


def read(text: str) -> Program:
    return parse_text(HEAD + text)


def wanted(text: str, *outputs: str) -> frozenset[str]:
    """The values that outputs, all where none is named, are not defined without."""
    program = read(text)
    return needed(program, outputs or [o.value for o in program.outputs])[id(program)]


@pytest.mark.parametrize(
    "choice",
    [
        "%z = full {shape=[], value=0}\n %c = gt %x, %z\n %y = where %c, %a, %z",
        "%z = full {shape=[], value=0}\n %c = gt %a, %z\n %y = where %c, %x, %z",
        "%y = maximum %a, %x",
        "%y = relu %a",
        "%y = amax %a {dims=[1], keepdim=true}",
        "%y = slice %a {dim=1, start=0, stop=2, step=1}",
        "%y = take %a, %i {dim=0}",
        "%y = cast %a {dtype=bool}",
        "%y = topk_mask %a {dim=1, k=1}",
    ],
)
def test_nothing_is_needed_through_a_choice(choice: str) -> None:
    text = f" %a = log %x\n {choice}\n"
    assert "y" in wanted(f"{text} return %y")
    assert "a" not in wanted(f"{text} return %y")
    beside = f"{text} %s = sum %a {{dims=[0, 1], keepdim=false}}\n return %y, %s"
    assert "a" in wanted(beside)
    assert "a" not in wanted(beside, "y")


def test_gradients_are_judged_where_outputs_are_defined_and_not_the_reverse() -> None:
    program = read(' %a = log %x\n %b = log %w\n return %a, loss %b, grad %b, grad %i "g"')
    assert in_scope(program, gradients=False) == ("a", "b")
    assert in_scope(program, gradients=True) == ("a", "b", "b", "i")
    program = read(' %a = log %x\n return grad %a "g"')
    assert in_scope(program, gradients=False) == ("a",)


STEPS = """program one
 input %x: f32[3, 4]
 input %h: f32[4]
 input %k: f32[4]
 %a = log %x
 %b = log %k
 %end, %ys = scan %h, %a, %b {length=3, carry=1, xs=1} {
  input %c: f32[4]
  input %s: f32[4]
  input %u: f32[4]
  %r = sqrt %c
  %n = CARRIED
  %v = mul %s, %s
  return %n, %v
 }
 return RETURNED
"""


@pytest.mark.parametrize(
    ("carried", "returned", "outside", "inside"),
    [
        ("add %r, %u", "%end", {"b", "h"}, {"r", "c", "u", "n"}),
        ("add %r, %s", "%end", {"a", "h"}, {"r", "c", "s", "n"}),
        ("add %s, %u", "%end", set[str](), set[str]()),
        ("maximum %r, %u", "%end", set[str](), set[str]()),
        ("add %s, %u", "%ys", {"a"}, {"s", "v"}),
        ("add %r, %u", "%end, %ys", {"a", "b", "h"}, {"r", "c", "u", "n", "s", "v"}),
    ],
)
def test_in_a_body_what_every_step_needs(
    carried: str, returned: str, outside: set[str], inside: set[str]
) -> None:
    program = parse_text(STEPS.replace("CARRIED", carried).replace("RETURNED", returned))
    found = needed(program, [o.value for o in program.outputs])
    scan = next(n for n in program.nodes if n.op == "scan")
    assert scan.body is not None
    for scope, names in ((program, outside), (scan.body, inside)):
        ends = {o.value for o in scope.outputs}
        assert (found[id(scope)] & set("abhrcusnv")) - ends == names - ends


@pytest.mark.parametrize("name", sorted(n for n, op in REGISTRY.items() if op.traits.strict))
def test_a_result_has_no_value_where_an_operand_of_a_strict_op_has_none(name: str) -> None:
    """On floats, `nan` for what has no value: it reaches the result from every entry."""
    op = REGISTRY[name]
    kinds = {"mm": ([2, 3], [3, 2]), "bmm": ([1, 2, 3], [1, 3, 2])}
    count = name in ("add", "sub", "mul", "div", "concat", "mm", "bmm")
    shapes = kinds.get(name, ([2, 3],) * (1 + count))
    attrs = {
        "mul_scalar": "value=0",
        "add_scalar": "value=1",
        "pow": "exponent=1/2",
        "round_to": "format=bf16, ste=true",
        "sum": "dims=[0], keepdim=false",
        "cumsum": "dim=1",
        "reshape": "shape=[6]",
        "permute": "dims=[1, 0]",
        "expand": "shape=[4, 2, 3]",
        "concat": "dim=0",
        "pad": "dim=0, lo=1, hi=0",
        "flip": "dim=0",
    }.get(name, "")
    given = "".join(f" input %x{k}: f32{s}\n" for k, s in enumerate(shapes))
    names = ", ".join(f"%x{k}" for k in range(len(shapes)))
    shown = f" {{{attrs}}}" if attrs else ""
    program = parse_text(f"program one\n{given} %y = {op.name} {names}{shown}\n return %y")
    rng = np.random.default_rng(0)
    for at, shape in enumerate(shapes):
        for index in np.ndindex(*shape):
            values = {f"x{k}": np.abs(rng.standard_normal(s)) + 1 for k, s in enumerate(shapes)}
            values[f"x{at}"][index] = np.nan
            run_node(program.nodes[0], [values], program.mesh, [{}], Floats())
            assert np.isnan(values["y"]).any(), index
