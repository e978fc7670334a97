"""Verdicts at small extents are those at the given ones: equal stays equal, different differs."""

from __future__ import annotations

import random
from collections.abc import Callable
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from benchmarks.mutation_testing import zoo
from benchmarks.mutation_testing.author import Base
from benchmarks.mutation_testing.mutants import mutations
from shardproof.verifier.kernel.contract import Contract, ContractError, check
from shardproof.verifier.kernel.layout import Layout
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.errors import IRError
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.kernel.program.types import Mesh, TensorType
from shardproof.verifier.problem import Problem
from shardproof.verifier.refute.scale_down.refuting import SmallDifference, refute_resized, shrink
from shardproof.verifier.refute.scale_down.resized import Resized, resize, smaller_mesh
from shardproof.verifier.refute.scale_down.system import Declined
from shardproof.verifier.refute.search import refute, too_large
from tests.laws.samples import layouts
from tests.scale_down.hazards import RIGHT, Case
from tests.verifier import random_programs
from tests.verifier.random_programs import grow
from tests.verifier.test_random_verdicts import asked, edited


def difference(found: object) -> bool:
    return isinstance(found, SmallDifference) and not found.caveats


@pytest.mark.parametrize("hazard", RIGHT, ids=lambda h: h.__name__)
def test_right_programs_are_not_refuted_at_small_extents(hazard: Callable[[], Case]) -> None:
    one, many, contract = hazard()
    assert not difference(refute_resized(Problem(one, many, contract)))
    for mesh in (many.mesh, smaller_mesh(many, contract, keep=1)):
        small = resize(Problem(one, many, contract), mesh)
        assert isinstance(small, Resized)
        assert len(small.sizes) >= 1
        assert not too_large(small.problem.sequential, small.problem.distributed)
        found = refute(small.problem)
        assert found is None or small.caveats


@pytest.mark.parametrize("hazard", RIGHT, ids=lambda h: h.__name__)
def test_edits_of_them_have_the_verdict_of_the_given_extents(hazard: Callable[[], Case]) -> None:
    one, many, contract = hazard()
    assert not too_large(one, many)
    drawn = list(mutations(many))
    random.Random(0).shuffle(drawn)
    wrong = [p for m in drawn[:20] if (p := m.edit()) is not None]
    missed = 0
    for program in wrong:
        truth = refute(Problem(one, program, contract), simpler=False)
        found = refute_resized(Problem(one, program, contract))
        assert truth is not None or not difference(found)
        missed += truth is not None and found is None
    assert missed <= len(wrong) // 5


def wider() -> list[Base]:
    with patch.multiple(zoo, H=12, F=24, T=16):
        return zoo.bases()


WIDER = wider()


@pytest.mark.parametrize("base", WIDER, ids=str)
def test_models_and_their_mutants_keep_their_verdict(base: Base) -> None:
    one, many, contract = base.sequential, base.distributed, base.contract
    small = resize(Problem(one, many, contract))
    assert isinstance(small, Resized)
    assert small.sizes
    assert refute_resized(Problem(one, many, contract)) is None
    with np.errstate(all="ignore"):
        mutants_keep_their_verdict(one, many, contract)


def mutants_keep_their_verdict(one: Program, many: Program, contract: Contract) -> None:
    for mutation in random.Random(1).sample(list(mutations(many)), 8):
        program = mutation.edit()
        if program is None:
            continue
        truth = refute(Problem(one, program, contract), simpler=False)
        found = refute_resized(Problem(one, program, contract))
        assert (truth is None) == (found is None), mutation.text
        assert truth is None or difference(found)


def random_pair(seed: int) -> tuple[Program, Program, Contract] | None:
    rng = np.random.default_rng(seed)
    meshes = (*random_programs.MESHES, Mesh.of(tp=4))
    mesh = meshes[int(rng.integers(len(meshes)))]
    n, k = mesh.size, int(rng.integers(2, 7))
    shapes = [(k * n, 2 * k * n), (2 * k * n, k * n), (2 * k * n,), (1, 2 * k * n), (2, k * n, n)]
    base, chosen = Builder("one"), dict[str, Layout]()
    for i, (shape, dtype) in enumerate(
        [*((s, "f32") for s in shapes), ((2 * k * n,), "i64"), ((k * n, 2 * n), "bool")]
    ):
        name = base.input(f"x{i}", TensorType(shape, dtype))
        options = layouts(shape, mesh, partial=False)
        chosen[name] = options[int(rng.integers(len(options)))]
    grow(random_programs.Author(base, rng), 8)
    base.output(base.nodes[-1].outputs[0], path="y")
    contract = Contract(chosen, {})
    one = base.build()
    try:
        many = edited(one, contract, mesh, rng)
        contract = asked(one, many, contract)
        check(one, many, contract)
    except (IRError, ContractError):
        return None
    return None if too_large(one, many) else (one, many, contract)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32))
def test_random_programs_that_agree_agree_at_small_extents(seed: int) -> None:
    with patch.object(random_programs, "MAX_SIZE", 20_000), np.errstate(all="ignore"):
        pair = random_pair(seed)
        if pair is None or refute(Problem(*pair), simpler=False) is not None:
            return
        assert not difference(refute_resized(Problem(*pair)))
        small = resize(Problem(*pair), smaller_mesh(pair[1], pair[2], keep=1), smallest=True)
        if isinstance(small, Resized) and not small.caveats:
            assert refute(small.problem) is None


def test_counterexample_is_made_smaller() -> None:
    base = next(b for b in WIDER if str(b) == "mlp[tp=4]")
    drawn = [m for m in mutations(base.distributed) if m.kind == "drop collective"]
    wrong = drawn[0].edit()
    assert wrong is not None
    found = refute(Problem(base.sequential, wrong, base.contract))
    assert found is not None
    small = shrink(Problem(base.sequential, wrong, base.contract), found)
    assert small is not None
    assert small.resized.problem.distributed.mesh == Mesh.of(tp=2)
    assert small.difference.witness.output in small.difference.outputs
    assert all(size.after <= 4 for size in small.resized.sizes)
    assert refute(small.resized.problem) is not None


def test_mesh_without_a_named_coordinate_is_declined() -> None:
    b, many = Builder("one"), Builder("many", Mesh.of(tp=4))
    for builder in (b, many):
        builder.input("x", TensorType((64, 8)))
    b.output(b.add("mul_scalar", "x", value=2), path="y")
    half = many.add("on_coord", "x", mesh_dim="tp", index=2)
    many.output(
        many.add("mul_scalar", many.add("all_reduce", half, mesh_dim="tp"), value=2), path="y"
    )
    one, ranks = b.build(), many.build()
    layout = layouts((64, 8), Mesh.of(tp=4), partial=False)[0]
    contract = Contract({"x": layout}, {"output:y": layout})
    assert isinstance(resize(Problem(one, ranks, contract), Mesh.of(tp=1)), Declined)
    for mesh, kept in ((Mesh.of(tp=2), (0, 2)), (Mesh.of(tp=3), (0, 1, 2))):
        small = resize(Problem(one, ranks, contract), mesh)
        assert isinstance(small, Resized)
        assert small.kept == {"tp": kept}
        assert refute(small.problem) is None
