"""The search: single and double faults are mended by few edits, and what is offered is proved."""

from __future__ import annotations

import pytest

from benchmarks.mutation_testing.cases import read_case
from benchmarks.mutation_testing.corpus import ROOT
from benchmarks.mutation_testing.mutants import mutations
from benchmarks.mutation_testing.truth import equal
from benchmarks.mutation_testing.zoo import bases
from shardproof.synthesis.repair.diagnosis import verify
from shardproof.synthesis.repair.question import Question
from shardproof.synthesis.repair.search import NotRepaired, Repaired, repair
from shardproof.verifier.checker import Accepted, check
from shardproof.verifier.kernel.inline import inline
from shardproof.verifier.kernel.program.errors import IRError
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.problem import Problem
from shardproof.verifier.text.contract import compose, read_contract
from shardproof.verifier.text.parser import parse_text
from shardproof.verifier.verdict import Proof

BASES = {str(b): b for b in bases()}
CASES: dict[str, tuple[str, tuple[str, ...]]] = {
    "a sum that is missing": (
        "missing_collective/MC-01",
        ("all_reduce {mesh_dim=tp, reduce=sum} after %p",),
    ),
    "another fold": ("basics/max_for_sum", ("reduce=sum for the op that makes %y",)),
    "reduced twice": ("basics/all_reduce_twice", ("drop the all_reduce that makes %w",)),
    "another group": ("basics/wrong_group", ("mesh_dim=tp for the op that makes %h",)),
    "a mean over fewer": (
        "basics/mean_over_local_tokens",
        ("value=1/8 for the op that makes %m",),
    ),
}
FAULTS = [
    ("mlp[tp=2]", "bias before the reduce: operand 1 added before at %7"),
    ("gated[tp=2]", "wrong op: silu -> sigmoid"),
    ("vocabulary[tp=2]", "wrong offset: offset 0 for 4*tp"),
    ("sequence[tp=2]", "extra collective"),
    ("attention[tp=2]", "wrong reshape"),
    ("layers[tp=2]", "wrong operand"),
    ("averaged[dp=2]", "drop backward collective"),
    ("ulysses[tp=2]", "wrong dim of a collective"),
]
PAIRS = [
    ("mlp[tp=2]", "drop collective", "wrong op: mul"),
    ("gated[tp=2]", "drop collective", "drop backward collective"),
    ("sharded[dp=2]", "wrong reduction", "wrong op"),
]


def mutant(name: str, program: Program, kind: str) -> Program:
    """The first mutant of a kind that is wrong, and that every rank can run."""
    for mutation in mutations(program):
        if f"{mutation.kind}: {mutation.text}".startswith(kind):
            made = mutation.edit()
            try:
                if made is not None and not equal(BASES[name], made):
                    return made
            except (IRError, KeyError):
                continue
    raise AssertionError(f"no mutant of {name} by {kind}")


def mended(name: str, wrong: Program, most: int) -> Repaired:
    base = BASES[name]
    found = repair(Question(base.sequential, wrong, base.contract, max_edits=most), seconds=20)
    assert isinstance(found, Repaired), found
    assert equal(base, inline(found.program))
    programs = base.sequential, found.program, base.contract
    assert isinstance(check(found.verdict.certificate, Problem(*programs)), Accepted)
    return found


@pytest.mark.parametrize("name", CASES)
def test_fault_of_the_corpus_is_mended_by_the_edit_a_person_would_make(name: str) -> None:
    path, expected = CASES[name]
    programs = read_case(ROOT / f"{path}.txt").programs("wrong")
    found = repair(Question(*programs))
    assert isinstance(found, Repaired)
    assert tuple(map(str, found.edits)) == expected
    assert isinstance(verify(Problem(programs[0], found.program, programs[2])), Proof)


@pytest.mark.parametrize(("name", "kind"), FAULTS, ids=[f"{n} {k}" for n, k in FAULTS])
def test_one_fault_is_mended(name: str, kind: str) -> None:
    wrong = mutant(name, BASES[name].distributed, kind)
    assert len(mended(name, wrong, 3).edits) <= 2


@pytest.mark.parametrize(("name", "first", "second"), PAIRS, ids=[p[0] for p in PAIRS])
def test_two_faults_are_mended(name: str, first: str, second: str) -> None:
    wrong = mutant(name, mutant(name, BASES[name].distributed, first), second)
    assert len(mended(name, wrong, 3).edits) <= 3


def test_right_program_needs_no_edit() -> None:
    base = BASES["mlp[tp=2]"]
    found = repair(Question(base.sequential, base.distributed, base.contract))
    assert isinstance(found, Repaired)
    assert found.edits == ()
    assert found.program == base.distributed


def test_fixed_ops_are_left_as_they_are() -> None:
    base = BASES["mlp[tp=2]"]
    wrong = mutant("mlp[tp=2]", base.distributed, "wrong reduction: reduce=avg")
    pairs = zip(wrong.nodes, base.distributed.nodes, strict=True)
    changed = [n.outputs[0] for n, m in pairs if n != m]
    assert changed
    found = repair(Question(base.sequential, wrong, base.contract, held_fast=frozenset(changed)))
    assert isinstance(found, Repaired)
    for name in changed:
        assert found.program.producers()[name] == wrong.producers()[name]


def test_what_is_not_mended_says_why() -> None:
    base = BASES["mlp[tp=2]"]
    every = [v for n in base.distributed.nodes for v in n.outputs]
    wrong = mutant("mlp[tp=2]", base.distributed, "wrong op: gelu -> relu")
    asked = Question(base.sequential, wrong, base.contract, max_edits=1, held_fast=frozenset(every))
    found = repair(asked, seconds=2)
    assert isinstance(found, NotRepaired)
    assert found.reason


def test_cost_chooses_among_edits() -> None:
    """Of the single edits that mend a program, the one that the caller calls cheaper."""
    programs = read_case(ROOT / "basics/average_for_sum.txt").programs("wrong")

    def nodes(program: Program) -> float:
        return len(program.nodes)

    first = repair(Question(*programs), cost=nodes)
    other = repair(Question(*programs), cost=lambda program: -nodes(program))
    assert isinstance(first, Repaired)
    assert isinstance(other, Repaired)
    assert [len(first.edits), len(other.edits)] == [1, 1]
    assert len(first.program.nodes) < len(other.program.nodes)


def test_programs_too_large_to_be_run_are_mended_as_relations_suggest() -> None:
    text = "program p{mesh}\n  input %x: f32[2048, {k}]\n  param %w: f32[{k}, 2048]\n"
    text += "  %y = mm %x, %w\n  return %y\n"
    one, many = (
        parse_text(text.format(mesh="", k=2048)),
        parse_text(text.format(mesh=" mesh(tp=2)", k=1024)),
    )
    ranks, contract = compose(many, read_contract("input x tp=S(1)\ninput w tp=S(0)", one, many))
    found = repair(Question(one, ranks, contract))
    assert isinstance(found, Repaired)
    assert list(map(str, found.edits)) == ["all_reduce {mesh_dim=tp, reduce=sum} after %y"]
