"""Z3 finds faults of the checker's own rules, and shows the rules as they are at all sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from benchmarks.verifier_faults.edits import Edit
from benchmarks.verifier_faults.rules import FAULTS, Fault, instance, piece
from shardproof.verifier.checker import Accepted, Rejected, check, conclusion, rules
from shardproof.verifier.checker.conclusion import conclude
from shardproof.verifier.kernel.instance import JOINED, Instance
from shardproof.verifier.kernel.program.jsondata import Cursor
from shardproof.verifier.kernel.program.types import Affine
from shardproof.verifier.problem import Problem
from shardproof.verifier.smt import solver as smt
from shardproof.verifier.smt.answers import UNACCEPTED, Answers, Discharged, Summary
from shardproof.verifier.smt.discharge import discharge
from shardproof.verifier.smt.forms import form
from shardproof.verifier.smt.index_maps import NotStatedError, shown, statements
from shardproof.verifier.smt.instance_json import from_json, to_json
from shardproof.verifier.terms import Ref, Terms
from shardproof.verifier.text.contract import read_contract
from shardproof.verifier.text.parser import parse_text
from shardproof.verifier.verdict import Proof
from shardproof.verifier.verification import verify
from tests.checker.edits import CASES, certified
from tests.checker.pairs import PAIRS


def said(given: Instance) -> Discharged:
    return discharge(form(given), conclude)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.name.replace(" ", "_"))
def test_a_fault_of_a_rule_is_found(fault: Fault) -> None:
    assert said(fault.step).extent not in UNACCEPTED
    with fault.made():
        assert said(fault.step).extent in UNACCEPTED


@pytest.mark.parametrize(
    ("op", "extent"), [("relu", "all sizes"), ("sign", "not shown"), ("cos", "refuted")]
)
def test_only_numbers_refute_a_rule_about_functions(
    op: str, extent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`sign` never falls, of which Z3 knows nothing: its model of `sign` is no counterexample."""
    monkeypatch.setattr(rules, "RISING", rules.RISING | {(op, 0)})
    found = said(instance(op, ["16; max@tp"], "16; max@tp"))
    assert found.extent == extent, found


def test_what_is_chosen_of_a_line_is_never_more_than_the_line() -> None:
    found = said(instance("topk_index", ["8@tp 4, 16, 8"], "8@tp 4, 16, 2", dim=2, k=2))
    assert found.extent == "all sizes"
    wrong = said(instance("topk_index", ["8, 16, 8@tp 4"], "8, 16, 2", dim=2, k=2))
    assert wrong.extent != "all sizes"


def twice(given: Instance, refs: Sequence[Ref], terms: Terms) -> Ref:
    ref = conclude(given, refs, terms)
    return Ref(2 * ref.coef, ref.id)


