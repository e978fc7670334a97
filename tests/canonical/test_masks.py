"""Comparisons of indices, masks inside of functions, and sums of exponentials in parts."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest

from shardproof.verifier.kernel.inline import inline
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.kernel.program.types import TensorType
from shardproof.verifier.provers.canonical.keys import Keys
from shardproof.verifier.provers.sequential import as_terms
from shardproof.verifier.text.parser import parse_text
from tests.canonical.test_keys import clashes

ROWS, COLS = 6, 4
OPS = (
    *("mask", "mask", "rows", "cut", "cut", "concat", "sum", "sum", "exp", "exp", "log", "share"),
    *("merge", "labels", "labels", "known", "mul", "add", "sub", "amax", "sigmoid", "pad"),
)


def random_program(seed: int) -> Program:
    """Masks by row and column, lookups with masked labels, parts of rows and of columns."""
    rng = random.Random(seed)
    b = Builder("random")
    x = b.input("x", TensorType((ROWS, COLS), "f32"))
    labels = b.input("i", TensorType((ROWS, 1), "i64"))
    held = [x, b.input("y", TensorType((ROWS, COLS), "f32"))]
    indices = [labels]
    zero = b.add("full", shape=(), value=Fraction(0), dtype="f32")

    def limit(value: int) -> str:
        return b.add("full", shape=(), value=Fraction(value), dtype="i64")

    def counted(shape: tuple[int, ...], dim: int) -> str:
        kept = tuple(n if d == dim else 1 for d, n in enumerate(shape))
        return b.add("iota", shape=kept, dim=dim, offset=rng.choice((0, 0, 1, 3)))

    for _ in range(rng.randint(8, 22)):
        a = rng.choice(held)
        shape = b.types[a].shape
        like = rng.choice([h for h in held if b.types[h].shape == shape])
        dim = rng.randrange(2)
        op = rng.choice(OPS)
        if op == "mask":
            order = rng.choice(("le", "lt", "ge", "eq", "ne"))
            mask = b.add(order, counted(shape, 0), counted(shape, 1))
            out = b.add("where", mask, a, rng.choice((like, zero)))
        elif op == "rows":
            end = limit(rng.randint(0, shape[dim]))
            out = b.add("where", b.add(rng.choice(("lt", "ge")), counted(shape, dim), end), a, zero)
        elif op == "cut" and shape[dim] > 1:
            at = rng.randint(1, shape[dim] - 1)
            out = b.add("slice", a, dim=dim, start=0, stop=at)
            held.append(b.add("slice", a, dim=dim, start=at, stop=shape[dim]))
        elif op == "concat" and shape[dim] + b.types[like].shape[dim] <= 8:
            out = b.add("concat", a, like, dim=dim)
        elif op in ("sum", "amax"):
            out = b.add(op, a, dims=(dim,), keepdim=True)
        elif op == "exp":
            out = b.add("exp", b.add("mul_scalar", a, value=Fraction(1, 4)))
        elif op == "log":
            out = b.add("log", b.add("sum", b.add("exp", a), dims=(1,), keepdim=True))
        elif op == "share":
            e = b.add("exp", a)
            out = b.add("div", e, b.add("sum", e, dims=(1,), keepdim=True))
        elif op == "merge":
            gap = b.add(
                "sub",
                b.add("log", b.add("sum", b.add("exp", a), dims=(1,), keepdim=True)),
                b.add("log", b.add("sum", b.add("exp", like), dims=(1,), keepdim=True)),
            )
            out = b.add("sigmoid", gap)
        elif op == "labels" and shape == (ROWS, COLS):
            out = b.add("take_along", a, rng.choice(indices), dim=1, offset=rng.choice((0, 1)))
        elif op == "known":
            i = rng.choice(indices)
            mask = b.add(rng.choice(("ne", "lt", "ge")), i, limit(rng.randint(-1, 3)))
            indices.append(b.add("where", mask, i, limit(rng.randint(0, 3))))
            if shape[0] != ROWS:
                continue
            out = b.add("where", mask, a, zero)
        elif op in ("mul", "add", "sub"):
            out = b.add(op, a, like)
        elif op == "sigmoid":
            out = b.add("sigmoid", a)
        elif op == "pad" and shape[dim] < 7:
            out = b.add("pad", a, dim=dim, lo=rng.randint(0, 1), hi=1)
        else:
            continue
        held.append(out)
    b.output(held[-1])
    return b.build()


def test_equal_keys_of_masked_programs_are_equal_on_numbers() -> None:
    alike = 0
    for seed in range(24):
        found, wrong = clashes(random_program(seed), seed)
        assert not wrong, f"seed {seed}: {wrong}"
        alike += found
    assert alike > 10


HEAD = """program p
 input %x: f32[8, 6]
 input %v: f32[6, 4]
 input %s: f32[8, 8]
 input %w: f32[8, 8]
 input %i: i64[8]
 %zero = full {shape=[], value=0}
 %at = reshape %i {shape=[8, 1]}
 %xa = slice %x {dim=1, start=0, stop=2}
 %xb = slice %x {dim=1, start=2, stop=6}
 %va = slice %v {dim=0, start=0, stop=2}
 %vb = slice %v {dim=0, start=2, stop=6}
 %ea = exp %xa
 %eb = exp %xb
 %la = sum %ea {dims=[1], keepdim=true}
 %lb = sum %eb {dims=[1], keepdim=true}
 %oa0 = mm %ea, %va
 %ob0 = mm %eb, %vb
 %oa = div %oa0, %la
 %ob = div %ob0, %lb
 %ga = log %la
 %gb = log %lb
 %whole0 = softmax %x
 %whole = mm %whole0, %v
 %r = iota {shape=[8, 1], dim=0}
 %c = iota {shape=[1, 8], dim=1}
 %ok = ge %r, %c
 %es = exp %s
 %kept = where %ok, %es, %zero
 %causal = mm %kept, %w
 %s0 = slice %es {dim=0, start=0, stop=3}
 %s1 = slice %es {dim=0, start=3, stop=8}
 %s10 = slice %s1 {dim=1, start=0, stop=3}
 %s11 = slice %s1 {dim=1, start=3, stop=8}
 %s00 = slice %s0 {dim=1, start=0, stop=3}
 %w0 = slice %w {dim=0, start=0, stop=3}
 %w1 = slice %w {dim=0, start=3, stop=8}
 %r3 = iota {shape=[3, 1], dim=0}
 %c3 = iota {shape=[1, 3], dim=1}
 %r5 = iota {shape=[5, 1], dim=0}
 %c5 = iota {shape=[1, 5], dim=1}
 %ok3 = ge %r3, %c3
 %ok5 = ge %r5, %c5
 %m00 = where %ok3, %s00, %zero
 %m11 = where %ok5, %s11, %zero
 %y0 = mm %m00, %w0
 %y10 = mm %s10, %w0
 %y11 = mm %m11, %w1
 %none = full {shape=[], value=-7, dtype=i64}
 %first = full {shape=[], value=0, dtype=i64}
 %two = full {shape=[], value=2, dtype=i64}
 %five = full {shape=[], value=5, dtype=i64}
 %six = full {shape=[], value=6, dtype=i64}
 %used = ne %i, %none
 %use = cast %used {dtype=f32}
 %t = take_along %x, %at {dim=1}
 %tf = reshape %t {shape=[8]}
 %loss = mul %tf, %use
