"""Equal computations done once give what every rank computes for itself, number for number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from benchmarks.steps.examples import preconditions
from shardproof.verifier.domains.base import Array, Domain
from shardproof.verifier.domains.field import Field
from shardproof.verifier.domains.floats import Floats
from shardproof.verifier.kernel.inline import inline
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.errors import IRError
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.kernel.program.types import Attr, Mesh, TensorType
from shardproof.verifier.problem import Problem
from shardproof.verifier.refute import dedup as memoized
from shardproof.verifier.refute.compare import run_both
from shardproof.verifier.refute.evaluate import simulate
from shardproof.verifier.refute.sampling import sample
from shardproof.verifier.refute.scatter import scatter
from tests.training.steps import step_of
from tests.verifier import test_random_scans as scans
from tests.verifier.random_programs import MESHES, inputs, pieces, values
from tests.verifier.test_random_verdicts import edited, sequential

STEPS = (
    "data, tensor and pipeline parallel",
    "repeated layers in stages",
    "stages with tied embedding in repeated micro-batches",
    "zero 3 with tensor parallel",
    "context parallel zigzag",
    "expert and tensor parallel",
)


def _same(a: Array | None, b: Array | None) -> bool:
    if a is None or b is None:
        return a is b
    nan = a.dtype.kind == "f"
    return a.shape == b.shape and a.dtype == b.dtype and np.array_equal(a, b, equal_nan=nan)


@pytest.mark.parametrize("domain", [Floats(), Field(3)], ids=["floats", "field"])
@pytest.mark.parametrize("name", STEPS)
def test_training_steps(name: str, domain: Domain) -> None:
    step = step_of(name)
    one, many = inline(step.sequential), inline(step.distributed)
    rng = np.random.default_rng(0)
    drawn = sample(one, domain, rng, preconditions(step))
    both = Problem(one, many, step.contract), drawn, domain
    with np.errstate(all="ignore"):
        want = run_both(*both, np.random.default_rng(1))
        got = run_both(*both, np.random.default_rng(1), memoized.run_once)
    assert want.keys() == got.keys()
    for key, (whole, ranks) in want.items():
        assert _same(whole, got[key][0]), key
        assert all(_same(a, b) for a, b in zip(ranks, got[key][1], strict=True)), key


def _alike(program: Program, ranks: Sequence[Mapping[str, Array]]) -> bool:
    """Whether both ways give the same; False where the program cannot be run at all."""
    domain = Floats()
    with np.errstate(all="ignore"):
        want = simulate(program, ranks, domain)
        got = memoized.simulate(inline(program), ranks, memoized.Arrays(domain, 1000))
    for local, mine in zip(want, got, strict=True):
        for out in program.outputs:
            assert _same(local.get(out.value), mine.get(out.value)), out.value
    return True


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_random_programs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    mesh = MESHES[int(rng.integers(len(MESHES)))]
    base, contract = inputs(mesh, rng)
    one = sequential(base, rng)
    try:
        many = edited(one, contract, mesh, rng)
    except IRError:
        return
    assert _alike(many, pieces(values(one, rng), contract, mesh, rng))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_random_blocks(seed: int) -> None:
    made = scans.programs(seed)
    if made is None:
        return
    case, _, many = made
    wholes = {n: case.rng.standard_normal(shape) for n, shape in scans.SHAPES.items()}
    parts = {
        n: scatter(w, case.layouts[n], many.mesh, Floats(), case.rng) for n, w in wholes.items()
    }
    assert _alike(many, [{n: p[r] for n, p in parts.items()} for r in range(many.mesh.size)])


def test_equal_blocks_have_results_of_their_own() -> None:
    """A block that runs again on the same arrays, as recomputation does, names its own results."""
    inner = Builder("block", Mesh.of(tp=2))
    h = inner.input("h", TensorType((2,)), "carry")
    row = inner.add("mul", h, inner.input("w", TensorType((2,)), "xs"))
    inner.output(row, "carry", "h")
    inner.output(row, "ys", "row")
    body = inner.build()
    b = Builder("blocks", Mesh.of(tp=2))
    x, ws = b.input("x", TensorType((2,)), "input"), b.param("ws", TensorType((3, 2)), "ws")
    attrs: dict[str, Attr] = {"length": 3, "carry": 1, "xs": 1, "reverse": False}
    (one, first), (two, second) = (b.add_node("scan", [x, ws], attrs, body=body) for _ in range(2))
    total, rows = b.add("add", one, two), b.add("add", first, second)
    b.output(total, "output", "total")
    b.output(rows, "output", "rows")
    many = b.build()
    given = {"x": np.array([1.0, 2.0]), "ws": np.arange(1.0, 7.0).reshape(3, 2)}
    for local in memoized.simulate(inline(many), [given, given], memoized.Arrays(Floats(), 1000)):
        assert local[total].tolist() == [30, 192]
        assert local[rows].tolist() == [[2, 8], [6, 32], [30, 192]]


def test_a_budget_is_kept() -> None:
    step = step_of(STEPS[0])
    one, many = inline(step.sequential), inline(step.distributed)
    drawn = sample(one, Floats(), np.random.default_rng(0), preconditions(step))
    mesh, rng = many.mesh, np.random.default_rng(0)
    cut = {n: scatter(drawn[n], step.contract.inputs[n], mesh, Floats(), rng) for n in drawn}
    ranks = [{n: p[r] for n, p in cut.items()} for r in range(mesh.size)]
    with pytest.raises(memoized.BudgetError), np.errstate(all="ignore"):
        memoized.simulate(many, ranks, memoized.Arrays(Floats(), 20))
