"""What else a plan could be is answered by trying it, and the verifier has the last word."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shardproof.synthesis.planner.constraints import NO_CONSTRAINTS, ConstraintError
from shardproof.synthesis.planner.judging import Judge, candidates, differences
from shardproof.synthesis.planner.literal import LiteralError, literal
from shardproof.synthesis.planner.planner import Asked, Synthesis, synthesize
from shardproof.synthesis.planner.roles import Module
from shardproof.synthesis.planner.why import why_not
from shardproof.synthesis.repair.diagnosis import verify
from shardproof.verifier.kernel.contract import Contract
from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.problem import Problem
from shardproof.verifier.verdict import Counterexample, Proof
from tests.synthesis import decoder

PROGRAM = decoder.decoder(layers=2)


@pytest.fixture(scope="module")
def made() -> Synthesis:
    return synthesize(Asked(PROGRAM, Mesh.of(tp=2), decoder.CLUSTER))


@pytest.fixture(scope="module")
def judge(made: Synthesis) -> Judge:
    return Judge(made)


def module(made: Synthesis, path: str) -> Module:
    return next(m for m in made.found.modules if m.path == path)


@pytest.mark.parametrize(
    ("path", "style", "right"),
    [
        ("layers.*.attn.q", "column", True),
        ("layers.*.mlp.down", "column", True),
        ("head", "column", True),
        ("layers.*.mlp.down", "row", False),
        ("layers.*.attn.o", "row", False),
        ("head", "row", False),
        ("embed", "vocab", False),
        ("layers.*.norm1", "column", False),
        ("norm", "column", False),
    ],
)
def test_a_style_at_its_word(made: Synthesis, path: str, style: str, right: bool) -> None:
    """Column splits are whole after a gather; a row split, vocabulary rows and a norm over a split
    dim need a reduction that is not there."""
    pair = literal(made.sequential, module(made, path), style, "tp", 2)
    verdict = verify(Problem(pair.sequential, pair.distributed, pair.contract))
    assert isinstance(verdict, Proof if right else Counterexample)


def test_extents_that_do_not_divide_have_no_local_program(made: Synthesis) -> None:
    with pytest.raises(LiteralError, match="does not divide"):
        literal(made.sequential, module(made, "layers.*.norm1"), "column", "tp", 3)


@pytest.mark.parametrize(
    ("path", "style", "answer", "words"),
    [
        ("layers.*.mlp.down", "row", "chosen", "the plan does that"),
        ("layers.*.mlp.down", "rowwise", "chosen", "the plan does that"),
        ("layers.*.mlp.down", "column", "emitter", "needs shard_slice over tp inside"),
        ("layers.*.mlp.down", "replicate", "cheaper", "keeps"),
        ("layers.*.attn.q", "row", "emitter", "needs shard_slice over tp inside"),
        ("layers.*.norm1", "column", "refuted", "on rank tp=0 is"),
        ("layers.*.mlp.up", "fused_column", "misfit", "nothing is fused"),
        ("layers.*.attn.k", "vocab", "misfit", "vocab is for embeddings"),
    ],
)
def test_why_not(judge: Judge, path: str, style: str, answer: str, words: str) -> None:
    found = why_not(judge, path, style)
    assert found.answer == answer
    assert words in found.reason
    assert found.holds == (answer in ("chosen", "dearer", "cheaper"))
    if answer == "refuted":
        assert isinstance(found.bare_verdict, Counterexample)
    if found.holds:
        assert found.judgement is not None
        assert isinstance(found.judgement.verdict, Proof)
        assert found.step_s


def test_why_not_with_little_memory(made: Synthesis) -> None:
    tight = Judge(made, limit=1000)
    found = why_not(tight, "layers.*.mlp.down", "replicate")
    assert found.answer == "memory"
    assert "there are 1kB" in found.reason


@pytest.mark.parametrize(("path", "style"), [("nowhere", "row"), ("head", "rows"), ("l*", "row")])
def test_questions_about_nothing(judge: Judge, path: str, style: str) -> None:
    with pytest.raises(ConstraintError, match="why not"):
        why_not(judge, path, style)


def test_candidates_are_judged_one_by_one(judge: Judge) -> None:
    rows = candidates(judge, 4)
    assert [r.chosen for r in rows].count(True) == 1
    assert rows[0].chosen
    assert not rows[0].differs
    assert {r.judgement.status for r in rows} >= {"proved", "emitter"}
    for row in rows[1:]:
        assert row.why
        assert row.differs == differences(rows[0].point, row.point) != ()
    known = {r.point for r in rows}
    assert len(known) == len(rows)


def test_a_wrong_candidate_is_refuted_and_one_without_room_is_told(made: Synthesis) -> None:
    best = made.found.best
    program = best.lowered.program
    nodes = [
        replace(n, op="mul_scalar", attrs={"value": 1}) if n.op == "all_reduce" else n
        for n in program.nodes
    ]
    assert nodes != list(program.nodes)
    wrong = replace(best.lowered, program=replace(program, nodes=tuple(nodes)))
    assert Judge(made)(replace(best, lowered=wrong)).status == "refuted"
    assert Judge(made, limit=1.0)(best).status == "memory"
    contract = best.lowered.contract
    assert isinstance(contract, Contract)
    assert made.asked.constraints == NO_CONSTRAINTS
