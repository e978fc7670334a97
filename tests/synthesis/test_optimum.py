"""The bound on all placements holds, says so only with a certificate, and its optimum is proved."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction
from itertools import product

import pytest

from benchmarks.placements import cheapest, lowered
from shardproof.synthesis.autodiff.autodiff import grad
from shardproof.synthesis.optimum.best import Bound, lower_bound
from shardproof.synthesis.optimum.linear import Linear, bound, solve
from shardproof.synthesis.optimum.space import PICO, Restriction, _alike
from shardproof.synthesis.planner.planner import Asked, Synthesis, synthesize
from shardproof.synthesis.planner.scoring import Candidate
from shardproof.synthesis.repair.diagnosis import verify
from shardproof.verifier.kernel.inline import inline
from shardproof.verifier.kernel.layout import Layout
from shardproof.verifier.kernel.ops import Refused, lookup
from shardproof.verifier.kernel.placements import from_placements
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.program import Node, live
from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.problem import Problem
from shardproof.verifier.provers.placement import Operands, place as placements
from shardproof.verifier.verdict import Proof
from tests.synthesis import decoder

MESHES = (Mesh.of(tp=2), Mesh.of(dp=2, tp=2))


@pytest.fixture(scope="module", params=MESHES, ids=str)
def made(request: pytest.FixtureRequest) -> Synthesis:
    return synthesize(Asked(decoder.decoder(layers=2), request.param, decoder.CLUSTER))


def known(made: Synthesis) -> Bound:
    assert made.found.bound is not None
    return made.found.bound


def test_no_plan_of_the_search_is_below_the_bound(made: Synthesis) -> None:
    found = known(made)
    state = made.found.state
    assert state is not None
    anywhere = lower_bound(state, Restriction())
    assert anywhere is not None
    assert anywhere.seconds <= found.seconds
    best = made.found.best
    assert found.seconds <= best.estimate.step_s
    assert 0 <= (found.gap(best.estimate.step_s) or 0.0) < 1
    for other in state.seen.values():
        if isinstance(other, Candidate):
            assert anywhere.seconds <= other.estimate.step_s * (1 + 1e-9)


@pytest.mark.parametrize("mesh", MESHES, ids=str)
def test_a_parameter_without_dims_and_rows_of_positions_have_placements(mesh: Mesh) -> None:
    b = Builder("scaled")
    table = b.param("places.weight", decoder.f64(4, 8))
    up = b.param("up.weight", decoder.f64(16, 8))
    scale = b.param("scale", decoder.f64())
    x = b.input("x", decoder.f64(4, 4, 8))
    with b.at(decoder.place("places")):
        row = b.add("iota", shape=(1, 4), dim=1, offset=0, dtype="i64")
        places = b.add("take", table, b.add("expand", row, shape=(4, 4)))
    y = decoder.linear(b, b.add("add", x, places), up, "up")
    with b.at(decoder.place("")):
        y = b.add("mul", y, scale)
        total = b.add("sum", b.add("mul", y, y), dims=(0, 1, 2), keepdim=False)
        b.output(b.add("mul_scalar", total, value=Fraction(1, 256)), "loss", "loss")
    made = synthesize(Asked(live(inline(grad(b.build()))), mesh, decoder.CLUSTER))
    state, found = made.found.state, known(made)
    assert state is not None
    assert found.holds
    placed = cheapest(found, below=1.0)
    assert placed is not None
    program, price = lowered(state, placed)
    assert 0 < found.seconds <= price.step_s * (1 + 1e-9)
    assert isinstance(verify(Problem(made.sequential, program.program, program.contract)), Proof)


def test_the_optimum_is_written_proved_and_priced_as_it_was_found() -> None:
    made = synthesize(Asked(decoder.decoder(layers=2), MESHES[0], decoder.CLUSTER))
    state, found = made.found.state, known(made)
    assert state is not None
    placed = cheapest(found, made.found.best.estimate.step_s * (1 + 1e-9))
    assert placed is not None
    program, price = lowered(state, placed)
    assert price.step_s <= made.found.best.estimate.step_s
    assert price.step_s >= found.seconds
    verdict = verify(Problem(made.sequential, program.program, program.contract))
    assert isinstance(verdict, Proof)
    assert decoder.largest_difference(made.sequential, program, made.asked.mesh) < 1e-12


def test_a_certificate_that_was_tampered_with_is_not_believed(made: Synthesis) -> None:
    found = known(made)
    assert found.holds
    assert not replace(found, seconds=found.seconds * 1.001).holds
    flipped = tuple(-y for y in found.duals)
    assert not replace(found, duals=flipped).holds
    assert replace(found, duals=flipped).gap(1.0) is None
    with pytest.raises(ValueError, match="duals for"):
        replace(found, duals=found.duals[:-1]).check()


def test_any_duals_give_a_bound_that_is_true(made: Synthesis) -> None:
    """Whatever a solver says: no numbers make the bound exceed a solution."""
    found, rng = known(made), random.Random(0)
    whole = solve(found.space.linear, 20, whole=True)
    assert whole is not None
    least = found.space.linear.value(whole.values) / PICO
    for size in (1e-6, 1e-2, 1.0, 1e3):
        noise = tuple(y + round(rng.uniform(-size, size) * max(abs(y), 1)) for y in found.duals)
        assert float(replace(found, duals=noise).check()) <= least * (1 + 1e-9)


def test_a_bound_of_a_small_program_by_hand() -> None:
    """Two ways at 3 and 5, of which the cheap one needs a third thing at 4: 5 is the least."""
    program = Linear()
    cheap, dear, more = (program.variable(cost) for cost in (3, 5, 4))
    program.one_of([cheap, dear])
    program.at_most([cheap], [more])
    solved = solve(program, 5)
    assert solved is not None
    assert solved.whole
    assert bound(program, solved.duals) == 5
    assert bound(program, [0, 0]) == 0


def test_a_style_that_is_pinned_has_its_own_bound(made: Synthesis) -> None:
    state = made.found.state
    assert state is not None
    free = lower_bound(state, Restriction())
    whole = lower_bound(state, Restriction(styles={"layers.*.mlp.up": "row"}))
    assert free is not None
    assert whole is not None
    assert free.seconds < whole.seconds


@pytest.mark.parametrize("zeros", [(), (1,), (0, 2)])
def test_layouts_of_a_concat_are_those_that_its_rule_joins(zeros: tuple[int, ...]) -> None:
    """Every other combination of the operands' layouts is refused, so none has to be tried."""
    mesh, op = Mesh.of(dp=2, tp=2), lookup("concat")
    node = Node("concat", ("a", "b", "c"), ("y",), {"dim": 1})
    kinds = [f"{d},{t}" for d in ("R", "S(0)", "S(1)", "P") for t in ("R", "S(0)", "S(1)", "P")]

    def pool(width: int) -> list[Layout]:
        placed = (kind.split(",") for kind in kinds)
        return [from_placements((8, width), (("dp", 2, d), ("tp", 2, t))) for d, t in placed]

    def joined(layouts: tuple[Layout, ...]) -> bool:
        given = Operands(layouts, (("dim", 1),), mesh, frozenset(zeros))
        try:
            return bool(placements(op, given))
        except Refused:
            return False

    pools = [pool(4), pool(4), pool(8)]
    accepted = {found for found in product(*pools) if joined(found)}
    tried = set(_alike(node, pools, [i in zeros for i in range(3)]))
    summed = {t for t in tried if any(x.partial for x in t)}
    assert {t for t in tried if joined(t)} <= accepted
    for found in accepted - tried:
        # Zeros may lie in any sum: the same pieces are joined with them in none.
        plain = tuple(x.with_partial(()) if i in zeros else x for i, x in enumerate(found))
        held = {x.partial for i, x in enumerate(found) if i not in zeros}
        assert held, found
        assert plain in tried or replace_partials(found, held.pop()) in summed | tried, found


def replace_partials(found: tuple[Layout, ...], partial: tuple[tuple[str, str], ...]) -> object:
    return tuple(x.with_partial(partial) for x in found)
