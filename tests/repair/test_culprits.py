"""Which line is to blame, from where the ops at fault were called."""

from __future__ import annotations

import ast

import pytest

from synthesis.repair.culprits import Seen, culprit
from synthesis.repair.edits import Edit
from synthesis.repair.in_source import Module, SourceFile
from verifier.kernel.program.types import NOWHERE
from verifier.text.parser import parse_text, to_text

REGIONS = """class Copy(Function):
    def forward(ctx, x, group):
        ctx.group = group
        return x.clone()

    def backward(ctx, grad):
        all_reduce(grad, group=ctx.group)
        return grad, None
"""
LAYER = """from regions import Copy

class Layer(nn.Module):
    def __init__(self, mesh):
        self.group = mesh.get_group("dp")
        self.up = nn.Linear(8, 8)

    def forward(self, x):
        h = Copy.apply(x, self.group)

        h = self.given(h)

        return Copy.apply(h, self.group)

    def given(self, h):
        return h

def finish(model):
    '''Text.'''
    all_reduce(model.up.weight.grad)
"""
RANKS = """program ranks mesh(tp=2)
  param %w: f32[8]
  input %x: f32[8]
  %a = all_reduce %x {mesh_dim=tp, reduce=sum} @ regions.py:7 from regions.py:4 from layer.py:9 | a
  %b = all_reduce %a {mesh_dim=tp, reduce=sum} @ regions.py:7 from regions.py:4 from layer.py:13 | b
  %c = mul_scalar %w {value=2} @ layer.py:11 up | c
  %d = neg %c @ model.py:3 up | d
  return %b "output", grad %d "w"
"""


def blamed(
    place: str,
    *edits: Edit,
    wrong: tuple[str, ...] = (),
    finish: str = "",
    shared: tuple[tuple[str, int], ...] = (),
) -> str:
    texts = {"layer.py": LAYER, "regions.py": REGIONS}
    files = {n: SourceFile(n, t, ast.parse(t)) for n, t in texts.items()}
    module = Module(
        *(files, {"tp": 2}, ("up.weight",), wrong, bool(wrong), finish, "Layer"), frozenset(shared)
    )
    program = parse_text(RANKS)
    made = program.producers()
    changes = [(e, made[e.value]) for e in edits]
    ends = not edits
    found = culprit(module, Seen(made[place].source, "", ends, False, program, changes))
    return f"{found.file}:{found.line}" if found is not None else ""


def drop(value: str) -> Edit:
    return Edit("drop", value, "all_reduce")


def group(value: str) -> Edit:
    return Edit("set", value, attrs=(("mesh_dim", "dp"),))


CASES = [
    ("one call of a function", "b", (drop("b"),), ("up.weight",), "layer.py:13"),
    ("all calls of it", "b", (drop("a"), drop("b")), ("up.weight",), "regions.py:7"),
    ("a group that all are given", "b", (group("a"), group("b")), (), "layer.py:5"),
]


@pytest.mark.parametrize(
    ("place", "edits", "wrong", "line"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_a_line_is_blamed(
    place: str, edits: tuple[Edit, ...], wrong: tuple[str, ...], line: str
) -> None:
    assert blamed(place, *edits, wrong=wrong) == line


def test_what_lacks_is_missing_where_the_last_call_returns() -> None:
    assert blamed("b") == "layer.py:13"


def test_the_backward_of_a_right_forward_is_not_blamed() -> None:
    changed = Edit("set", "c", attrs=(("value", 1),))
    assert blamed("c", changed, wrong=("up.weight",), finish="finish") == "layer.py:20"


def test_what_one_device_runs_is_not_blamed() -> None:
    changed = Edit("set", "c", attrs=(("value", 1),))
    assert blamed("c", changed) == "layer.py:11"
    assert blamed("c", changed, shared=(("layer.py", 11),)) == "layer.py:16"


def test_calls_are_read_as_they_are_written() -> None:
    program = parse_text(RANKS)
    (source,) = [n.source for n in program.nodes if n.outputs == ("b",)]
    assert source.calls == (("regions.py", 4), ("layer.py", 13))
    assert (source.file, source.line, source.text) == ("regions.py", 7, "b")
    again = parse_text(to_text(program))
    assert [n.source.calls for n in again.nodes] == [n.source.calls for n in program.nodes]
    assert NOWHERE.calls == ()
