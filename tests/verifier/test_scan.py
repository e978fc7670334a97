"""Repeated blocks: what one step keeps holds of all, and nothing else is claimed."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from fractions import Fraction

import pytest

from shardproof.synthesis.repair.diagnosis import verify
from shardproof.verifier import verification as module
from shardproof.verifier.kernel.contract import Contract
from shardproof.verifier.kernel.placements import from_placements
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.kernel.program.types import Attr, Mesh
from shardproof.verifier.problem import Problem
from shardproof.verifier.verdict import Counterexample, Proof, Verdict
from tests.checker.second import Second
from tests.verifier.pieces import TP, typed, whole


def block(mesh: Mesh, local: int) -> Program:
    b = Builder("block", mesh)
    c, x = b.input("c", typed(1), "carry"), b.input("x", typed(1), "const")
    e = b.add("expand", x, shape=(local,))
    b.output(b.add("add", c, x if local == 2 else e), "carry")
    if local == 2:
        b.output(e, "ys")
    return b.build()


def growing(mesh: Mesh) -> Program:
    """A sum that starts at 0; the ranks gather their copies and add them up: twice the value."""
    b = Builder("p", mesh)
    x = b.input("x", typed(1))
    zero = b.add("full", shape=(1,), value=Fraction(0))
    attrs: dict[str, Attr] = {"length": 3, "carry": 1, "xs": 0}
    c = b.add_node("scan", [zero, x], attrs, body=block(mesh, 1 if mesh.dims else 2))[0]
    if mesh.dims:
        joined = b.add("all_gather", c, mesh_dim="tp", dim=0)
        b.output(b.add("sum", joined, dims=(0,)), path="y")
    else:
        b.output(b.add("reshape", c, shape=()), path="y")
    return b.build()


def test_carry_is_not_guessed_to_have_another_whole_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    one = growing(Mesh())
    assert isinstance(verify(Problem(one, growing(TP), whole(one))), Counterexample)
    monkeypatch.setattr(module, "MAX_ELEMENTS", 0)
    assert not isinstance(verify(Problem(one, growing(TP), whole(one))), Proof)


def steps(
    mesh: Mesh, swap: bool = False, reverse: bool = False, length: int = 3, roles: bool = True
) -> Program:
    """Two carries, one fed by the other; xs and a const of one shape."""
    b = Builder("p", mesh)
    x, y, w, k = (
        b.input("x", typed(2)),
        b.input("y", typed(2)),
        b.input("w", typed(3, 2)),
        b.input("k", typed(2)),
    )
    body = Builder("body", mesh)
    kinds = ("carry", "carry", "xs", "const") if roles else ("input",) * 4
    p, q, v, c = (body.input(n, typed(2), r) for n, r in zip("pqvc", kinds, strict=True))
    first = body.add("add", body.add("mul", p, v), c)
    second = body.add("exp", q)
    for value in (second, first) if swap else (first, second):
        body.output(value, "carry")
    body.output(p, "ys")
    attrs: dict[str, Attr] = {"length": length, "carry": 2, "xs": 1, "reverse": reverse}
    w = w if length == 3 else b.add("slice", w, dim=0, start=0, stop=length)
    outs = b.add_node("scan", [x, y, w, k], attrs, body=body.build())
    for name, value in zip(("a", "b"), outs, strict=False):
        b.output(value, path=name)
    return b.build()


def decide(**changes: bool | int) -> Verdict:
    one = steps(Mesh())
    return verify(Problem(one, steps(TP, **changes), whole(one)))  # type: ignore[arg-type]


def test_equal_blocks_are_proved() -> None:
    assert isinstance(decide(), Proof)


def test_block_without_roles_is_proved_too() -> None:
    assert isinstance(decide(roles=False), Proof)


@pytest.mark.parametrize("changes", [{"swap": True}, {"reverse": True}, {"length": 2}])
def test_block_that_differs_is_refuted(changes: dict[str, bool | int]) -> None:
    assert isinstance(decide(**changes), Counterexample)


def twice(mesh: Mesh, second: str) -> Program:
    """Two blocks over the same operands; the output is that of the second."""
    b = Builder("p", mesh)
    x, w = b.input("x", typed(2)), b.input("w", typed(3, 2))
    outs: list[str] = []
    for op in ("mul", second):
        body = Builder("body", mesh)
        c, v = body.input("c", typed(2), "carry"), body.input("v", typed(2), "xs")
        body.output(c if op == "same" else body.add(op, c, v), "carry")
        body.output(v, "ys")
        attrs: dict[str, Attr] = {"length": 3, "carry": 1, "xs": 1}
        outs.append(b.add_node("scan", [x, w], attrs, body=body.build())[0])
    b.output(outs[-1], path="y")
    return b.build()


def test_each_of_two_blocks_over_one_operand_is_found() -> None:
    """The first has a result in common with the second, and is not taken for it."""
    one = twice(Mesh(), "add")
    assert isinstance(verify(Problem(one, twice(TP, "add"), whole(one))), Proof)
    assert isinstance(verify(Problem(one, twice(TP, "mul"), whole(one))), Counterexample)


def test_collective_inside_a_block_is_counted() -> None:
    one = twice(Mesh(), "add")
    many = twice(TP, "add")
    b = Builder("p", TP)
    x, w = b.input("x", typed(2)), b.input("w", typed(3, 2))
    body = Builder("body", TP)
    c, v = body.input("c", typed(2), "carry"), body.input("v", typed(2), "xs")
    body.output(body.add("all_reduce", body.add("add", c, v), mesh_dim="tp"), "carry")
    out = b.add_node("scan", [x, w], {"length": 3, "carry": 1, "xs": 1}, body=body.build())
    b.output(out[0], path="y")
    assert isinstance(verify(Problem(one, many, whole(one))), Proof)
    assert isinstance(verify(Problem(one, b.build(), whole(one))), Counterexample)


def stacking(mesh: Mesh, value: int) -> Program:
    """A block that stacks a constant, added to a carry's last value."""
    b = Builder("p", mesh)
    x = b.input("x", typed(2))
    body = Builder("body", mesh)
    c = body.input("c", typed(2), "carry")
    body.output(body.add("exp", c), "carry")
    body.output(body.add("full", shape=(2,), value=Fraction(value)), "ys")
    attrs: dict[str, Attr] = {"length": 3, "carry": 1, "xs": 0}
    last, stacked = b.add_node("scan", [x], attrs, body=body.build())
    b.output(b.add("add", last, b.add("sum", stacked, dims=(0,))), path="y")
    return b.build()


