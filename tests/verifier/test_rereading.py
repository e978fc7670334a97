"""Facts read in other ways: true on numbers, shown again by the checker, and what they prove."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from shardproof.synthesis.repair.diagnosis import verify
from shardproof.verifier.checker import Accepted, check
from shardproof.verifier.checker.claims import Claim, NotShownError, Row
from shardproof.verifier.checker.parts import part
from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.kernel.program.where import process_groups
from shardproof.verifier.problem import Problem
from shardproof.verifier.provers.relate.facts import Fact
from shardproof.verifier.provers.relate.relayout import addends, home
from shardproof.verifier.refute.scatter import piece
from shardproof.verifier.terms import Ref, Terms
from shardproof.verifier.text.contract import compose, read_contract
from shardproof.verifier.text.parser import parse_text
from shardproof.verifier.verdict import Counterexample, Proof
from tests.laws.samples import layouts

SHAPE = (6, 12)
OUTER = (1, 2, 3, 4, 6)
MESHES = [Mesh.of(a=2), Mesh.of(a=2, b=3)]


def value(terms: Terms, ref: Ref, x: np.ndarray) -> np.ndarray:
    term = terms[ref.id]
    if term.op == "var":
        out = x
    else:
        (arg,) = (value(terms, a, x) for a in term.args)
        if term.op == "reshape":
            out = arg.reshape(term.shape)
        elif term.op == "permute":
            out = arg.transpose(term.attrs[0])
        else:
            assert term.op == "sum"
            out = arg.sum(axis=term.attrs[0])
    return out * float(ref.coef)


def readings(mesh: Mesh) -> list[tuple[Terms, Fact, Fact]]:
    out: list[tuple[Terms, Fact, Fact]] = []
    for layout in layouts(SHAPE, mesh, partial=False):
        terms = Terms()
        fact = Fact(terms.var("x", SHAPE), layout)
        for name in mesh.names:
            places = product(range(len(SHAPE)), OUTER)
            made = [home(terms, 0, fact, name, d, n) for d, n in places]
            made.append(addends(terms, 0, fact, name))
            out += [(terms, fact, f) for f in made if f is not None]
    return out


@pytest.mark.parametrize("mesh", MESHES, ids=str)
def test_readings_are_true_on_numbers(mesh: Mesh) -> None:
    x = np.random.default_rng(0).standard_normal(SHAPE)
    found = readings(mesh)
    assert len(found) > 10
    for terms, given, made in found:
        held = [piece(x, given.layout, c) for c in mesh.coords()]
        whole = value(terms, made.ref, x)
        wanted = [piece(whole, replace(made.layout, partial=()), c) for c in mesh.coords()]
        if made.layout.partial:
            (name,) = made.layout.pending
            for group in process_groups(mesh, (name,)):
                total = sum(held[r] for r in group)
                assert np.allclose(total, wanted[group[0]]), (given.layout, made)
            continue
        for a, b in zip(held, wanted, strict=True):
            assert a.shape == b.shape
            assert np.array_equal(a, b), (given.layout, made)


@pytest.mark.parametrize("mesh", MESHES, ids=str)
def test_checker_shows_readings_again_and_no_others(mesh: Mesh) -> None:
    alike = frozenset[str]()
    for terms, given, made in readings(mesh):
        row = Row(None, None, made.layout, (0,), made.rule, ())
        claim = Claim(given.ref, given.layout)
        assert part(row, [claim], "v", alike, False, terms, mesh) == made.ref
        kind, _, place = made.rule.rpartition(":")
        for elsewhere in ("0", "5", "7", "-1", "") if ":home:" in kind else ():
            there = replace(row, rule=f"{kind}:{elsewhere}")
            if place != elsewhere:
                with pytest.raises(NotShownError):
                    part(there, [claim], "v", alike, False, terms, mesh)
        for other in layouts(made.layout.global_shape, mesh, partial=True):
            if other != made.layout:
                with pytest.raises(NotShownError):
                    part(replace(row, layout=other), [claim], "v", alike, False, terms, mesh)
        if made.layout.partial:
            limited = replace(row, where=(("a", (0,)),))
            some = replace(claim, where=(("a", (0,)),))
            if "a" in made.layout.pending:
                with pytest.raises(NotShownError):
                    part(limited, [some], "v", alike, False, terms, mesh)


ROWS = """program one
  input %g: f32[4, 4096]
  %m = mean %g {dims=[0]}
  return %m
"""
ROWS_MANY = """program many mesh(dp=4)
  input %g: f32[1, 4096]
  %l = reshape %g {shape=[4096]}
  %m = all_reduce %l {mesh_dim=dp, reduce=HOW}
  return %m
"""
HEADS = """program one
  input %q: f32[64, 8, 32]
  param %w: f32[8, 32, 32]
  %p = permute %q {dims=[1, 0, 2]}
  %o = bmm %p, %w
  return %o
