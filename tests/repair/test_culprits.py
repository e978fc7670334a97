"""Which line is to blame, from where the ops at fault were called."""

from __future__ import annotations

import pytest

from shardproof.synthesis.repair.edits import Edit
from shardproof.synthesis.repair.faults import blamed as rules_blame
from shardproof.synthesis.repair.in_source import Module, SourceFile
from shardproof.synthesis.repair.looked import Looked
from shardproof.verifier.kernel.program.types import NOWHERE
from shardproof.verifier.text.parser import parse_text, to_text

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
    files = {n: SourceFile(n, t) for n, t in texts.items()}
    module = Module(
        *(files, {"tp": 2}, ("up.weight",), wrong, bool(wrong), finish, "Layer"), frozenset(shared)
    )
    program = parse_text(RANKS)
    made = program.producers()
    changes = [(e, made[e.value]) for e in edits]
    ends = not edits
    found = rules_blame(Looked(module, made[place].source, "", ends, False, program, changes))
    return f"{found.line.file}:{found.line.line}" if found is not None else ""


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


NUMBERS = """class Layer(nn.Module):
    slope = 0.25

    def __init__(self, group):
        self.group, self.first = group, 2 * group.rank()

    def forward(self, x):
        part = x[self.first :]
        y = part * 2
        if self.group.rank() < 1:
            y = scaled(y, self.slope)
        return y

class Steeper(Layer):
    slope = 0.5

class First(Layer):
    def forward(self, x):
        self.first = 0
        return super().forward(x)
"""
ON_RANKS = """program ranks mesh(tp=2)
  input %x: f32[8]
  %a = mul_scalar %x {value=2} @ layer.py:9 | a
  %b = mul_scalar %a {value=1/2} @ layer.py:11 | b
  return %b "output"
"""


def told(target: str, place: str, *edits: Edit, spared: tuple[int, ...] = ()) -> str:
    files = {"layer.py": SourceFile("layer.py", NUMBERS)}
    shared = frozenset({("layer.py", 11)} if edits else ())
    module = Module(*(files, {"tp": 2}, (), (), False, "", target), shared)
    program = parse_text(ON_RANKS)
    made = program.producers()
    changes = [(e, made[e.value]) for e in edits]
    source = made[place].source
    found = rules_blame(Looked(module, source, "", False, False, program, changes, (), spared))
    return f"{found.line.file}:{found.line.line} {found.why}" if found is not None else ""


def test_a_number_that_the_model_has_otherwise_is_blamed_where_it_is_set() -> None:
    changed = Edit("set", "b", attrs=(("value", 1),))
    assert told("Steeper", "b", changed) == "layer.py:15 sets slope"
    assert told("Layer", "b", changed) == ""


def test_a_number_of_ranks_that_is_set_to_one_for_all_is_blamed() -> None:
    assert told("First", "a") == "layer.py:19 sets first on all ranks alike"
    assert told("Layer", "a") == "layer.py:9 numbers go wrong here"


def test_a_branch_is_blamed_where_some_ranks_are_right() -> None:
    assert told("Layer", "b", spared=(1,)) == "layer.py:10 ranks part here"
    assert told("Layer", "b") == "layer.py:11 numbers go wrong here"
    assert told("Layer", "a", spared=(1,)) == "layer.py:9 numbers go wrong here"


def test_calls_are_read_as_they_are_written() -> None:
    program = parse_text(RANKS)
    (source,) = [n.source for n in program.nodes if n.outputs == ("b",)]
    assert source.calls == (("regions.py", 4), ("layer.py", 13))
    assert (source.file, source.line, source.text) == ("regions.py", 7, "b")
    again = parse_text(to_text(program))
    assert [n.source.calls for n in again.nodes] == [n.source.calls for n in program.nodes]
    assert NOWHERE.calls == ()


HANDED = """class Layer(nn.Module):
    def forward(self, x):
        h = total(x, self.group)
        return h * 2

def total(x, group):
    x = x.clone()
    return x
"""


def test_a_function_that_does_nothing_with_its_group_is_blamed_where_it_is_called() -> None:
    text = RANKS.replace("regions.py:7 from regions.py:4 from layer.py:13", "layer.py:4")
    assert _of(HANDED, text) == "layer.py:8 does nothing with group"
    used = HANDED.replace("x.clone()", "all_reduced(x, group)")
    assert _of(used, text) == "layer.py:4 numbers go wrong here"


def test_a_group_that_is_named_where_it_is_used_is_blamed_there() -> None:
    text = RANKS.replace("regions.py:7 from regions.py:4", "layer.py:7").replace(":13", ":3")
    edit = Edit("set", "b", attrs=(("mesh_dim", "dp"),))
    named = HANDED.replace("x.clone()", "all_reduce(x, group=dist.group.WORLD)")
    assert _of(named, text, edit) == "layer.py:7 the group is given here"
    given = HANDED.replace("x.clone()", "all_reduce(x, group=group)")
    assert _of(given, text, edit) != "layer.py:7 the group is given here"


def _of(layer: str, ranks: str, *edits: Edit) -> str:
    files = {"layer.py": SourceFile("layer.py", layer)}
    module = Module(files, {"tp": 2}, (), (), False, "", "Layer")
    program = parse_text(ranks)
    made = program.producers()
    changes = [(e, made[e.value]) for e in edits]
    found = rules_blame(Looked(module, made["b"].source, "", False, False, program, changes))
    return f"{found.line.file}:{found.line.line} {found.why}" if found is not None else ""


WINDOW = """class Table(nn.Module):
    def __init__(self, tp_rank, tp_size):
        rows = 8 // tp_size
        self.first, self.last = tp_rank * rows, (tp_rank + 1) * rows

    def forward(self, ids):
        other = (ids < self.first) | (ids >= self.last)
        local = ids - self.first
        local[other] = 0
        return self.table(local)
"""
OF_A_RANK = """program rank mesh(tp=2)
  param %w: f32[4, 2]
  input %ids: i64[3]
  %a = full {dtype=i64, shape=[], value=LOW} @ layer.py:7 | a
  %b = full {dtype=i64, shape=[], value=8} @ layer.py:7 | a
  %c = lt %ids, %a @ layer.py:7 | a
  %d = ge %ids, %b @ layer.py:7 | a
  %t = take %w, %ids @ layer.py:10 | t
  return %t "output"
"""


@pytest.mark.parametrize(("low", "line"), [("4", "layer.py:7"), ("1", "layer.py:4")])
def test_an_index_that_leaves_its_table_is_blamed_where_it_is_counted(low: str, line: str) -> None:
    files = {"layer.py": SourceFile("layer.py", WINDOW)}
    module = Module(files, {"tp": 2}, (), (), False, "", "Table")
    program = parse_text(OF_A_RANK.replace("LOW", low))
    place = program.producers()["t"].source
    reason = "the index is 7, the entries are 0 to 3"
    found = rules_blame(Looked(module, place, reason, program=program))
    assert found is not None
    assert f"{found.line.file}:{found.line.line}" == line