@pytest.mark.parametrize("one", [0, 1])
@pytest.mark.parametrize("ranks", [0, 1])
def test_constant_is_stacked(one: int, ranks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ELEMENTS", 0)
    sequential = stacking(Mesh(), one)
    verdict = verify(Problem(sequential, stacking(TP, ranks), whole(sequential)))
    assert isinstance(verdict, Proof) == (one == ranks)


def test_zero_start_and_a_choice_in_the_block_do_not_fail() -> None:
    def build(mesh: Mesh) -> Program:
        b = Builder("p", mesh)
        mask, zero = b.input("m", typed(2, dtype="bool")), b.add("full", shape=(2,), value=0)
        body = Builder("body", mesh)
        c, m = body.input("c", typed(2), "carry"), body.input("m", typed(2, dtype="bool"), "const")
        chosen = body.add("where", m, c, body.add("full", shape=(), value=0))
        body.output(body.add("add", chosen, body.add("cast", m, dtype="f32")), "carry")
        attrs: dict[str, Attr] = {"length": 2, "carry": 1, "xs": 0}
        b.output(b.add_node("scan", [zero, mask], attrs, body=body.build())[0], path="y")
        return b.build()

    one: Program = build(Mesh())
    contract: Contract = whole(one)
    assert isinstance(verify(Problem(one, build(TP), contract)), Proof)


def biased(mesh: Mesh, share: Fraction = Fraction(1)) -> Program:
    """In each step a sum over x, and b, are added to a carry."""
    b, n = Builder("p", mesh), 4 // math.prod(size for _, size in mesh.dims)
    given = b.input("c", typed(1)), b.input("x", typed(3, n)), b.input("b", typed(1))
    body = Builder("body", mesh)
    c, x, k = (
        body.input(name, typed(size), role)
        for name, size, role in (("c", 1, "carry"), ("x", n, "xs"), ("b", 1, "const"))
    )
    added = body.add("sum", x, dims=(0,), keepdim=True)
    added = body.add("add", added, body.add("mul_scalar", k, value=share))
    if mesh.dims:
        added = body.add("all_reduce", added, mesh_dim="tp", reduce="sum")
    body.output(body.add("add", c, added), "carry")
    attrs: dict[str, Attr] = {"length": 3, "carry": 1, "xs": 1}
    b.output(b.add_node("scan", list(given), attrs, body=body.build())[0], path="y")
    return b.build()


def test_shares_of_what_ranks_hold_are_added_in_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    one = biased(Mesh())
    contract = whole(one)
    inputs = {**contract.inputs, "x": from_placements((3, 4), [("tp", 2, "S(1)")])}
    contract = replace(contract, inputs=inputs)
    half = Problem(one, biased(TP, Fraction(1, 2)), contract)
    assert isinstance(verify(Problem(one, biased(TP), contract)), Counterexample)
    monkeypatch.setattr(module, "MAX_ELEMENTS", 0)
    found = verify(half)
    assert isinstance(found, Proof)
    Second(half).check(json.loads(json.dumps(found.certificate)))
    assert not isinstance(verify(Problem(one, biased(TP), contract)), Proof)
