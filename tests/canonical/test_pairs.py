"""Pairs of terms: equal ones have one key, others stay apart, and what may be undefined is kept."""

from __future__ import annotations

import numpy as np
import pytest

from shardproof.verifier.domains.floats import Floats
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.kernel.program.types import TensorType
from shardproof.verifier.provers.canonical.keys import Keys
from shardproof.verifier.provers.sequential import as_terms
from shardproof.verifier.refute.evaluate import evaluate
from shardproof.verifier.terms import Ref, Terms
from shardproof.verifier.text.parser import parse_text
from tests.canonical.pairs import PAIRS, WRONG, S, Write


def both(left: Write, right: Write, *shapes: tuple[int, ...]) -> Program:
    b = Builder("p")
    names = [b.input("abcdefg"[i], TensorType(s)) for i, s in enumerate(shapes)]

    def op(name: str, *args: str, **attrs: object) -> str:
        return b.add(name, *args, **attrs)  # type: ignore[arg-type]

    b.output(left(op, *names), "output", "l")
    b.output(right(op, *names), "output", "r")
    return b.build()


def alike(program: Program) -> tuple[bool, bool]:
    """Whether the two outputs have one key, and whether they are equal on numbers."""
    one = as_terms(program)
    a, b = (one.values[o.value] for o in program.outputs)
    rng = np.random.default_rng(0)
    values = {i.name: rng.uniform(-1, 1, i.type.shape) for i in program.inputs}
    found = evaluate(program, values, Floats())
    left, right = (np.asarray(found[o.value], dtype=float) for o in program.outputs)
    return Keys(one.terms).same(a, b), np.allclose(left, right, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", PAIRS)
def test_equal_terms_have_one_key(name: str) -> None:
    left, right, shapes = PAIRS[name]
    assert alike(both(left, right, *shapes)) == (True, True)


@pytest.mark.parametrize("name", WRONG)
def test_unequal_terms_stay_apart(name: str) -> None:
    left, right, shapes = WRONG[name]
    assert alike(both(left, right, *shapes)) == (False, False)


def test_terms_that_no_op_makes_are_left_as_they_are() -> None:
    terms = Terms()
    x = terms.var("x", S)
    part = terms.intern("addend", [x], ("x", 0), S)
    alone = terms.intern("slice", [part], (0, 0, 2, 1), (2, 4))
    assert not Keys(terms).same(alone, terms.var("y", (2, 4)))


ROOT = """program one
 input %x: f32[2, 3]
 input %z: f32[2, 3]
 %r = sqrt %x
 return %r
"""


def test_a_function_may_be_taken_in_another_shape() -> None:
    one = as_terms(parse_text(ROOT))
    terms, (x, z, root) = one.terms, (one.values[n] for n in "xzr")

    def flat(ref: Ref) -> Ref:
        made = terms.apply("sqrt", [terms.reshape(ref, (6,))], {}, ["f32"])
        return terms.reshape(made, (2, 3))

    def beside(other: Ref) -> Ref:
        """The root, and what is 0 where the other has a value."""
        minus = terms.apply("neg", [other], {}, ["f32"])
        nothing = terms.apply("add", [other, minus], {}, ["f32"])
        return terms.apply("add", [root, nothing], {}, ["f32"])

    keys = Keys(terms)
    assert flat(x) == root
    assert not keys.same(beside(flat(z)), root)
    assert not keys.same(beside(terms.apply("log", [x], {}, ["f32"])), root)
