"""Some faults of the provers: wrong programs are proved under them, and not accepted."""

from __future__ import annotations

import json

import pytest

from benchmarks.verifier_faults.__main__ import FOUND
from benchmarks.verifier_faults.believed import FAULTS, Fault
from benchmarks.verifier_faults.campaign import enlarged, muted
from benchmarks.verifier_faults.edits import made
from benchmarks.verifier_faults.programs import problem
from benchmarks.verifier_faults.rules import FAULTS as RULES, Fault as Rule
from benchmarks.verifier_faults.structure import FAULTS as STRUCTURE, Fault as Structural
from shardproof.verifier.checker import Accepted, Rejected, check
from shardproof.verifier.kernel.contract import Contract
from shardproof.verifier.kernel.layout import Layout, split_leading, whole
from shardproof.verifier.problem import Problem
from shardproof.verifier.refute.scale_down import refuting
from shardproof.verifier.smt.answers import UNACCEPTED, Answers
from shardproof.verifier.text.parser import parse_text
from shardproof.verifier.verdict import Proof, Unknown
from shardproof.verifier.verification import verify

WRITTEN = [f for f in FAULTS if f.pairs and f.shared]
SOME = WRITTEN[::6]


@pytest.mark.parametrize("fault", SOME, ids=lambda f: f.name.replace(" ", "_"))
def test_a_wrong_program_that_is_proved_is_not_accepted(fault: Fault) -> None:
    given = problem(fault.pairs[0])
    with made(fault.edit):
        with muted():
            proof = verify(given)
        if isinstance(proof, Proof):
            assert isinstance(check(proof.certificate, given, Answers()), Rejected)
        else:
            assert isinstance(proof, Unknown)
            assert "the checker rejects" in proof.reason
    assert not isinstance(verify(given), Proof)


@pytest.mark.parametrize("fault", [*FAULTS, *STRUCTURE], ids=lambda f: f.name.replace(" ", "_"))
def test_every_fault_can_be_put_into_the_code_of_today(fault: Fault | Structural) -> None:
    with made(fault.edit):
        pass


@pytest.mark.parametrize("fault", RULES, ids=lambda f: f.name.replace(" ", "_"))
def test_every_fault_of_a_rule_can_be_put_into_the_code_of_today(fault: Rule) -> None:
    with fault.made():
        pass


TOLD_AT_ENTRIES = [
    f
    for f in WRITTEN
    if f.name
    in (
        "a permutation loses its factor",
        "weights of a linear combination are forgotten",
        "a linear op loses the factor",
        "a transposed product keeps the order of its factors",
        "padding is all at the end",
        "a slice of a slice starts where the outer one does",
        "coefficients are not written",
        "a window does not move with a slice",
        "exp(a - log b) = b exp(a)",
        "equal keys are enough where a term may have no value",
    )
]


@pytest.mark.parametrize("fault", TOLD_AT_ENTRIES, ids=lambda f: f.name.replace(" ", "_"))
def test_single_entries_tell_where_terms_are_too_large_to_be_computed(
    fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refuting, "FEW_OPS", -1)
    (given,) = enlarged(fault)
    with made(fault.edit), muted():
        proof = verify(given)
        assert isinstance(proof, Proof)
        rejected = check(proof.certificate, given, Answers())
    assert isinstance(rejected, Rejected)
    assert rejected.where == "the terms"


TOLD_AT_SMALL_EXTENTS = [
    f
    for f in WRITTEN
    if f.name
    in (
        "every op on rows is linear",
        "every term is defined",
        "a sum is positive if one summand is",
        "what a choice does not take is defined too",
        "an odd power is not negative",
        "P (1/Q) = P",
    )
]


@pytest.mark.parametrize("fault", TOLD_AT_SMALL_EXTENTS, ids=lambda f: f.name.replace(" ", "_"))
def test_small_extents_tell_where_programs_are_too_large_to_run(fault: Fault) -> None:
    (given,) = enlarged(fault)
    with made(fault.edit), muted():
        proof = verify(given)
        assert isinstance(proof, Proof)
        rejected = check(proof.certificate, given, Answers())
    assert isinstance(rejected, Rejected)
    assert rejected.reason == "the programs differ on numbers"


COUNTED = """program one input %x: f32[300000] %o = full {shape=[300000], value=1}
%n = sum %o {dims=[0]} %s = sum %x {dims=[0]} %z = div %s, %n return %z"""
MEANT = """program many mesh(tp=2) input %x: f32[150000] %s = sum %x {dims=[0]}
%t = all_reduce %s {mesh_dim=tp} %z = mul_scalar %t {value=1/300000} return %z"""


def test_a_constant_that_counts_entries_is_no_difference_at_small_extents() -> None:
    halves = split_leading(whole(300_000), 2, "tp")
    assert halves is not None
    contract = Contract({"x": Layout((halves,), ())}, {"output:z": Layout.replicate(())})
    given = Problem(parse_text(COUNTED), parse_text(MEANT), contract)
    proof = verify(given)
    assert isinstance(proof, Proof)
    assert isinstance(check(proof.certificate, given, Answers()), Accepted)


def test_what_the_page_says_was_measured_of_these_faults() -> None:
    found = json.loads(FOUND.read_text(encoding="utf-8"))
    assert [t["name"] for t in found["believed"]] == [f.name for f in FAULTS]
    assert not any(t["accepted"] for t in found["believed"])
    assert all(t["proved"] or t["changed"] for t in found["believed"])
    assert [r["name"] for r in found["rules"]] == [f.name for f in RULES]
    assert all(r["after"] in UNACCEPTED and r["before"] not in UNACCEPTED for r in found["rules"])
    assert [r["name"] for r in found["structure"]] == [f.name for f in STRUCTURE]
    assert all(r["after"] and not r["before"] for r in found["structure"])


@pytest.mark.parametrize("fault", STRUCTURE, ids=lambda f: f.name.replace(" ", "_"))
def test_a_law_finds_a_fault_of_what_no_step_shows(fault: Structural) -> None:
    assert not fault.law()
    with made(fault.edit):
        assert fault.law()
