"""Entries that are compared as polynomials, and the steps that close what is left."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from shardproof.verifier.checker import Accepted, Rejected, check
from shardproof.verifier.checker.certificate import seal
from shardproof.verifier.domains.base import Array
from shardproof.verifier.domains.floats import Floats
from shardproof.verifier.domains.polynomials import Polynomials, Terms, difference, without
from shardproof.verifier.kernel.contract import Contract
from shardproof.verifier.kernel.layout import Layout
from shardproof.verifier.problem import Problem
from shardproof.verifier.smt.answers import Answers
from shardproof.verifier.text.parser import parse_text
from shardproof.verifier.verdict import Proof
from shardproof.verifier.verification import verify
from tests.checker.edits import certified

STEPPED = "MG-03-scale"
Change = Callable[[dict[str, Any]], Any]
FIRST = "identities", 0


def _put(*path: Any, value: Any) -> Change:
    def change(document: dict[str, Any]) -> None:
        at: Any = document
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = value

    return change


CHANGES: dict[str, Change] = {
    "a step is left out": lambda d: d["identities"][0]["steps"].pop(),
    "no steps": _put(*FIRST, "steps", value=[]),
    "a step is there twice": lambda d: d["identities"][0]["steps"].append(
        d["identities"][0]["steps"][0]
    ),
    "another axiom": _put(*FIRST, "steps", 0, 0, value="sqrt"),
    "an axiom that is none": _put(*FIRST, "steps", 0, 0, value="exp"),
    "another atom": _put(*FIRST, "steps", 0, 1, value=0),
    "an atom from the end": _put(*FIRST, "steps", 0, 1, value=-1),
    "an atom that is none": _put(*FIRST, "steps", 0, 1, value=10**6),
    "a place that is a truth value": _put(*FIRST, "steps", 0, 1, value=True),
    "a step that is no pair": _put(*FIRST, "steps", 0, value=["reciprocal"]),
    "a step that is a number": _put(*FIRST, "steps", 0, value=1),
    "another coefficient": _put(*FIRST, "difference", 0, 0, value="7"),
    "another function": _put(*FIRST, "atoms", -1, 0, value="exp"),
    "a difference of nothing": _put(*FIRST, "difference", value=[]),
    "identities are no list": _put("identities", value={}),
    "an identity that is no object": _put(*FIRST, value=[]),
    "one identity twice": lambda d: d["identities"].append(d["identities"][0]),
    "one identity less": lambda d: d["identities"].pop(),
    "none at all": _put("identities", value=[]),
    "the entry is left out": lambda d: d.pop("identities"),
    "more entries": lambda d: d["outputs"].update({k: n + 1 for k, n in d["outputs"].items()}),
    "other cases": _put("cases", value=2),
    "other extents": _put("extents", value={}),
    "values of integers": _put("indices", value={"x": [1]}),
    "an assumption": _put("assumptions", value=["all is well"]),
    "another engine": _put("engine", value="scalars, at these extents"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=[k.replace(" ", "_") for k in CHANGES])
def test_a_certificate_with_other_steps_is_rejected(change: Change) -> None:
    problem, document = certified(STEPPED)
    assert isinstance(check(document, problem), Accepted)
    other = copy.deepcopy(document)
    change(other)
    other["seal"] = seal(other)
    assert isinstance(check(other, problem), Rejected)


ONE = "program one input %x: f32[4] input %y: f32[4] {} return %z"
MANY = "program many mesh(tp=2) input %x: f32[4] input %y: f32[4] {} return %z"
ZERO = "%o = full {shape=[4], value=0} "
RIGHT = {
    "a product over itself": (
        "%a = mul %x, %y %r = reciprocal %y %z = mul %a, %r",
        "%r = reciprocal %y %s = mul %y, %r %z = mul %x, %s",
    ),
    "a root of a square": (
        "%r = sqrt %x %a = mul %r, %r %b = gelu %y %z = mul %a, %b",
        "%r = sqrt %x %b = gelu %y %c = mul %b, %r %z = mul %c, %r",
    ),
    "what one device needs ranks may need": (
        "%l = log %x %z = mul %l, %y",
        "%l = log %x %a = mul %y, %l %n = sub %l, %l %z = add %a, %n",
    ),
    "an exponential is above 0": (
        "%e = exp %x %z = mul %e, %y",
        "%n = neg %x %m = exp %n %r = reciprocal %m %z = mul %r, %y",
    ),
}
WRONG = {
    "ranks need a logarithm": (
        "%z = mul %x, %y",
        "%l = log %x %n = sub %l, %l %m = mul %x, %y %z = add %m, %n",
    ),
    "a number over itself is 1 where it is not 0": (
        "%z = mul %x, %y",
        "%r = reciprocal %y %s = mul %y, %r %m = mul %x, %y %z = mul %m, %s",
    ),
    "a guarded logarithm is no needed one": (
        ZERO + "%c = gt %y, %o %l = log %x %z = where %c, %l, %y",
        ZERO + "%c = gt %y, %o %l = log %x %w = where %c, %l, %y %n = sub %l, %l %z = add %w, %n",
    ),
    "the root of a square is no number": (
        "%a = mul %x, %x %r = sqrt %a %z = mul %r, %y",
        "%z = mul %x, %y",
    ),
    "a comparison of what may have no value": (
        ZERO + "%z = gelu %y",
        ZERO + "%l = log %x %u = sub %l, %l %c = ge %u, %o %g = gelu %y %z = where %c, %g, %o",
    ),
    "a cast of what may have no value": (
        "%z = gelu %y",
        "%l = log %x %u = sub %l, %l %i = cast %u {dtype=i64} %f = cast %i {dtype=f32} "
        "%g = gelu %y %z = add %g, %f",
    ),
    "the logarithm of 1 that may have no value": (
        "%z = gelu %y",
        "%l = log %x %u = sub %l, %l %p = add_scalar %u {value=1} %m = log %p %g = gelu %y "
        "%z = add %g, %m",
    ),
    "at a tie": (
        ZERO + "%c = gt %x, %o %z = where %c, %y, %x",
        ZERO + "%c = ge %x, %o %z = where %c, %y, %x",
    ),
}


def _asked(bodies: tuple[str, str]) -> Problem:
    row = Layout.replicate((4,))
    one, many = parse_text(ONE.format(bodies[0])), parse_text(MANY.format(bodies[1]))
    return Problem(one, many, Contract({"x": row, "y": row}, {"output:z": row}))


@pytest.mark.parametrize("bodies", RIGHT.values(), ids=[k.replace(" ", "_") for k in RIGHT])
def test_right_programs_are_proved(bodies: tuple[str, str]) -> None:
    problem = _asked(bodies)
    proof = verify(problem)
    assert isinstance(proof, Proof)
    assert isinstance(check(proof.certificate, problem, Answers()), Accepted)


@pytest.mark.parametrize("bodies", WRONG.values(), ids=[k.replace(" ", "_") for k in WRONG])
def test_wrong_programs_are_not(bodies: tuple[str, str]) -> None:
    assert not isinstance(verify(_asked(bodies)), Proof)


def value(bank: Polynomials, terms: Terms, inputs: dict[str, Array]) -> float:
    """A polynomial on numbers, its functions computed as the floats have them."""

    def atom(number: int) -> float:
        name, args = bank.atoms[number]
        given = [value(bank, dict(arg), inputs) for arg in args]
        if not given:
            tensor, at = name[:-1].split("[")
            return float(inputs[tensor][tuple(map(int, at.split(",")))])
        if name == "max":
            return max(given)
        if name in ("above 0", "is 0"):
            return float(given[0] > 0 if name == "above 0" else given[0] == 0)
        made = floats.reciprocal if name == "reciprocal" else lambda x: floats.unary(name, x)
        return float(made(np.asarray(given[0])))

    floats = Floats()
    return sum(float(c) * math.prod(atom(i) ** float(p) for i, p in m) for m, c in terms.items())


FORMS: dict[str, Callable[[Any, Array, Array], Array]] = {
    "sums": lambda d, x, y: d.sum(d.mul(d.sub(x, y), x), (1,)),
    "matmul": lambda d, x, y: d.matmul(x, y),
    "largest": lambda d, x, y: d.amax(d.maximum(x, d.neg(y)), (0,)),
    "softmax": lambda d, x, y: d.div(
        d.unary("exp", d.sub(x, y)), d.sum(d.unary("exp", d.mul(x, y)), (1,))[:, None]
    ),
    "logarithms": lambda d, x, y: d.unary(
        "log", d.mul(d.unary("exp", x), d.add(d.unary("exp", y), d.unary("exp", x)))
    ),
    "powers of what a logarithm is of": lambda d, x, y: d.unary(
        "exp", d.mul(d.const(-2), d.unary("log", d.add(d.mul(x, x), d.unary("exp", y))))
    ),
    "powers": lambda d, x, y: d.add(d.unary("pow:3", x), d.unary("pow:-2", y)),
    "roots": lambda d, x, y: d.unary("sqrt", d.add(d.mul(x, x), d.mul(y, y))),
    "definitions": lambda d, x, y: d.mul(d.unary("silu", x), d.unary("softplus", y)),
    "choices": lambda d, x, y: d.where(d.compare("ge", x, y), x, d.mul(y, y)),
    "logic": lambda d, x, y: d.lift(
        d.logical("or", d.compare("lt", x, y), d.logical("not", d.compare("le", y, x)))
    ),
    "both": lambda d, x, y: d.lift(
        d.logical("and", d.compare("ne", x, y), d.compare("gt", d.mul(y, y), x))
    ),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=[k.replace(" ", "_") for k in FORMS])
def test_polynomials_have_the_values_of_floats(form: Callable[[Any, Array, Array], Array]) -> None:
    bank, rng = Polynomials(), np.random.default_rng(0)
    made = form(bank, bank.symbols("x", (3, 3)), bank.symbols("y", (3, 3)))
    for _ in range(5):
        inputs = {name: rng.standard_normal((3, 3)) for name in "xy"}
        wanted = np.asarray(form(Floats(), inputs["x"], inputs["y"]), dtype=float)
        got = [value(bank, entry.terms, inputs) for entry in made.reshape(-1)]
        np.testing.assert_allclose(np.reshape(got, wanted.shape), wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["reciprocal", "rsqrt", "sqrt"])
def test_an_axiom_keeps_whether_a_difference_is_0(name: str) -> None:
    bank, rng = Polynomials(), np.random.default_rng(0)
    (x, y) = bank.symbols("x", (1, 1)).reshape(-1), bank.symbols("y", (1, 1)).reshape(-1)
    of = bank.add(bank.mul(x, x), y)
    root = bank.reciprocal(of) if name == "reciprocal" else bank.unary(name, of)
    number = next(i for i, (made, _) in enumerate(bank.atoms) if made == name)
    terms = bank.add(bank.unary("pow:5", root), bank.mul(bank.unary("pow:2", root), x))[0].terms
    other = bank.add(bank.mul(root, y), bank.const(3).reshape(-1))[0].terms
    gap = difference(terms, other)
    left = without(bank, gap, number)
    for _ in range(5):
        inputs = {name: rng.uniform(0.5, 2, (1, 1)) for name in "xy"}
        base = value(bank, of[0].terms, inputs)
        ratio = value(bank, left, inputs) / value(bank, gap, inputs)
        assert any(math.isclose(ratio, base**k, rel_tol=1e-9) for k in range(6))
