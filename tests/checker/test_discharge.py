"""Z3 finds faults of the checker's own rules, and shows the rules as they are at all sizes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from benchmarks.mutation_testing.corpus import cases
from tests.checker.pairs import PAIRS
from verifier.checker import Accepted, Rejected, check, collectives, replay, rules, steps
from verifier.checker.claims import Claim, Row
from verifier.checker.step import Made, Step
from verifier.checker.steps import conclude
from verifier.kernel.layout import Atom, Layout, normal
from verifier.kernel.ops import lookup
from verifier.kernel.program.jsondata import Cursor
from verifier.kernel.program.types import Affine, Attr, Mesh
from verifier.problem import Problem
from verifier.smt import solver as smt
from verifier.smt.answers import Answers, Discharged, Summary
from verifier.smt.discharge import discharge
from verifier.smt.forms import form
from verifier.smt.index_maps import NotStatedError, shown, statements
from verifier.smt.instances import JOINED, Instance, Piece, from_json, normal_form, to_json
from verifier.terms import Ref, Terms
from verifier.verdict import Proof
from verifier.verification import verify

MESH = Mesh.of(dp=4, tp=8)


def piece(text: str) -> Piece:
    """For example `8@tp 4, 16; sum@dp; tp=0`: dims, a pending fold, ranks."""
    dims, *rest = text.split(";")
    layout = Layout(
        tuple(normal(_atom(word) for word in dim.split()) for dim in dims.split(",") if dim.strip())
    )
    where: list[tuple[str, tuple[int, ...]]] = []
    for item in rest:
        fold = re.fullmatch(r"\s*(\w+)@(\w+)", item)
        if fold:
            layout = layout.with_partial((*layout.partial, (fold[2], fold[1])))
        else:
            name, _, at = item.strip().partition("=")
            where.append((name, tuple(map(int, at.split("|")))))
    return Piece(layout, tuple(where))


def _atom(word: str) -> Atom:
    size, _, name = word.partition("@")
    return Atom(int(size), name or None)


def instance(op: str, given: list[str], made: str, rule: str = "", **attrs: Attr) -> Instance:
    items = attrs if op == JOINED else lookup(op).with_defaults(attrs)
    pieces = tuple(map(piece, given))
    kinds = {"index": 1} if op != JOINED and lookup(op).kind == "index" else {}
    pieces = tuple(
        replace(p, dtype="i64") if i in kinds.values() else p for i, p in enumerate(pieces)
    )
    return normal_form(
        Instance(rule or op, op, tuple(sorted(items.items())), pieces, piece(made), MESH)
    )


def said(given: Instance) -> Discharged:
    return discharge(form(given), conclude)


Rule = Callable[[Step], Made]


def bare(**attrs: Any) -> Rule:
    """A rule that asks for nothing."""
    return lambda step: step.term(**attrs)


def shaped(step: Step) -> Made:
    return step.term(shape=step.layout.global_shape)


def windows(step: Step, dims: Any) -> list[tuple[str, str]]:
    return [(a.mesh_dim, "sum") for a in dims if a.mesh_dim]


def counted_once(step: Step) -> tuple[tuple[tuple[str, str], ...], Fraction]:
    names = collectives._names(step)
    return tuple(p for p in step.first.partial if p[0] not in names), Fraction(1)


def joined_as_they_come(row: Row, parts: Sequence[Claim], terms: Terms, mesh: Mesh) -> Ref:
    return terms.apply("concat", [p.ref for p in parts], {"dim": 0}, ["f32"] * len(parts))


@dataclass(frozen=True)
class Fault:
    """A change to a rule, and a step that it lets through."""

    name: str
    step: Instance
    at: object
    attribute: str
    value: object
    op: str = ""
    """The entry of a table that is changed."""


FAULTS = [
    Fault(
        "a pending sum passes a function that is not linear",
        instance("relu", ["16, 8; sum@tp"], "16, 8; sum@tp"),
        rules.LINEAR, "", (frozenset({0}),), "relu",
    ),
    Fault(
        "a product of two pending sums is one",
        instance("mul", ["16; sum@tp", "16; sum@tp"], "16; sum@tp"),
        rules.LINEAR, "", (frozenset({0, 1}),), "mul",
    ),
    Fault(
        "a pending maximum passes a function that falls",
        instance("neg", ["16; max@tp"], "16; max@tp"),
        rules, "MONOTONE", {("neg", "max")},
    ),
    Fault(
        "a permutation is taken for its inverse",
        instance("permute", ["8@tp 2, 16, 32"], "32, 8@tp 2, 16", dims=(1, 2, 0)),
        rules._RULES, "", bare(dims=(2, 0, 1)), "permute",
    ),
    Fault(
        "a slice starts at 0 whatever is said",
        instance("slice", ["8@tp 4, 16"], "8@tp 4, 8", dim=1, start=8, stop=16, step=1),
        rules._RULES, "", bare(start=0, stop=8), "slice",
    ),
    Fault(
        "a slice of a rank's part is one of the whole",
        instance("slice", ["8@tp 4, 16"], "8@tp 2, 16", dim=0, start=0, stop=2, step=1),
        rules._RULES, "", lambda s: s.term(stop=2 * s.mesh[s.mesh.names[0]]), "slice",
    ),
    Fault(
        "pieces are scattered to ranks in another order",
        instance("reduce_scatter", ["64; sum@dp; sum@tp"], "8@tp 4@dp 2", dim=0,
                 mesh_dim=("dp", "tp"), reduce="sum"),
        collectives, "_names", lambda step: tuple(reversed(step.attrs["mesh_dim"])),
    ),
    Fault(
        "pieces are gathered in another order",
        instance("all_gather", ["8@tp 4@dp 2"], "64", dim=0, mesh_dim=("dp", "tp")),
        collectives, "_names", lambda step: tuple(reversed(step.attrs["mesh_dim"])),
    ),
    Fault(
        "a sum of copies is counted once",
        instance("all_reduce", ["16"], "16", mesh_dim="tp", reduce="sum"),
        collectives, "_reduced", counted_once,
    ),
    Fault(
        "a mean is a sum",
        instance("all_reduce", ["16; sum@tp"], "16", mesh_dim="tp", reduce="avg"),
        collectives, "_reduced", counted_once,
    ),
    Fault(
        "a lookup in a window that is not the rank's",
        instance("take", ["8@tp 4, 16", "8"], "8, 16; sum@tp", dim=0, offset=0),
        rules, "_window", windows,
    ),
    Fault(
        "a window of another size",
        instance("take", ["8@tp 4, 16", "8"], "8, 16; sum@tp", dim=0,
                 offset=Affine.of(0, {"tp": 2})),
        rules, "_window", windows,
    ),
    Fault(
        "a ramp starts at 0 on every rank",
        instance("iota", [], "8@tp 4", shape=(4,), dim=0, offset=0, dtype="i64"),
        rules._RULES, "", lambda s: s.term(shape=s.layout.global_shape, offset=0), "iota",
    ),
    Fault(
        "a sum of a split dim waits for nothing",
        instance("sum", ["8@tp 4, 16"], "16", dims=(0,), keepdim=False),
        rules._KINDS, "", bare(), "reduce",
    ),
    Fault(
        "a maximum of a split dim leaves a sum",
        instance("amax", ["8@tp 4, 16"], "16; sum@tp", dims=(0,), keepdim=False),
        rules.FOLDS, "", "sum", "amax",
    ),
    Fault(
        "a running sum along a split dim",
        instance("cumsum", ["8@tp 4, 16"], "8@tp 4, 16", dim=0, exclusive=False),
        rules._RULES, "", bare(), "cumsum",
    ),
    Fault(
        "a split dim is turned round on each rank",
        instance("flip", ["8@tp 4, 16"], "8@tp 4, 16", dim=0),
        rules._RULES, "", bare(), "flip",
    ),
    Fault(
        "joined pieces are the leading ones of each rank",
        instance("concat", ["8@tp 4", "8@tp 4"], "8@tp 8", dim=0),
        rules._RULES, "", bare(), "concat",
    ),
    Fault(
        "atoms of a reshape change places",
        instance("reshape", ["4, 8@tp 2"], "8@tp 8", shape=(8,)),
        rules._RULES, "", shaped, "reshape",
    ),
    Fault(
        "two ranks' parts are joined in the order of the claims",
        instance(JOINED, ["4; dp=1", "4; dp=0", "4; dp=2", "4; dp=3"], "4@dp 4",
                 rule=f"{JOINED}:concat:dp:0"),
        steps, "join", joined_as_they_come,
    ),
    Fault(
        "rows are in pieces",
        instance("topk_mask", ["8@tp 4, 16"], "8@tp 4, 16", dim=0, k=1),
        rules._KINDS, "", bare(), "rows",
    ),
]  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.name.replace(" ", "_"))
def test_a_fault_of_a_rule_is_found(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    assert said(fault.step).extent != "refuted"
    if isinstance(fault.at, dict):
        monkeypatch.setitem(fault.at, fault.op, fault.value)
    else:
        monkeypatch.setattr(fault.at, fault.attribute, fault.value)
    assert said(fault.step).extent == "refuted"


def test_a_fault_of_a_rule_rejects_a_certificate(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = Problem(*PAIRS["mlp"]())
    proof = verify(problem)
    assert isinstance(proof, Proof)
    accepted = check(proof.certificate, problem, Answers())
    assert isinstance(accepted, Accepted)
    assert accepted.steps is not None
    assert accepted.steps.counts == {"all sizes": accepted.steps.forms}

    def doubled(given: Instance, refs: Sequence[Ref], terms: Terms) -> Ref:
        ref = conclude(given, refs, terms)
        return Ref(2 * ref.coef, ref.id)

    monkeypatch.setattr(replay, "conclude", doubled)
    rejected = check(proof.certificate, problem, Answers())
    assert isinstance(rejected, Rejected)
    assert rejected.reason.startswith("Z3 refutes a rule")
    assert isinstance(check(proof.certificate, problem), Accepted)


CONCLUDED = ("a slice starts at 0", "a sum of copies", "a mean is a sum")
"""Faults of what is concluded from a step that is right."""


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.name.replace(" ", "_"))
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
    instance("send", ["8@tp 4; dp=1"], "8@tp 4; dp=2", mesh_dim="dp", src=1, dst=2),
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
def test_no_proof_of_the_corpus_rests_on_a_rule_alone() -> None:
    answers = Answers()
    for case in cases():
        if case.kind == "program" and "right" in case.sections:
            problem = Problem(*case.programs("right"))
            proof = verify(problem)
            assert isinstance(proof, Proof)
            assert isinstance(check(proof.certificate, problem, answers), Accepted)
    extents = [one.answer.extent for one in answers.known.values()]
    assert len(extents) > 500
    assert set(extents) == {"all sizes", "small sizes"}
    assert extents.count("small sizes") <= 1
