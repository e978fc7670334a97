"""Every fact that a walk derives is true on numbers, whatever the distributed program does."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.verifier.meaning import Meaning, holds
from tests.verifier.random_programs import MESHES, Author, grow, inputs, pieces, values
from verifier.evaluate import simulate
from verifier.ir import Builder, TensorType
from verifier.relate import Rules, as_terms, initial, relate


def broken_facts(seed: int, moves: bool = False) -> tuple[list[str], int]:
    """What is wrong with the facts of one random program, and how many facts there are."""
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
    related = relate(one, distributed, initial(contract, one), contract, Rules(mesh))
    whole = values(sequential, rng)
    with np.errstate(all="ignore"):
        state = simulate(distributed, pieces(whole, contract, mesh, rng))
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
def test_every_fact_about_values_on_some_ranks_is_true(seed: int) -> None:
    wrong, _ = broken_facts(seed, moves=True)
    assert not wrong, "\n".join(wrong)


def test_random_programs_have_facts_to_test() -> None:
    assert sum(broken_facts(seed)[1] for seed in range(4)) > 100
