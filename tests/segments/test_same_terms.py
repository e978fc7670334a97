"""Laws between terms: each step is an equality, proved entry by entry, and steps are replayed."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.segments.pairs import PAIRS, WRONG, S, Write, part, row, turn
from verifier.domains.algebra import Algebra
from verifier.domains.base import Array, Domain
from verifier.domains.floats import Floats
from verifier.kernel.ops import lookup
from verifier.kernel.program import Builder, TensorType
from verifier.provers.rewrite.laws import LAWS
from verifier.provers.rewrite.search import Budget, same_terms
from verifier.provers.rewrite.steps import follow, written
from verifier.provers.sequential import as_terms
from verifier.terms import ONE, Ref, Terms

NAMES = {
    "permute": ("dims",),
    "slice": ("dim", "start", "stop", "step"),
    "concat": ("dim",),
    "pad": ("dim", "lo", "hi"),
    "flip": ("dim",),
    "take_along": ("dim", "offset"),
    "pow": ("exponent",),
}


def value(terms: Terms, ref: Ref, inputs: dict[str, Array], domain: Domain) -> Array:
    """What a term means, by the meanings of ops; written apart from the laws."""
    seen: dict[int, Array] = {}

    def of(ref: Ref) -> Array:
        if ref.id not in seen:
            seen[ref.id] = bare(ref.id)
        if ref.coef == 1:
            return seen[ref.id]
        return domain.mul(seen[ref.id], domain.const(ref.coef))

    def bare(id: int) -> Array:
        term = terms[id]
        args = [of(a) for a in term.args]
        match term.op:
            case "var":
                return inputs[term.attrs[0]]
            case "ones":
                return domain.full(term.shape, Fraction(1))
            case "ramp":
                return np.arange(term.shape[0])
            case "lin":
                out = args[0]
                for a in args[1:]:
                    out = domain.add(out, a)
                return out
            case "prod":
                out = domain.full((), Fraction(1))
                for a, power in zip(args, term.attrs, strict=True):
                    for _ in range(power):
                        out = domain.mul(out, a)
                return out
            case "nought":
                return domain.mul(args[0], domain.full((), Fraction(0)))
            case "matmul":
                return domain.matmul(*args)
            case "sum":
                return domain.sum(args[0], term.attrs[0])
            case "amax":
                return domain.amax(args[0], term.attrs[0])
            case "expand":
                return np.broadcast_to(args[0], term.shape)
            case "reshape":
                return args[0].reshape(term.shape)
            case _:
                attrs = dict(zip(NAMES.get(term.op, ()), term.attrs, strict=True))
                return np.asarray(lookup(term.op).meaning(domain, *args, **attrs))

    return of(ref)


def both(left: Write, right: Write, *shapes: tuple[int, ...]) -> tuple[Terms, Ref, Ref]:
    b = Builder("p")
    names = [b.input("abcdefg"[i], TensorType(s)) for i, s in enumerate(shapes)]

    def op(name: str, *args: str, **attrs: object) -> str:
        return b.add(name, *args, **attrs)  # type: ignore[arg-type]

    b.output(left(op, *names), "output", "l")
    b.output(right(op, *names), "output", "r")
    one = as_terms(b.build())
    refs = [one.values[o.value] for o in one.program.outputs]
    return one.terms, refs[0], refs[1]


def equal(terms: Terms, a: Ref, b: Ref) -> bool:
    """Every entry, for all values of the inputs, at the extents at hand."""
    algebra = Algebra()
    inputs = {
        t.attrs[0]: algebra.symbols(t.attrs[0], t.shape) for t in terms.nodes if t.op == "var"
    }
    left, right = (algebra.lift(value(terms, r, inputs, algebra)) for r in (a, b))
    assert left.shape == right.shape
    pairs = zip(left.reshape(-1), right.reshape(-1), strict=True)
    return all(algebra.table.equal(x, y) for x, y in pairs)


@pytest.mark.parametrize("name", PAIRS)
def test_terms_are_taken_to_one_by_steps_that_hold(name: str) -> None:
    left, right, shapes = PAIRS[name]
    terms, a, b = both(left, right, *shapes)
    found = same_terms(terms, a, b)
    assert found, found.reason
    assert follow(terms, a, b, written(terms, a, b, found.steps)) == ""
    for step in found.steps:
        assert equal(terms, Ref(ONE, step.before), step.after), step


def test_every_law_is_used_by_some_pair() -> None:
    used: set[str] = set()
    for left, right, shapes in PAIRS.values():
        terms, a, b = both(left, right, *shapes)
        used |= {s.law for s in same_terms(terms, a, b).steps}
    assert used - {"operands"} == set(LAWS)


@pytest.mark.parametrize("name", WRONG)
def test_unequal_terms_stay_apart(name: str) -> None:
    left, right, shapes = WRONG[name]
    terms, a, b = both(left, right, *shapes)
    assert not same_terms(terms, a, b)
    assert not equal(terms, a, b)


def test_terms_that_no_op_makes_are_left_as_they_are() -> None:
    terms = Terms()
    x = terms.var("x", S)
    part = terms.intern("addend", [x], ("x", 0), S)
    alone = terms.intern("slice", [part], (0, 0, 2, 1), (2, 4))
    assert not same_terms(terms, alone, terms.var("y", (2, 4)))


def test_a_changed_explanation_is_refused() -> None:
    left, right, shapes = PAIRS["a product of a sum"]
    terms, a, b = both(left, right, *shapes)
    steps = written(terms, a, b, same_terms(terms, a, b).steps)
    assert steps
    for at, (law, path) in enumerate(steps):
        for wrong in (
            (law, (*path, 10**6)),
            (law, (len(steps) + 2,)),
            ("operands" if law != "operands" else "factor-over-sum", path),
            ("no-such-law", path),
        ):
            assert follow(terms, a, b, [*steps[:at], wrong, *steps[at + 1 :]])
    assert follow(terms, a, b, steps[:-1]) or follow(terms, a, b, [])


def test_a_budget_ends_the_search() -> None:
    left, right, shapes = PAIRS["a product of a sum"]
    terms, a, b = both(left, right, *shapes)
    found = same_terms(terms, a, b, Budget(steps=-1))
    assert not found
    assert "budget" in found.reason


leaves = st.sampled_from(["a", "b", "c", "v"])
trees = st.recursive(
    leaves,
    lambda t: st.one_of(
        st.tuples(st.sampled_from(["mm", "add", "sub", "mul", "maximum", "fuse", "halves"]), t, t),
        st.tuples(st.sampled_from(["turn", "exp", "rows", "scale", "spread", "neg"]), t),
    ),
    max_leaves=7,
)


def write(op: Write, tree: object, names: dict[str, str]) -> str:
    """A 4 by 4 value of a random tree."""
    if isinstance(tree, str):
        return names[tree] if tree != "v" else op("expand", names["v"], shape=S)
    assert isinstance(tree, tuple)
    kind, *rest = tree
    args = [write(op, t, names) for t in rest]
    match kind:
        case "turn":
            return turn(op, args[0])
        case "rows":
            return op("concat", part(op, args[0], 0, 2, 4), part(op, args[0], 0, 0, 2), dim=0)
        case "spread":
            return row(op, args[0], S)
        case "scale":
            return op("mul_scalar", args[0], value=Fraction(-3, 2))
        case "fuse":
            return part(op, op("concat", *args, dim=1), 1, 2, 6)
        case "halves":
            left = op("mm", part(op, args[0], 1, 0, 2), part(op, args[1], 0, 0, 2))
            return op("add", left, op("mm", part(op, args[0], 1, 2, 4), part(op, args[1], 0, 2, 4)))
        case _:
            return op(kind, *args)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(trees)
def test_steps_keep_the_value_of_random_terms(tree: object) -> None:
    def build(op: Write, *names: str) -> str:
        return write(op, tree, dict(zip("abcv", names, strict=True)))

    terms, a, _ = both(build, build, S, S, S, (4,))
    zero = terms.full(terms.shape(a), Fraction(7))
    from verifier.provers.rewrite.search import _Search, _SpentError

    search = _Search(terms, Budget(steps=400, seconds=1))
    try:
        end = search.final(a)
    except (_SpentError, RecursionError):
        return
    rng = np.random.default_rng(0)
    inputs = {n: rng.standard_normal(S) / 4 for n in "abc"} | {"d": rng.standard_normal(4) / 4}
    with np.errstate(all="ignore"):
        want, have = (value(terms, r, inputs, Floats()) for r in (a, end))
    assert zero.coef == 7
    np.testing.assert_allclose(have, want, rtol=1e-6, atol=1e-6)