"""
EXCHANGED = """program many mesh(sp=4)
  input %q: f32[16, 8, 32]
  param %w: f32[2, 32, 32]
  %r = reshape %q {shape=[16, 4, 2, 32]}
  %t = permute %r {dims=[1, 0, 2, 3]}
  %x = all_to_all %t {mesh_dim=sp, split_dim=0, concat_dim=0}
  %s = reshape %x {shape=[64, 2, 32]}
  %p = permute %s {dims=[1, 0, 2]}
  %o = bmm %p, %w
  return %o
"""
UNTURNED = EXCHANGED.replace("[16, 4, 2, 32]", "[4, 16, 2, 32]").replace(
    "[1, 0, 2, 3]", "[0, 1, 2, 3]"
)
SEATS = """program one
  input %s: f32[4, 160, 8]
  input %x: f32[4, 160, 640]
  %t = permute %s {dims=[0, 2, 1]}
  %y = bmm %t, %x
  %r = permute %y {dims=[1, 0, 2]}
  return %r
"""
ONE_GROUP = """program many mesh(ep=4)
  input %s: f32[1, 160, 8]
  input %x: f32[1, 160, 640]
  %t = permute %s {dims=[2, 1, 0]}
  %a = reshape %t {shape=[1, 8, 160]}
  %b = permute %x {dims=[1, 0, 2]}
  %c = reshape %b {shape=[1, 160, 640]}
  %y = bmm %a, %c
  %p = reshape %y {shape=[8, 1, 640]}
  return %p "r"
"""
BY_GROUP = "input s ep=S(0)\ninput x ep=S(0)\noutput r ep=S(1)"
SCORES = """program one
  input %q: f32[2, 2, 64, 32]
  input %k: f32[2, 2, 64, 32]
  %a = reshape %q {shape=[4, 64, 32]}
  %b = reshape %k {shape=[4, 64, 32]}
  %t = permute %b {dims=[0, 2, 1]}
  %s = bmm %a, %t
  %o = reshape %s {shape=[2, 2, 64, 64]}
  return %o
"""
ONE_HEAD = """program many mesh(tp=2)
  input %q: f32[2, 1, 64, 32]
  input %k: f32[2, 1, 64, 32]
  %a = reshape %q {shape=[2, 64, 32]}
  %p = permute %k {dims=[0, 3, 1, 2]}
  %t = reshape %p {shape=[2, 32, 64]}
  %s = bmm %a, %t
  %r = reshape %s {shape=[2, 64, 1, 64]}
  %o = permute %r {dims=[0, 2, 1, 3]}
  return %o
"""
BY_HEAD = "input q tp=S(1)\ninput k tp=S(1)\noutput o tp=S(1)"
ONE_SAMPLE = ONE_HEAD.replace("%k: f32[2, 1, 64, 32]", "%k: f32[1, 2, 64, 32]").replace(
    "%k {dims=[0, 3, 1, 2]}", "%k {dims=[1, 3, 0, 2]}"
)
PROVED = {
    "one head on each rank": (SCORES, ONE_HEAD, BY_HEAD),
    "a group of tokens on each rank": (SEATS, ONE_GROUP, BY_GROUP),
    "rows of ranks": (ROWS, ROWS_MANY.replace("HOW", "avg"), "input g dp=S(0)"),
    "heads for sequence": (
        HEADS,
        EXCHANGED,
        "input q sp=S(0)\ninput w sp=S(0)\noutput o sp=S(0)",
    ),
}
REFUTED = {
    "keys of one sample": (SCORES, ONE_SAMPLE, BY_HEAD.replace("k tp=S(1)", "k tp=S(0)")),
    "keys of the other head": (
        SCORES,
        ONE_HEAD.replace(
            "  %p = permute %k",
            "  %n = ring_shift %k {mesh_dim=tp, shift=1}\n  %p = permute %n",
        ),
        BY_HEAD,
    ),
    "tokens and features mixed": (
        SCORES,
        ONE_HEAD.replace("{dims=[0, 3, 1, 2]}", "{dims=[0, 1, 2, 3]}"),
        BY_HEAD,
    ),
    "groups as sums": (
        SEATS,
        ONE_GROUP.replace("return %p", "%q = all_reduce %p {mesh_dim=ep}\n  return %q"),
        BY_GROUP,
    ),
    "rows summed": (ROWS, ROWS_MANY.replace("HOW", "sum"), "input g dp=S(0)"),
    "heads not apart": (HEADS, UNTURNED, "input q sp=S(0)\ninput w sp=S(0)\noutput o sp=S(0)"),
}


def judged(one: str, many: str, contract: str) -> tuple[object, tuple]:
    first, ranks = parse_text(one), parse_text(many)
    programs = first, *compose(ranks, read_contract(contract, first, ranks))
    return verify(Problem(*programs)), programs


@pytest.mark.parametrize("name", PROVED)
def test_idioms_are_proved_at_large_extents(name: str) -> None:
    verdict, programs = judged(*PROVED[name])
    assert isinstance(verdict, Proof)
    assert "claims" in verdict.certificate
    assert isinstance(check(verdict.certificate, Problem(*programs)), Accepted)


@pytest.mark.parametrize("name", REFUTED)
def test_their_wrong_twins_are_refuted(name: str) -> None:
    assert isinstance(judged(*REFUTED[name])[0], Counterexample)
