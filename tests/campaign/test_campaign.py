"""A small campaign, and the parts it stands on: bases, their gradients, rewrites, the truth."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.mutation_testing import mutants, rewrites
from benchmarks.mutation_testing.__main__ import campaign, judge, markdown, related, table
from benchmarks.mutation_testing.author import Base
from benchmarks.mutation_testing.mutants import RULES, mutations
from benchmarks.mutation_testing.truth import draw, equal
from benchmarks.mutation_testing.zoo import bases
from shardproof.synthesis.autodiff.autodiff import grad
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.errors import IRError
from shardproof.verifier.kernel.program.types import TensorType
from shardproof.verifier.refute.evaluate import evaluate

BASES = bases()
IDS = [str(b) for b in BASES]


@pytest.mark.parametrize("base", BASES, ids=IDS)
def test_base_is_equal_and_proved(base: Base) -> None:
    assert equal(base, base.distributed)
    assert judge(base, base.distributed) == "proved"


@pytest.mark.parametrize("base", BASES, ids=IDS)
def test_gradients_of_the_base_are_its_slopes(base: Base) -> None:
    program, rng = base.sequential, np.random.default_rng(0)
    values = draw(program, rng)
    state = evaluate(program, values)

    def objective(at: dict[str, np.ndarray]) -> float:
        local = evaluate(program, at)
        losses = [float(local[o.value]) for o in program.outputs if o.role == "loss"]
        pairs = [
            float(np.sum(local[o.value] * at[i.name]))
            for o in program.outputs
            for i in program.inputs
            if o.role == "output" and i.role == "cotangent" and i.path == o.path
        ]
        return sum(losses) + sum(pairs)

    for out in program.outputs:
        if out.role == "grad":
            name = next(i.name for i in program.inputs if i.path == out.path)
            direction = rng.standard_normal(values[name].shape)
            step = 1e-6
            ends = [
                objective({**values, name: values[name] + s * direction}) for s in (step, -step)
            ]
            slope = (ends[0] - ends[1]) / (2 * step)
            got = float(np.sum(state[out.value] * direction))
            assert got == pytest.approx(slope, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("kind", rewrites.kinds())
def test_rewrites_keep_the_values_and_are_never_refuted(kind: str) -> None:
    rng, found = np.random.default_rng(0), 0
    for base in BASES:
        program = rewrites.apply(base.distributed, kind, base.contract, rng)
        if program is not None:
            found += 1
            assert equal(base, program), f"{base}: {kind} is no rewrite"
            assert judge(base, program) in ("proved", "unknown"), f"{base}: {kind}"
    assert found


def test_every_rule_finds_a_place() -> None:
    kinds = {m.kind for b in BASES for m in mutations(b.distributed)}
    rules = {kind for kind, body in RULES.items() if body.__module__ == mutants.__name__}
    assert rules - {"reorder collective"} <= kinds


@pytest.mark.parametrize("base", BASES, ids=IDS)
def test_a_dropped_collective_is_seen_by_both_deciders(base: Base) -> None:
    tried = 0
    for mutation in mutations(base.distributed):
        if mutation.kind.startswith("drop"):
            program = mutation.edit()
            if program is not None and not equal(base, program):
                tried += 1
                assert judge(base, program) == "refuted", mutation.text
                assert not related(base, program), mutation.text
    assert tried or base.name in ("sharded", "sequence", "ulysses", "layers")


@pytest.mark.parametrize("count", [10, pytest.param(60, marks=pytest.mark.campaign)])
def test_a_small_campaign_accepts_nothing_wrong_and_refutes_nothing_right(count: int) -> None:
    outcomes = list(campaign(count, 7, BASES[::2]))
    wrong = [o for o in outcomes if o.false_accept or o.false_alarm]
    assert not wrong, "\n".join(map(str, wrong))
    page = markdown(table(outcomes), count, 7, 1.0)
    assert f"| all mutants | {count} |" in page


def test_an_op_without_a_vjp_is_named() -> None:
    b = Builder("floor")
    b.output(b.add("floor", b.param("x", TensorType((2,)))))
    with pytest.raises(IRError, match="op floor has no vjp"):
        grad(b.build())


def test_a_param_that_the_loss_does_not_see_gets_zeros() -> None:
    b = Builder("unused")
    x, _ = b.param("x", TensorType((2,))), b.param("w", TensorType((3,)))
    b.output(b.add("sum", b.add("mul", x, x), dims=(0,)), "loss")
    program = grad(b.build())
    state = evaluate(program, {"x": np.array([1.0, 2.0]), "w": np.ones(3)})
    values = {o.path: state[o.value] for o in program.outputs if o.role == "grad"}
    assert values["x"].tolist() == [2.0, 4.0]
    assert values["w"].tolist() == [0.0, 0.0, 0.0]