def test_a_fault_of_a_rule_rejects_a_certificate(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = Problem(*PAIRS["mlp"]())
    proof = verify(problem)
    assert isinstance(proof, Proof)
    accepted = check(proof.certificate, problem, Answers())
    assert isinstance(accepted, Accepted)
    assert accepted.steps is not None
    assert accepted.steps.counts == {"all sizes": accepted.steps.forms}

    monkeypatch.setattr(conclusion, "conclude", twice)
    rejected = check(proof.certificate, problem, Answers())
    assert isinstance(rejected, Rejected)
    assert rejected.reason.startswith("Z3 refutes a rule")
    assert isinstance(check(proof.certificate, problem), Accepted)


READS = [f for f in FAULTS if not isinstance(f.at, Edit)]
"""Faults of what an op reads: of folds that are pending, small sizes tell."""
CONCLUDED = ("a slice starts at 0", "a sum of copies", "a mean is a sum")
"""Faults of what is concluded from a step that is right."""


@pytest.mark.parametrize("fault", READS, ids=lambda f: f.name.replace(" ", "_"))
def test_no_wrong_step_is_shown_at_all_sizes(fault: Fault) -> None:
    try:
        found = shown(form(fault.step))
    except NotStatedError:
        return
    assert bool(found.failed) != fault.name.startswith(CONCLUDED)


TRUTHS = replace(piece("8@m0 4"), dtype="bool")
ADDED = instance("index_add", ["8, 16", "8"], "4, 16", size=4, offset=0)
RIGHT = [
    replace(instance("cast", ["8@tp 4"], "8@tp 4", dtype="i64"), given=(TRUTHS,)),
    instance("mm", ["16, 4@dp 8@tp 2", "4@dp 8@tp 2, 16"], "16, 16; sum@dp; sum@tp"),
    instance("add", ["8@tp 4, 16; sum@dp", "16; sum@dp"], "8@tp 4, 16; sum@dp"),
    instance("permute", ["8@tp 2, 16, 32"], "16, 32, 8@tp 2", dims=(1, 2, 0)),
    instance("reshape", ["4, 8@tp 2, 6"], "4 8@tp 12", shape=(48,)),
    instance("slice", ["6 8@tp 4"], "2 8@tp 4", dim=0, start=4, stop=12, step=1),
    instance("slice", ["12, 8@tp 4"], "4, 8@tp 4", dim=0, start=1, stop=11, step=3),
    instance("pad", ["6 8@tp 4"], "9 8@tp 4", dim=0, lo=4, hi=8),
    instance("concat", ["8, 8@tp 4", "24, 8@tp 4"], "32, 8@tp 4", dim=0),
    instance("concat", ["3 8@tp 4", "3 8@tp 4"], "6 8@tp 4", dim=0),
    instance("flip", ["24, 8@tp 4"], "24, 8@tp 4", dim=0),
    instance("expand", ["1, 8@tp 4"], "4@dp 2, 8@tp 4", shape=(2, 4)),
    instance("take", ["8@tp 4, 16", "8"], "8, 16; sum@tp", dim=0, offset=Affine.of(0, {"tp": 4})),
    instance("index_add", ["4@dp 2, 16", "4@dp 2"], "8@tp 4, 16; sum@dp", size=4,
             offset=Affine.of(0, {"tp": 4})),
    replace(ADDED, given=(ADDED.given[0], replace(ADDED.given[1], zero=True))),
    instance("iota", [], "4@dp 8@tp 4", shape=(4,), dim=0, offset=Affine.of(7, {"dp": 32, "tp": 4}),
             dtype="i64"),
    instance("all_gather", ["4@dp 8@tp 2"], "64", dim=0, mesh_dim=("dp", "tp")),
    instance("reduce_scatter", ["64; sum@dp; sum@tp"], "4@dp 8@tp 2", dim=0,
             mesh_dim=("dp", "tp"), reduce="sum"),
    instance("all_to_all", ["8@tp 4, 32"], "32, 8@tp 4", split_dim=1, concat_dim=0, mesh_dim="tp"),
    instance("all_reduce", ["16; max@tp"], "16", mesh_dim="tp", reduce="max"),
    instance("amax", ["8@tp 4, 16"], "16; max@tp", dims=(0,), keepdim=False),
    instance(JOINED, ["2, 4; dp=0", "2, 4; dp=1"], "2, 4; dp=0|1", rule=f"{JOINED}:same:dp"),
    instance("send", ["8@tp 4; dp=1"], "8@tp 4; dp=2", mesh_dim="dp", src=1, dst=2),
    instance("full", [], "8@tp 4, 16; tp=1", shape=(4, 16), value=Fraction(0), dtype="f32"),
    instance("cumsum", ["8@tp 4, 16; sum@dp"], "8@tp 4, 16; sum@dp", dim=1, exclusive=False),
]  # fmt: skip


@pytest.mark.parametrize("given", RIGHT, ids=str)
def test_a_right_step_is_shown_at_all_sizes(given: Instance) -> None:
    found = said(given)
    assert found.extent == "all sizes", found
    for _, premises in statements(form(given)):
        solver = smt.Solver()
        solver.assume(*premises)
        assert isinstance(solver.consistent(), smt.Valid), "its premises contradict each other"


def test_a_step_on_one_coordinate_of_a_split_dim_is_tried_there() -> None:
    """Of what the other ranks hold nothing is said."""
    given = instance("full", [], "8@tp 4, 16; tp=1", shape=(4, 16), value=Fraction(1), dtype="f32")
    assert said(given).extent == "all sizes"
    assert discharge(form(given), twice).extent == "refuted"


@pytest.mark.parametrize("given", RIGHT, ids=str)
def test_an_instance_is_read_as_it_was_written(given: Instance) -> None:
    assert from_json(Cursor(to_json(given), "instance")) == given
    assert form(given).at(form(given).sizes) == given


def test_instances_of_other_extents_have_one_form() -> None:
    first = instance("mm", ["16, 8@tp 2", "8@tp 2, 16"], "16, 16; sum@tp")
    other = instance("mm", ["32, 4@dp 64", "4@dp 64, 16"], "32, 16; sum@dp")
    turned = instance("mm", ["16, 8@tp 2", "8@tp 2, 4@dp 16"], "16, 4@dp 16; sum@tp")
    assert str(form(first)) == str(form(other)) != str(form(turned))
    early = instance("send", ["16; dp=0"], "16; dp=1", mesh_dim="dp", src=0, dst=1)
    late = instance("send", ["16; dp=2"], "16; dp=3", mesh_dim="dp", src=2, dst=3)
    assert str(form(early)) != str(form(late))


def test_answers_are_kept_and_asked_again(tmp_path: Path) -> None:
    problem = Problem(*PAIRS["attention"]())
    proof = verify(problem)
    assert isinstance(proof, Proof)
    path = tmp_path / "kept" / "steps.json"

    def summary() -> Summary:
        found = check(proof.certificate, problem, Answers(path))
        assert isinstance(found, Accepted)
        assert found.steps is not None
        return found.steps

    first, second = summary(), summary()
    assert first.asked == first.forms > 0
    assert second == replace(first, asked=0)
    assert Answers(path).again(conclude) == []
    path.write_text(path.read_text().replace('"all sizes"', '"small sizes"'))
    assert len(Answers(path).again(conclude)) == first.forms
    path.write_text(path.read_text().replace('"code": "', '"code": "0'))
    assert summary() == first
    path.write_text("[]")
    assert summary() == first


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.campaign)])
def test_no_proof_of_the_corpus_rests_on_a_rule_alone(every: int) -> None:
    answers = Answers()
    for name in [*CASES][::every]:
        problem, document = certified(name)
        assert isinstance(check(document, problem, answers), Accepted)
    extents = [one.answer.extent for one in answers.known.values()]
    assert len(extents) > 500 / every
    assert set(extents) <= {"all sizes", "small sizes"}
    assert extents.count("small sizes") <= 2
    assert every > 1 or "small sizes" in extents


@pytest.mark.parametrize("reduce", ["max", "min", "avg"])
@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_copies_reduced_by_anything_that_keeps_them_are_accepted(reduce: str, ranks: int) -> None:
    one = parse_text(f"program one\n  input %x: f32[{3 * ranks}, 4]\n  %y = exp %x\n  return %y\n")
    many = parse_text(
        f"program many mesh(tp={ranks})\n  input %x: f32[{3 * ranks}, 4]\n  %c = exp %x\n"
        f"  %y = all_reduce %c {{mesh_dim=tp, reduce={reduce}}}\n  return %y\n"
    )
    problem = Problem(one, many, read_contract("output y\n", one, many).contract)
    proof = verify(problem)
    assert isinstance(proof, Proof)
    assert isinstance(check(proof.certificate, problem, Answers()), Accepted)
