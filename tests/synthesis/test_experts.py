"""Experts whose weights are looked up: which dims of them hold hidden units."""

from __future__ import annotations

import pytest

from shardproof.synthesis.planner.assign import options, split
from shardproof.synthesis.planner.planner import can_emit
from shardproof.synthesis.planner.roles import Module, modules
from shardproof.synthesis.planner.tactics import TACTICS
from shardproof.verifier.text.parser import parse_text

EXPERTS = """program m
  input %ids: i64[6]
  input %x: f32[6, 4]
  param %up: f32[3, 10, 4] "mlp.experts.up"
  param %down: f32[3, 4, DEEP] "mlp.experts.down"
  %x3 = reshape %x {shape=[6, 4, 1]}
  %u = take %up, %ids {dim=0}  @ m.py:3 mlp.experts | up[ids]
  %h = bmm %u, %x3  @ m.py:3 mlp.experts | bmm
  %h2 = reshape %h {shape=[6, 10]}  @ m.py:3 mlp.experts | squeeze
  CUT
  %h3 = reshape %g {shape=[6, DEEP, 1]}  @ m.py:3 mlp.experts | unsqueeze
  %d = take %down, %ids {dim=0}  @ m.py:4 mlp.experts | down[ids]
  %y = bmm %d, %h3  @ m.py:4 mlp.experts | bmm
  return %y
"""
WHOLE = "%g = neg %h2  @ m.py:3 mlp.experts | act"
HALVES = """%a = slice %h2 {dim=1, start=0, stop=5, step=1}  @ m.py:3 mlp.experts | chunk
  %b = slice %h2 {dim=1, start=5, stop=10, step=1}  @ m.py:3 mlp.experts | chunk
  %g = mul %a, %b  @ m.py:3 mlp.experts | gate"""


@pytest.mark.parametrize(
    ("cut", "deep", "parts", "fits"), [(WHOLE, 10, 1, (2, 5)), (HALVES, 5, 2, (5,))]
)
def test_hidden_layers_of_experts_are_split(
    cut: str, deep: int, parts: int, fits: tuple[int, ...]
) -> None:
    text = EXPERTS.replace("CUT", cut).replace("DEEP", str(deep))
    (module,) = modules(parse_text(text), {"mlp.experts": "Experts"})
    assert (module.use, module.splits) == ("experts", {"up": (1, parts), "down": (2, 1)})
    assert [n for n in (2, 3, 5) if "experts" in options(module, n)] == list(fits)
    assert TACTICS["column_row"]([module], 5).style("mlp.experts") == "experts"
    for param in module.params:
        layout = split(module, param, "experts", "tp", 5)
        assert layout.local_shape == {"up": (3, 2, 4), "down": (3, 4, deep // 5)}[param.name]


ALL = """program m
  input %x: f32[3, 6, 4]
  param %up: f32[3, 4, 10] "experts.up"
  param %down: f32[3, 5, 4] "experts.down"
  %h = bmm %x, %up  @ m.py:3 experts | bmm
  %a = slice %h {dim=2, start=0, stop=5, step=1}  @ m.py:3 experts | chunk
  %b = slice %h {dim=2, start=AT, stop=END, step=1}  @ m.py:3 experts | chunk
  %g = mul %a, %b  @ m.py:3 experts | gate
  %y = bmm %g, %down  @ m.py:4 experts | bmm
  return %y
"""


def test_experts_that_each_take_all_they_are_given_are_split_too() -> None:
    text = ALL.replace("AT", "5").replace("END", "10")
    (module,) = modules(parse_text(text), {"experts": "Experts"})
    assert (module.use, module.splits) == ("experts", {"up": (2, 2), "down": (1, 1)})
    assert "experts" in options(module, 5)
    assert split(module, module.params[0], "experts", "tp", 5).local_shape == (3, 4, 2)


def test_experts_whose_halves_overlap_are_not() -> None:
    text = ALL.replace("AT", "4").replace("END", "9")
    (module,) = modules(parse_text(text), {"experts": "Experts"})
    assert module.use != "experts"


IN_TURN = """%p = reshape %hb {shape=[6, 5, 2]}  @ m.py:3 mlp.experts | every second
  %a = slice %p {dim=2, start=0, stop=1, step=1}  @ m.py:3 mlp.experts | gate
  %b = slice %p {dim=2, start=1, stop=2, step=1}  @ m.py:3 mlp.experts | up
  %ab = mul %a, %b  @ m.py:3 mlp.experts | gate
  %g = reshape %ab {shape=[6, 5]}  @ m.py:3 mlp.experts | gate"""
BIASES = """  %ub = take %up_bias, %ids {dim=0}  @ m.py:3 mlp.experts | bias
  %hb = add %h2, %ub  @ m.py:3 mlp.experts | bias
"""


def test_biases_of_experts_are_split_where_their_units_are() -> None:
    text = EXPERTS.replace("  CUT", BIASES + "  " + IN_TURN).replace("DEEP", "5")
    text = text.replace(
        "  return %y", "  %y2 = reshape %y {shape=[6, 4]}  @ m.py:4 mlp.experts | s\n" + LAST
    )
    given = '  param %up_bias: f32[3, 10] "mlp.experts.up_bias"\n' + TO
    text = text.replace("  %x3 =", given + "  %x3 =")
    (module,) = modules(parse_text(text), {"mlp.experts": "Experts"})
    assert module.use == "experts"
    assert module.splits == {"up": (1, 1), "down": (2, 1), "up_bias": (1, 1)}
    shapes = {p.name: split(module, p, "experts", "tp", 5).local_shape for p in module.params}
    assert (shapes["up"], shapes["up_bias"]) == ((3, 2, 4), (3, 2))
    assert shapes["down_bias"] == (3, 4)
    assert "experts" not in options(module, 2)


LAST = """  %db = take %down_bias, %ids {dim=0}  @ m.py:4 mlp.experts | bias
  %out = add %y2, %db  @ m.py:4 mlp.experts | bias
  return %out"""
TO = '  param %down_bias: f32[3, 4] "mlp.experts.down_bias"\n'


def test_one_weight_that_is_looked_up_is_no_expert() -> None:
    text = EXPERTS.replace("CUT", WHOLE).replace("DEEP", "10").split("  %d =")[0] + "  return %h3\n"
    text = text.replace('  param %down: f32[3, 4, 10] "mlp.experts.down"\n', "")
    (module,) = modules(parse_text(text), {"mlp.experts": "Experts"})
    assert module.use == "other"
    assert options(module, 2) == ["replicate"]


def test_a_router_with_a_weight_of_its_own_has_no_style_of_a_linear() -> None:
    router = Module("mlp.gate", "TopkRouter", "linear")
    assert [s for s in ("column", "row", "gathered", "replicate") if can_emit(router, s)] == [
        "replicate"
    ]
    assert can_emit(Module("mlp.up", "Linear", "linear"), "column")
