"""The third decider, which knows no rule, agrees with the relations and with float64."""

from __future__ import annotations

import numpy as np
import pytest

from verifier import smt
from verifier.campaign.author import Base
from verifier.campaign.mutants import mutations
from verifier.campaign.truth import draw, equal
from verifier.campaign.zoo import bases
from verifier.elementwise import elementwise
from verifier.ir import Program

SLOW = {"ulysses", "layers"}
BASES = [b for b in bases() if b.name not in SLOW]


def decide(
    base: Base, distributed: Program, solver: smt.Solver | None = None
) -> dict[str, smt.Answer]:
    drawn = draw(base.sequential, np.random.default_rng(0))
    indices = {n: a for n, a in drawn.items() if a.dtype.kind == "i"}
    return elementwise(base.sequential, distributed, base.contract, indices, solver)


@pytest.mark.parametrize("base", BASES, ids=str)
def test_every_output_and_gradient_is_proved_element_by_element(base: Base) -> None:
    answers = decide(base, base.distributed)
    assert set(answers) == set(base.contract.outputs)
    assert set(answers.values()) == {smt.Valid()}


@pytest.mark.slow
@pytest.mark.parametrize(
    "base", [b for b in BASES if str(b) in ("mlp[tp=2]", "gated[tp=2]")], ids=str
)
def test_no_mutant_that_differs_is_proved_element_by_element(base: Base) -> None:
    rng = np.random.default_rng(0)
    found = list(mutations(base.distributed))
    tried = 0
    for at in rng.permutation(len(found))[:4]:
        program = found[at].edit()
        if program is None or equal(base, program):
            continue
        tried += 1
        solver = smt.Solver(rlimit=20_000, timeout_ms=100)
        assert set(decide(base, program, solver).values()) != {smt.Valid()}, found[at].text
    assert tried
