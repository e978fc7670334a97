"""Text and JSON give back the program that was written."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

from hypothesis import HealthCheck, given, settings

from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.kernel.program.types import Affine, Mesh, Source, TensorType
from shardproof.verifier.text.digest import digest
from shardproof.verifier.text.files import load
from shardproof.verifier.text.jsonio import dumps, loads
from shardproof.verifier.text.parser import parse_text, to_text
from tests.ir.strategies import programs

SETTINGS = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
GOLDEN = Path(__file__).parents[1] / "golden"


def same(a: Program, b: Program) -> bool:
    """Equal, with attribute classes (`1`, `1.0` and `true` are three values) and callers."""
    kinds = [[{k: type(v) for k, v in node.attrs.items()} for _, node in p.walk()] for p in (a, b)]
    calls = [[node.source.calls for _, node in p.walk()] for p in (a, b)]
    return a == b and kinds[0] == kinds[1] and calls[0] == calls[1]


@SETTINGS
@given(programs())
def test_text_round_trip(program: Program) -> None:
    assert same(parse_text(to_text(program)), program)


@SETTINGS
@given(programs())
def test_json_round_trip(program: Program) -> None:
    assert dumps(loads(dumps(program))) == dumps(program)
    assert same(loads(dumps(program)), program)
    assert digest(loads(dumps(program))) == digest(parse_text(to_text(program)))


def block() -> Program:
    """Two linear blocks in one scan, row-parallel over tp, with every kind of annotation."""
    b = Builder("block", Mesh.of(dp=2, tp=2))
    w = b.param("w", TensorType((2, 4, 4)), "layers.*.fc.weight")
    x = b.input("x", TensorType((3, 4)), path="hidden states")
    mask = b.input("mask", TensorType((3, 1), "bool"), "const")
    inner = Builder("layer", Mesh.of(dp=2, tp=2))
    h = inner.input("h", TensorType((3, 4)), "carry")
    piece = inner.input("w", TensorType((4, 4)), "xs")
    keep = inner.input("mask", TensorType((3, 1), "bool"), "const")
    with inner.at(Source("model.py", 14, "layers.*.fc", "h = self.fc(h)")):
        y = inner.add("mm", h, piece)
    with inner.at(Source("my model.py", 15, "", 'print("h") # ' + chr(0x2028))):
        y = inner.add("all_reduce", y, mesh_dim="tp", reduce="sum")
    zero = inner.add("full", shape=(), value=Fraction(0), dtype="f32")
    y = inner.add("where", keep, y, zero)
    y = inner.add("mul_scalar", y, value=Fraction(1, 3))
    inner.output(inner.add("add_scalar", y, value=Fraction(1e-5)), "carry")
    inner.output(y, "ys")
    out, rows = b.add_node(
        "scan",
        (x, w, mask),
        {"length": 2, "carry": 1, "xs": 1, "reverse": False},
        outputs=("out", "h's rows"),
        source=Source("model.py", 20, "layers", "for layer in self.layers:"),
        body=inner.build(),
    )
    ramp = b.add("iota", shape=(4,), dim=0, offset=Affine.of(1, {"tp": 4, "dp": -2}), dtype="i64")
    b.output(out, path="hidden")
    b.output(rows, "loss")
    b.output(ramp)
    return b.build()


def test_printed_form_is_the_golden_one() -> None:
    program = block()
    golden = GOLDEN / "block.sp"
    assert to_text(program) == golden.read_text(encoding="utf-8")
    assert same(load(golden), program)


def test_golden_json_is_the_same_program() -> None:
    golden = GOLDEN / "block.json"
    assert dumps(block()) == golden.read_text(encoding="utf-8")
    assert same(load(golden), block())


def test_types_of_results_may_be_left_out() -> None:
    text = "program p input %x: f32[2, 4]\n %y = exp %x\n return %y"
    assert parse_text(text).types["y"] == TensorType((2, 4))


def test_digest_ignores_sources_alone() -> None:
    program = block()
    plain = replace(
        program, nodes=tuple(replace(n, source=Source("other.py", 1)) for n in program.nodes)
    )
    assert digest(plain) == digest(program)
    assert digest(replace(program, name="other")) != digest(program)
    assert digest(replace(program, mesh=Mesh.of(dp=2, tp=4))) != digest(program)
