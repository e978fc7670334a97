"""Programs of full size, lowered by the planner, then edited: refuted at small extents."""

from __future__ import annotations

import random
import time
from unittest.mock import patch

import pytest

from benchmarks.mutation_testing.edits import sites, splice, with_attrs
from benchmarks.mutation_testing.mutants import mutations
from shardproof.synthesis.planner.planner import Asked, synthesize
from shardproof.verifier.kernel.contract import Contract
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.kernel.program.types import Affine, Mesh
from shardproof.verifier.problem import Problem
from shardproof.verifier.refute.scale_down.refuting import Relates, SmallDifference, refute_resized
from shardproof.verifier.refute.scale_down.resized import Resized, resize
from shardproof.verifier.refute.scale_down.system import Declined
from shardproof.verifier.refute.search import refute, too_large
from tests.synthesis import decoder as toy

Case = tuple[Program, Program, Contract]


@pytest.fixture(scope="module")
def full() -> Case:
    """A decoder with the extents of Llama 3 405B on tp=8, planned and lowered."""
    with patch.multiple(toy, HIDDEN=16384, SEQ=8192, FFN=53248, VOCAB=128256):
        made = synthesize(Asked(toy.decoder(126, kv=8, heads=128), Mesh.of(tp=8), toy.CLUSTER, {}))
    assert too_large(made.sequential, made.lowered.program)
    return made.sequential, made.lowered.program, made.lowered.contract


def test_full_size_becomes_small_and_is_not_refuted(full: Case) -> None:
    small = resize(Problem(*full))
    assert isinstance(small, Resized)
    assert small.caveats == ()
    assert small.problem.distributed.mesh == full[1].mesh
    assert not too_large(small.problem.sequential, small.problem.distributed)
    assert [n.op for _, n in small.problem.distributed.walk()] == [n.op for _, n in full[1].walk()]
    assert refute(small.problem) is None
    assert refute_resized(Problem(*full)) is None


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_a_smaller_mesh_will_do_too(full: Case, ranks: int) -> None:
    small = resize(Problem(*full), Mesh.of(tp=ranks))
    assert isinstance(small, Resized)
    assert small.problem.distributed.mesh.size == ranks
    assert small.sizes[0].name == "tp"
    assert refute(small.problem) is None


@pytest.mark.parametrize(
    "kind",
    [
        "drop backward collective",
        "wrong dim of a collective",
        "wrong scale",
        "wrong offset",
        "collective replaced",
        "extra collective",
        "wrong direction of a scan",
        "skipped op",
        "swap outputs",
    ],
)
def test_wrong_program_of_full_size_is_refuted(full: Case, kind: str) -> None:
    sequential, distributed, contract = full
    rng = random.Random(kind)
    drawn = [m for m in mutations(distributed) if m.kind == kind]
    rng.shuffle(drawn)
    made = [p for m in drawn[:12] if (p := m.edit()) is not None][:1]
    assert made
    for wrong in made:
        start = time.perf_counter()
        found = refute_resized(Problem(sequential, wrong, contract))
        assert isinstance(found, SmallDifference)
        assert found.caveats == ()
        assert str(found).startswith("at reduced sizes ")
        assert set(found.difference.witness.rank) == {"tp"}
        assert time.perf_counter() - start < 3


def test_offset_that_is_another_extent_is_refuted(full: Case) -> None:
    """The first row of a rank, counted by the rows of another weight."""
    sequential, distributed, contract = full
    other = Affine.of(0, {"tp": 53248 // 8})
    site = next(
        s
        for s in sites(distributed)
        if s.node.op == "take" and isinstance(s.node.attrs["offset"], Affine)
    )
    wrong = splice(distributed, site, [with_attrs(site.node, offset=other)])
    assert wrong is not None
    assert isinstance(refute_resized(Problem(sequential, wrong, contract)), SmallDifference)


def answers(*sets: set[str]) -> Relates:
    """A search for relations that gives these values, call by call."""
    calls = iter(sets)

    def relates(problem: Problem) -> set[str]:
        return next(calls)

    return relates


def test_relations_that_are_lost_withhold_a_difference(full: Case) -> None:
    sequential, distributed, contract = full
    site = next(s for s in sites(distributed) if s.node.op == "reduce_scatter")
    wrong = splice(distributed, site, [with_attrs(site.node, reduce="avg")])
    assert wrong is not None
    found = refute_resized(Problem(sequential, wrong, contract), relates=answers({"x"}, set()))
    assert isinstance(found, Declined)
    assert "%x" in str(found)
    found = refute_resized(Problem(sequential, wrong, contract), relates=answers({"x"}, {"x", "y"}))
    assert isinstance(found, SmallDifference)
    again = refute_resized(Problem(sequential, wrong, contract), proved=found.difference.outputs)
    assert isinstance(again, Declined)
