"""Every fact that a walk derives is true on numbers, whatever the distributed program does."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import example, given, settings, strategies as st

from shardproof.synthesis.repair.diagnosis import verify
from shardproof.verifier.checker import Accepted, check
from shardproof.verifier.kernel.contract import Contract
from shardproof.verifier.kernel.layout import Layout, whole
from shardproof.verifier.kernel.placements import from_placements
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.kernel.program.types import NO_MESH, Mesh, TensorType
from shardproof.verifier.problem import Problem
from shardproof.verifier.provers.relate.rules import Rules, initial
from shardproof.verifier.provers.relate.walk import relate
from shardproof.verifier.provers.sequential import as_terms
from shardproof.verifier.refute.evaluate import simulate
from shardproof.verifier.verdict import Counterexample, Proof
from tests.verifier.meaning import Meaning, Plain, RoundedApartError, holds
from tests.verifier.random_programs import MESHES, Author, grow, inputs, pieces, values


def broken_facts(seed: int, moves: bool = False, sharing: bool = False) -> tuple[list[str], int]:
    """What is wrong with the facts of one random program, and how many facts were tried."""
    try:
        return broken(seed, moves, sharing)
    except RoundedApartError:
        return [], 0


def broken(seed: int, moves: bool, sharing: bool) -> tuple[list[str], int]:
    rng = np.random.default_rng(seed)
    mesh = MESHES[int(rng.integers(len(MESHES)))]
    sequential, contract = inputs(mesh, rng)
    b = Builder("many", mesh)
    for item in sequential.inputs:
        b.input(item.name, TensorType(contract.inputs[item.name].local_shape, item.type.dtype))
    author = Author(b, rng)
    author.moves = moves
    grow(author, 40 if moves else 30)
    distributed = b.build()
    one = as_terms(sequential)
    rules = Rules(mesh, sharing=sharing)
    related = relate(one, distributed, initial(contract, one), contract, rules)
    whole = values(sequential, rng)
    with np.errstate(all="ignore"):
        state = simulate(distributed, pieces(whole, contract, mesh, rng), Plain())
        if not all(np.all(np.isfinite(a)) for local in state for a in local.values()):
            return [], 0
        meaning = Meaning(one.terms, whole)
        wrong: list[str] = []
        count = 0
        for name, facts in related.facts.items():
            for fact in facts:
                count += 1
                why = holds(fact, [local.get(name) for local in state], mesh, meaning)
                if why:
                    wrong.append(f"%{name}: {why}")
    return wrong, count


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32))
def test_every_fact_of_a_random_program_is_true(seed: int) -> None:
    wrong, _ = broken_facts(seed)
    assert not wrong, "\n".join(wrong)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
@example(876605070)  # 3/2 of 2/3 of a number, compared with it
def test_every_fact_is_true_where_copies_are_read_as_shares(seed: int) -> None:
    wrong, _ = broken_facts(seed, sharing=True)
    assert not wrong, "\n".join(wrong)


MESH = Mesh.of(dp=2)


def averaged(mesh: Mesh, rows: int, factor: Fraction) -> Program:
    """A mean over rows of many, to which each rank adds what it has of a weight."""
    b = Builder("mean", mesh)
    x = b.input("x", TensorType((rows, 40), "f32"))
    w = b.param("w", TensorType((40,), "f32"), "w")
    mean = b.add("mul_scalar", b.add("sum", b.add("exp", x), dims=(0,)), value=Fraction(1, rows))
    loss = b.add("add", mean, b.add("mul_scalar", b.add("tanh", w), value=factor))
    if mesh.dims:
        loss = b.add("all_reduce", loss, mesh_dim="dp", reduce="avg")
    b.output(loss, "output", "y")
    return b.build()


def test_a_copy_beside_a_mean_over_ranks_is_its_share() -> None:
    line = Layout((whole(40),))
    rows = from_placements((1000, 40), [("dp", 2, "S(0)")])
    contract = Contract({"x": rows, "w": line}, {"output:y": line})
    one, many = (averaged(*on, Fraction(1, 10)) for on in ((NO_MESH, 1000), (MESH, 500)))
    verdict = verify(Problem(one, many, contract))
    assert isinstance(verdict, Proof), verdict
    assert "decide_s" not in verdict.stats  # not element by element
    assert isinstance(check(verdict.certificate, Problem(one, many, contract)), Accepted)
    other = verify(Problem(one, averaged(MESH, 500, Fraction(1, 20)), contract))
    assert isinstance(other, Counterexample)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_every_fact_about_values_on_some_ranks_is_true(seed: int) -> None:
    wrong, _ = broken_facts(seed, moves=True)
    assert not wrong, "\n".join(wrong)


def test_random_programs_have_facts_to_test() -> None:
    assert sum(broken_facts(seed)[1] for seed in range(4)) > 100
