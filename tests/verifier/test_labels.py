"""Vocabulary-parallel cross entropy at any extents: proved for labels that name a class."""

from __future__ import annotations

import numpy as np

from shardproof.synthesis.repair.diagnosis import verify
from shardproof.verifier.checker import Accepted, Rejected, check
from shardproof.verifier.checker.certificate import seal
from shardproof.verifier.kernel.contract import Contract
from shardproof.verifier.kernel.inline import inline
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.problem import Problem
from shardproof.verifier.provers.cross_entropy import open_entropy
from shardproof.verifier.refute.evaluate import evaluate
from shardproof.verifier.refute.search import DRAWS
from shardproof.verifier.text.contract import compose, read_contract
from shardproof.verifier.text.parser import parse_text
from shardproof.verifier.verdict import Counterexample, Proof

ONE = """program one
  input %h: f32[32, 64]
  param %u: f32[64, 256] "head"
  input %t: i64[32]
  %z = mm %h, %u
  %lp = log_softmax %z
  %tc = reshape %t {shape=[32, 1]}
  %p = take_along %lp, %tc {dim=1}
  %s = sum %p {dims=[0, 1]}
  %l = mul_scalar %s {value=-1/32}
  %e = exp %lp
  %o = one_hot %t {size=256}
  %d = sub %e, %o
  %dz = mul_scalar %d {value=1/32}
  %hT = permute %h {dims=[1, 0]}
  %du = mm %hT, %dz
  %uT = permute %u {dims=[1, 0]}
  %dh = mm %dz, %uT
  return loss %l, grad %du "head", grad %dh "h"
"""
MANY = """program many mesh(tp=4)
  input %h: f32[32, 64]
  param %u: f32[64, 64] "head"
  input %t: i64[32]
  %z = mm %h, %u
  %mxl = amax %z {dims=[1], keepdim=true}
  %mx = all_reduce %mxl {mesh_dim=tp, reduce=max}
  %zs = sub %z, %mx
  %ex = exp %zs
  %sl = sum %ex {dims=[1], keepdim=true}
  %sm = all_reduce %sl {mesh_dim=tp}
  %ls = log %sm
  %tc = reshape %t {shape=[32, 1]}
  %pl = take_along %zs, %tc {dim=1, offset=64*tp}
  %p = all_reduce %pl {mesh_dim=tp}
  %q = sub %p, %ls
  %s = sum %q {dims=[0, 1]}
  %l = mul_scalar %s {value=-1/32}
  %e = div %ex, %sm
  %o = one_hot %t {size=64, offset=64*tp}
  %d = sub %e, %o
  %dz = mul_scalar %d {value=1/32}
  %hT = permute %h {dims=[1, 0]}
  %du = mm %hT, %dz
  %uT = permute %u {dims=[1, 0]}
  %dhl = mm %dz, %uT
  %dh = all_reduce %dhl {mesh_dim=tp}
  return loss %l, grad %du "head", grad %dh "h"
"""
CONTRACT = "input u tp=S(1)\noutput loss:l\noutput grad:head tp=S(1)\noutput grad:h\n"
LABELS = "Every label names a class."


def triple(many: str) -> tuple[Program, Program, Contract]:
    one, ranks = parse_text(ONE), parse_text(many)
    return one, *compose(ranks, read_contract(CONTRACT, one, ranks))


def test_proof_says_what_it_assumes_of_labels() -> None:
    programs = triple(MANY)
    verdict = verify(Problem(*programs))
    assert isinstance(verdict, Proof)
    assert verdict.assumptions == (LABELS,)
    assert verdict.stats["refuter_samples"] <= 2 + len(DRAWS)
    assert isinstance(check(verdict.certificate, Problem(*programs)), Accepted)
    for key, value in (("opened", None), ("opened", "0" * 64)):
        changed = {k: v for k, v in verdict.certificate.items() if k != key}
        changed |= {key: value} if value else {}
        assert isinstance(check({**changed, "seal": seal(changed)}, Problem(*programs)), Rejected)


def test_window_of_the_first_rank_on_every_rank_is_refuted() -> None:
    for wrong in ("{size=64, offset=64*tp}", "{dim=1, offset=64*tp}"):
        changed = MANY.replace(wrong, wrong.replace(", offset=64*tp", ""))
        assert changed != MANY
        assert isinstance(verify(Problem(*triple(changed))), Counterexample)


def test_opened_program_is_equal_where_labels_name_a_class_and_else_not() -> None:
    before = inline(parse_text(ONE))
    after, assumed = open_entropy(before, unmarked=True)
    assert assumed == (LABELS,)
    assert open_entropy(before)[1] == ()
    rng = np.random.default_rng(0)
    inputs = {"h": rng.normal(size=(32, 64)), "u": rng.normal(size=(64, 256))}
    for labels, alike in ((rng.integers(0, 256, 32), True), (np.full(32, 300), False)):
        values = [evaluate(p, {**inputs, "t": labels}) for p in (before, after)]
        pairs = [
            (values[0][a.value], values[1][b.value])
            for a, b in zip(before.outputs, after.outputs, strict=True)
        ]
        assert all(np.allclose(a, b) for a, b in pairs) == alike