"""
SPELLINGS = {
    "parts by the logarithms of their sums": (
        "%whole",
        "%wa = exp %ga\n %wb = exp %gb\n %n = add %wa, %wb\n %fa = div %wa, %n\n"
        " %fb = div %wb, %n\n %pa = mul %oa, %fa\n %pb = mul %ob, %fb\n %b = add %pa, %pb",
    ),
    "a second part merged into the first": (
        "%whole",
        "%g = sub %gb, %ga\n %f = sigmoid %g\n %d = sub %oa, %ob\n %p = mul %f, %d\n"
        " %b = sub %oa, %p",
    ),
    "the logarithm of a sum from two of parts": (
        "%a0 = exp %x\n %a1 = sum %a0 {dims=[1], keepdim=true}\n %a = log %a1",
        "%g = sub %gb, %ga\n %p = softplus %g\n %b = add %p, %ga",
    ),
    "a causal mask in blocks": (
        "%causal",
        "%y1 = add %y10, %y11\n %b = concat %y0, %y1 {dim=0}",
    ),
    "columns up to an end": (
        "%a = slice %x {dim=1, start=0, stop=5}",
        "%c6 = iota {shape=[1, 6], dim=1}\n %in = lt %c6, %five\n %k = where %in, %x, %zero\n"
        " %b = slice %k {dim=1, start=0, stop=5}",
    ),
    "labels set to 0 where they do not count": (
        "%loss",
        "%j = where %used, %i, %first\n %jl = reshape %j {shape=[8, 1]}\n"
        " %p = take_along %x, %jl {dim=1}\n %q = reshape %p {shape=[8]}\n %b = mul %q, %use",
    ),
    "labels of one block of columns, masked": (
        "%k = take_along %xb, %at {dim=1, offset=2}\n %a = reshape %k {shape=[8]}",
        "%lo = lt %i, %two\n %hi = ge %i, %six\n %out = logical_or %lo, %hi\n"
        " %l = sub %i, %two\n %j = where %out, %first, %l\n %jl = reshape %j {shape=[8, 1]}\n"
        " %p = take_along %xb, %jl {dim=1}\n %q = reshape %p {shape=[8]}\n"
        " %b = where %out, %zero, %q",
    ),
    "distances counted from another start": (
        "%d = sub %c, %r\n %e = cast %d {dtype=f32}\n %h = add %s, %e\n %k = exp %h\n"
        " %a = mm %k, %w",
        "%d = sub %c, %r\n %e = cast %d {dtype=f32}\n %d0 = slice %e {dim=1, start=0, stop=3}\n"
        " %n5 = iota {shape=[1, 5], dim=1, offset=3}\n %f5 = sub %n5, %r\n"
        " %d1 = cast %f5 {dtype=f32}\n %z0 = slice %s {dim=1, start=0, stop=3}\n"
        " %z1 = slice %s {dim=1, start=3, stop=8}\n %h0 = add %z0, %d0\n %h1 = add %z1, %d1\n"
        " %k0 = exp %h0\n %k1 = exp %h1\n %p0 = mm %k0, %w0\n %p1 = mm %k1, %w1\n"
        " %b = add %p1, %p0",
    ),
}
NEAR = {
    "parts weighed by the wrong sums": (
        "%whole",
        "%g = sub %ga, %gb\n %f = sigmoid %g\n %d = sub %oa, %ob\n %p = mul %f, %d\n"
        " %b = sub %oa, %p",
    ),
    "parts averaged": ("%whole", "%p = add %oa, %ob\n %b = mul_scalar %p {value=1/2}"),
    "a causal mask with a block left out": ("%causal", "%b = concat %y0, %y11 {dim=0}"),
    "a causal mask with a block too much": (
        "%causal",
        "%s01 = slice %s0 {dim=1, start=3, stop=8}\n %y01 = mm %s01, %w1\n %y00 = add %y0, %y01\n"
        " %y1 = add %y10, %y11\n %b = concat %y00, %y1 {dim=0}",
    ),
    "a block masked one further": (
        "%causal",
        "%ok6 = gt %r5, %c5\n %mm = where %ok6, %s11, %zero\n %yy = mm %mm, %w1\n"
        " %y1 = add %y10, %yy\n %b = concat %y0, %y1 {dim=0}",
    ),
    "a mask from its own first row": (
        "%causal",
        "%ok53 = ge %r5, %c3\n %mm = where %ok53, %s10, %zero\n %yy = mm %mm, %w0\n"
        " %y1 = add %yy, %y11\n %b = concat %y0, %y1 {dim=0}",
    ),
    "labels set to 0 that count": (
        "%loss",
        "%j = where %used, %i, %first\n %jl = reshape %j {shape=[8, 1]}\n"
        " %p = take_along %x, %jl {dim=1}\n %b = reshape %p {shape=[8]}",
    ),
    "labels of one block of columns and one more": (
        "%k = take_along %xb, %at {dim=1, offset=2}\n %a = reshape %k {shape=[8]}",
        "%lo = lt %i, %two\n %hi = gt %i, %six\n %out = logical_or %lo, %hi\n"
        " %l = sub %i, %two\n %xc = pad %xb {dim=1, lo=0, hi=0}\n"
        " %j = where %out, %first, %l\n %jl = reshape %j {shape=[8, 1]}\n"
        " %xd = concat %xb, %xa {dim=1}\n %p = take_along %xd, %jl {dim=1}\n"
        " %q = reshape %p {shape=[8]}\n %b = where %out, %zero, %q",
    ),
    "distances counted from the start of each part": (
        "%d = sub %c, %r\n %e = cast %d {dtype=f32}\n %h = add %s, %e\n %k = exp %h\n"
        " %a = mm %k, %w",
        "%d = sub %c, %r\n %e = cast %d {dtype=f32}\n %d0 = slice %e {dim=1, start=0, stop=3}\n"
        " %f5 = sub %c5, %r\n %d1 = cast %f5 {dtype=f32}\n"
        " %z0 = slice %s {dim=1, start=0, stop=3}\n %z1 = slice %s {dim=1, start=3, stop=8}\n"
        " %h0 = add %z0, %d0\n %h1 = add %z1, %d1\n %k0 = exp %h0\n %k1 = exp %h1\n"
        " %p0 = mm %k0, %w0\n %p1 = mm %k1, %w1\n %b = add %p1, %p0",
    ),
    "a product that a signed sum is divided out of": (
        "%a = sum %s {dims=[1]}",
        "%n = sum %w {dims=[1]}\n %p = sum %s {dims=[1]}\n %q = mul %p, %n\n %b = div %q, %n",
    ),
    "the exponential of a logarithm": (
        "%a = sum %s {dims=[1]}",
        "%n = sum %s {dims=[1]}\n %l = log %n\n %b = exp %l",
    ),
    "a reciprocal behind a mask by index": (
        "%k = slice %x {dim=1, start=0, stop=5}\n %q = reciprocal %k\n"
        " %a = pad %q {dim=1, lo=0, hi=1}",
        "%c6 = iota {shape=[1, 6], dim=1}\n %in = lt %c6, %five\n %f = cast %in {dtype=f32}\n"
        " %q = reciprocal %x\n %b = mul %q, %f",
    ),
}


def keys(pair: tuple[str, str]) -> list[tuple[Fraction, str]]:
    found: list[tuple[Fraction, str]] = []
    for text, out in zip(pair, "ab", strict=True):
        named = text[1:] if " = " not in text else out
        body = "" if " = " not in text else f" {text}\n"
        one = as_terms(inline(parse_text(f"{HEAD}{body} return %{named}")))
        found.append(Keys(one.terms).key(one.values[one.program.outputs[0].value]))
    return found


@pytest.mark.parametrize("name", SPELLINGS)
def test_spellings_of_one_masked_function_have_one_key(name: str) -> None:
    one, other = keys(SPELLINGS[name])
    assert one == other


@pytest.mark.parametrize("name", NEAR)
def test_near_misses_of_masks_have_other_keys(name: str) -> None:
    one, other = keys(NEAR[name])
    assert one != other
