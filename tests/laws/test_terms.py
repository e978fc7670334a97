"""Terms that the normal form makes equal are equal: random programs, compared in float64."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.errors import IRError
from shardproof.verifier.kernel.program.types import TensorType
from shardproof.verifier.provers.sequential import as_terms
from shardproof.verifier.refute.evaluate import evaluate

SHAPES = [(2, 2), (2, 3), (3, 2), (2, 2, 2), (2, 1), (6,), (2,), (1, 2), ()]


def step(b: Builder, rng: np.random.Generator, floats: list[str]) -> str:
    """One random op on values at hand. Raises IRError where they do not fit."""

    def pick() -> str:
        return floats[int(rng.integers(len(floats)))]

    def number() -> Fraction:
        return Fraction(int(rng.integers(-3, 4)), int(rng.integers(1, 4)))

    x = pick()
    shape = b.types[x].shape
    rank = len(shape)
    kind = int(rng.integers(22))
    if kind < 4:
        return b.add(("add", "sub", "mul", "div")[kind], x, pick())
    if kind < 6:
        return b.add(("mul_scalar", "add_scalar")[kind - 4], x, value=number())
    if kind == 6:
        return b.add("mm" if rank == 2 else "bmm", x, pick())
    if kind == 7:
        return b.add("permute", x, dims=tuple(int(i) for i in rng.permutation(rank)))
    if kind == 8:
        return b.add("reshape", x, shape=SHAPES[int(rng.integers(len(SHAPES)))])
    if kind in (9, 10):
        dims = tuple(i for i in range(rank) if rng.random() < 0.5)
        name = "sum" if kind == 9 or rng.random() < 0.5 else "amax"
        return b.add(name, x, dims=dims, keepdim=bool(rng.integers(2)))
    if kind == 11:
        return b.add("expand", x, shape=SHAPES[int(rng.integers(len(SHAPES)))])
    dim = int(rng.integers(rank)) if rank else 0
    if kind == 12 and rank:
        start = int(rng.integers(shape[dim]))
        stop = int(rng.integers(start + 1, shape[dim] + 1))
        return b.add("slice", x, dim=dim, start=start, stop=stop, step=int(rng.integers(1, 3)))
    if kind == 13:
        return b.add("concat", x, pick(), dim=dim)
    if kind == 14:
        return b.add("pad", x, dim=dim, lo=int(rng.integers(2)), hi=int(rng.integers(2)))
    if kind == 15:
        return b.add("flip", x, dim=dim)
    if kind == 16:
        return b.add(("exp", "tanh", "neg", "reciprocal", "relu", "log")[int(rng.integers(6))], x)
    if kind == 17:
        return b.add(("maximum", "minimum")[int(rng.integers(2))], x, pick())
    if kind == 18:
        return b.add("where", b.add(("lt", "ge", "eq")[int(rng.integers(3))], x, pick()), pick(), x)
    if kind == 19:
        name = "cumsum" if rng.random() < 0.5 else "topk_mask"
        more = {"exclusive": bool(rng.integers(2))} if name == "cumsum" else {"k": 1}
        return b.add(name, x, dim=dim, **more)
    if kind == 20:
        offset, p = int(rng.integers(2)), Fraction(1, 4)
        target = SHAPES[int(rng.integers(len(SHAPES)))]
        strides = tuple(int(i) for i in rng.integers(0, 5, len(target)))
        strides = strides if rng.random() < 0.3 else ()
        return b.add("dropout_mask", "seed", shape=target, p=p, offset=offset, strides=strides)
    return b.add("pow", x, exponent=Fraction(int(rng.integers(-2, 4))))


@pytest.mark.parametrize("seed", range(60))
def test_values_with_one_term_are_equal(seed: int) -> None:
    rng = np.random.default_rng(seed)
    b = Builder("random")
    b.input("seed", TensorType((), "i64"))
    floats = [b.input(f"x{i}", TensorType(s, "f64")) for i, s in enumerate(SHAPES[:7])]
    while len(floats) < 60:
        try:
            made = step(b, rng, floats)
        except IRError:
            continue
        if b.types[made].size <= 64:
            floats.append(made)
    program = b.build()
    given = {i.name: rng.uniform(0.5, 1.5, i.type.shape) for i in program.inputs[1:]}
    given["seed"] = np.asarray(7)
    with np.errstate(all="ignore"):
        state = evaluate(program, given)
    one = as_terms(program)
    first: dict[int, str] = {}
    for name in floats:
        ref, value = one.values[name], state[name]
        if ref.coef == 0:
            np.testing.assert_allclose(value[np.isfinite(value)], 0, atol=1e-9)
            continue
        other = first.setdefault(ref.id, name)
        a, c = state[other] / float(one.values[other].coef), value / float(ref.coef)
        assert a.shape == c.shape
        both = np.isfinite(a) & np.isfinite(c)
        np.testing.assert_allclose(
            a[both], c[both], rtol=1e-6, atol=1e-9, err_msg=f"{name} {other}"
        )


def test_a_part_of_a_mask_is_a_mask_at_an_offset() -> None:
    b = Builder("masks")
    b.input("seed", TensorType((), "i64"))
    p = Fraction(1, 4)
    whole = b.add("dropout_mask", "seed", shape=(4, 6), p=p)
    rows = b.add("slice", whole, dim=0, start=2, stop=4)
    columns = b.add("slice", b.add("reshape", rows, shape=(2, 6)), dim=1, start=1, stop=6, step=2)
    same = [
        (rows, b.add("dropout_mask", "seed", shape=(2, 6), p=p, offset=12)),
        (
            b.add("reshape", rows, shape=(12,)),
            b.add("dropout_mask", "seed", shape=(12,), p=p, offset=12),
        ),
        (columns, b.add("dropout_mask", "seed", shape=(2, 3), p=p, offset=13, strides=(6, 2))),
    ]
    other = b.add("dropout_mask", "seed", shape=(2, 6), p=p, offset=6)
    values = as_terms(b.build()).values
    assert all(values[x] == values[y] for x, y in same)
    assert values[rows] != values[other]


def test_rounding_is_one_term_by_format() -> None:
    b = Builder("rounds")
    x = b.input("x", TensorType((3,)))
    plain = b.add("round_to", x, format="bf16")
    straight = b.add("round_to", x, format="bf16", ste=True)
    other = b.add("round_to", x, format="f16")
    doubled = b.add("round_to", b.add("add", x, x), format="bf16")
    values = as_terms(b.build()).values
    assert values[plain] == values[straight]
    assert len({values[plain].id, values[other].id, values[doubled].id, values[x].id}) == 4


def _rows(b: Builder, x: str, *shape: int) -> str:
    return b.add("reshape", x, shape=shape)


def test_what_is_computed_of_entries_is_one_term_in_any_shape() -> None:
    b = Builder("shapes")
    x, y = (b.input(n, TensorType((4, 3, 6), "f64")) for n in "xy")
    row, column = b.input("row", TensorType((6,), "f64")), b.input("c", TensorType((4, 3, 1)))
    same = [
        (
            b.add("add", _rows(b, x, 12, 6), row),
            _rows(b, b.add("add", x, row), 12, 6),
        ),
        (
            b.add("mul", b.add("exp", _rows(b, x, 12, 6)), _rows(b, column, 12, 1)),
            _rows(b, b.add("mul", b.add("exp", x), column), 12, 6),
        ),
        (
            b.add("sub", _rows(b, b.add("add", x, row), 12, 6), _rows(b, y, 12, 6)),
            _rows(b, b.add("add", b.add("sub", x, y), row), 12, 6),
        ),
        (
            b.add("reciprocal", _rows(b, b.add("mul", x, y), 72)),
            _rows(b, b.add("reciprocal", b.add("mul", y, x)), 72),
        ),
    ]
    pair = _rows(b, x, 4, 3, 2, 3)
    others = [
        (b.add("add", pair, b.input("r3", TensorType((3,)))), x),
        (b.add("add", pair, b.input("r2", TensorType((2, 1)))), x),
        (b.add("add", _rows(b, x, 3, 4, 6), _rows(b, column, 3, 4, 1)), b.add("add", x, column)),
        (b.add("add", _rows(b, x, 6, 12), b.input("r", TensorType((12,)))), b.add("add", x, row)),
    ]
    one = as_terms(b.build())
    assert all(one.values[a] == one.values[c] for a, c in same)
    # columns of other leading dims are the same entries; the rest are other values
    for at, (a, c) in enumerate(others):
        first = one.terms.reshape(one.values[a], (72,))
        second = one.terms.reshape(one.values[c], (72,))
        assert (first == second) == (at == 2)


def test_entries_looked_up_along_rows_are_one_term_in_any_shape() -> None:
    b = Builder("lookups")
    x, ids = b.input("x", TensorType((4, 3, 6), "f64")), b.input("i", TensorType((4, 3, 2), "i64"))
    g = b.input("g", TensorType((4, 3, 2), "f64"))
    flat = [_rows(b, v, 12, n) for v, n in ((x, 6), (g, 2), (ids, 2))]
    taken = b.add("take_along", x, ids, dim=2)
    put = b.add("put_along", g, ids, dim=2, size=6)
    same = [
        (_rows(b, taken, 12, 2), b.add("take_along", flat[0], flat[2], dim=1)),
        (_rows(b, put, 12, 6), b.add("put_along", *flat[1:], dim=1, size=6)),
    ]
    wide = b.input("w", TensorType((4, 6, 2), "f64"))
    middle = b.add("take_along", wide, ids, dim=1)
    other = _rows(
        b, b.add("take_along", _rows(b, wide, 4, 2, 6), _rows(b, ids, 4, 2, 3), dim=2), 4, 3, 2
    )
    values = as_terms(b.build()).values
    assert all(values[a] == values[c] for a, c in same)
    assert values[middle] != values[other]


def test_an_exponential_less_the_logarithm_of_a_sum_of_them_is_a_quotient() -> None:
    b = Builder("softmax")
    x, y = (b.input(n, TensorType((4, 6), "f64")) for n in "xy")
    e = b.add("exp", x)
    total = b.add("sum", e, dims=(1,), keepdim=True)
    log = b.add("log", total)
    quotient = b.add("div", e, total)
    same = [
        b.add("exp", b.add("sub", x, log)),
        b.add("mul", b.add("exp", b.add("neg", log)), e),
        b.add("exp", b.add("sub", x, _rows(b, b.add("log", _rows(b, total, 4)), 4, 1))),
    ]
    plain = b.add("sum", x, dims=(1,), keepdim=True)
    others = [
        b.add("exp", b.add("sub", x, b.add("log", plain))),
        b.add("exp", b.add("sub", x, b.add("mul_scalar", log, value=Fraction(2)))),
        b.add("exp", b.add("add", x, log)),
        b.add("exp", b.add("sub", y, log)),
        b.add("exp", b.add("sub", x, b.add("log", b.add("sum", e, dims=(0,), keepdim=True)))),
        b.add("exp", b.add("sub", x, b.add("log", b.add("neg", total)))),
    ]
    bare = [b.add("div", e, plain), b.add("div", e, b.add("neg", total))]
    values = as_terms(b.build()).values
    assert all(values[a] == values[quotient] for a in same)
    assert all(values[a] not in (values[quotient], *(values[c] for c in bare)) for a in others)
