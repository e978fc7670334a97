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
        return b.add(("exp", "tanh", "neg", "reciprocal", "relu")[int(rng.integers(5))], x)
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
