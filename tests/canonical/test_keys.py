"""Keys of terms: equal keys are equal functions, and known spellings of one function are found."""

from __future__ import annotations

import random
from fractions import Fraction

import numpy as np
import pytest

from shardproof.verifier.domains.floats import Floats
from shardproof.verifier.kernel.inline import inline
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.kernel.program.types import TensorType
from shardproof.verifier.provers.canonical import form, keys
from shardproof.verifier.provers.canonical.keys import Keys
from shardproof.verifier.provers.canonical.rearranged import view
from shardproof.verifier.provers.sequential import as_terms
from shardproof.verifier.refute.evaluate import evaluate
from shardproof.verifier.text.parser import parse_text


def F(*shape: int) -> TensorType:
    return TensorType(shape, "f32")


def random_program(seed: int, most: int = 24) -> Program:
    """Views, sums, products and functions of two small inputs and an index."""
    rng = random.Random(seed)
    b = Builder("random")
    n, m = rng.choice((2, 4)), rng.choice((2, 3))
    floats = [b.input("x", F(n, m)), b.input("y", F(n, m)), b.input("v", F(n))]
    index = b.input("i", TensorType((n,), "i64"))

    def pick(rank: int | None = None) -> str:
        fits = [f for f in floats if rank is None or len(b.types[f].shape) == rank]
        return rng.choice(fits or floats)

    for _ in range(rng.randint(6, most)):
        x = pick()
        shape = b.types[x].shape
        like = [f for f in floats if b.types[f].shape == shape]
        op = rng.choice(OPS)
        dim = rng.randrange(len(shape)) if shape else 0
        if op in ("add", "sub", "mul", "maximum"):
            out = b.add(op, x, rng.choice(like))
        elif op in ("exp", "gelu", "neg"):
            out = b.add(op, b.add("mul_scalar", x, value=Fraction(1, 4)) if op == "exp" else x)
        elif op == "scale":
            out = b.add("mul_scalar", x, value=Fraction(rng.choice((-1, 2, 3)), rng.choice((1, 2))))
        elif op == "shares" and shape:
            e = b.add("exp", b.add("mul_scalar", x, value=Fraction(1, 8)))
            out = b.add("div", e, b.add("sum", e, dims=(dim,), keepdim=True))
        elif op == "where":
            out = b.add("where", b.add("lt", x, rng.choice(like)), x, rng.choice(like))
        elif op == "reshape":
            size = int(np.prod(shape))
            shapes = [(size,), (2, size // 2), (size // 2, 2)] if size % 2 == 0 else [(size,)]
            out = b.add("reshape", x, shape=rng.choice(shapes))
        elif op == "permute" and len(shape) > 1:
            dims = list(range(len(shape)))
            rng.shuffle(dims)
            out = b.add("permute", x, dims=tuple(dims))
        elif op == "cut" and shape and shape[dim] > 1:
            at, step = rng.randint(1, shape[dim] - 1), rng.choice((1, 1, 2))
            out = b.add("slice", x, dim=dim, start=0, stop=at, step=step)
            floats.append(b.add("slice", x, dim=dim, start=at, stop=shape[dim]))
        elif op == "concat" and shape:
            fits = [f for f in floats if _joins(b.types[f].shape, shape, dim)]
            out = b.add("concat", x, rng.choice(fits), dim=dim)
        elif op == "pad" and shape:
            out = b.add("pad", x, dim=dim, lo=rng.randint(0, 2), hi=rng.randint(0, 2))
        elif op in ("sum", "amax") and shape:
            out = b.add(op, x, dims=(dim,), keepdim=rng.random() < 0.4)
        elif op == "cumsum" and shape:
            out = b.add("cumsum", x, dim=dim)
        elif op == "take" and shape:
            out = b.add("take", x, index, dim=dim, offset=rng.choice((0, 1)))
        elif op == "index_add" and shape and shape[0] == n:
            out = b.add("index_add", x, index, size=rng.randint(2, 5), offset=rng.choice((0, 1)))
        elif op == "mm" and len(shape) == 2:
            other = pick(2)
            if b.types[other].shape[0] != shape[1]:
                other = b.add("permute", x, dims=(1, 0))
            out = b.add("mm", x, other)
        else:
            continue
        if b.types[out].size <= 64:
            floats.append(out)
    b.output(floats[-1])
    return b.build()


def _joins(a: tuple[int, ...], b: tuple[int, ...], dim: int) -> bool:
    return (*a[:dim], *a[dim + 1 :]) == (*b[:dim], *b[dim + 1 :]) and len(a) == len(b)


OPS = (
    *("add", "sub", "mul", "maximum", "exp", "gelu", "neg", "scale", "shares", "where"),
    *("reshape", "permute", "cut", "cut", "concat", "concat", "pad", "sum", "sum", "amax"),
    *("cumsum", "take", "index_add", "mm", "mm", "reshape"),
)


def clashes(program: Program, seed: int) -> tuple[int, list[str]]:
    """How many pairs of different terms have one key, and those whose numbers differ."""
    one = as_terms(inline(program))
    keys = Keys(one.terms)
    rng = np.random.default_rng(seed)
    values: dict[str, np.ndarray] = {}
    for item in program.inputs:
        if item.type.is_float:
            values[item.name] = rng.normal(size=item.type.shape)
        else:
            values[item.name] = rng.integers(0, 3, item.type.shape)
    numbers = evaluate(inline(program), values, Floats())
    groups: dict[str, list[tuple[str, Fraction]]] = {}
    for name, ref in one.values.items():
        factor, text = keys.key(ref)
        groups.setdefault(text, []).append((name, factor))
    alike, wrong = 0, list[str]()
    for members in groups.values():
        first, factor = members[0]
        for name, other in members[1:]:
            alike += one.values[name].id != one.values[first].id
            a = np.asarray(numbers[first], dtype=float) * float(other)
            b = np.asarray(numbers[name], dtype=float) * float(factor)
            if a.shape != b.shape or not np.allclose(a, b, rtol=1e-6, atol=1e-9):
                wrong.append(f"{first} {name}")
    return alike, wrong


@pytest.mark.parametrize("short", [False, True], ids=["open", "closed"])
def test_equal_keys_are_equal_on_numbers(short: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where nearly all terms are too long to be written, or stand for themselves."""
    if short:
        monkeypatch.setattr(keys, "HEAVY", 2)
        monkeypatch.setattr(form, "MAX_WRITTEN", 12)
    alike = 0
    for seed in range(60):
        found, wrong = clashes(random_program(seed), seed)
        assert not wrong, f"seed {seed}: {wrong}"
        alike += found
    assert alike > 3


SPELLINGS = {
    "distributes": (
        "%s = add %x, %y\n %a = mm %s, %w",
        "%p = mm %x, %w\n %q = mm %y, %w\n %b = add %q, %p",
    ),
    "flat": (
        "%a = gelu %x",
        "%f = reshape %x {shape=[48]}\n %g = gelu %f\n %b = reshape %g {shape=[8, 6]}",
    ),
    "chunks of a sum": (
        "%t = permute %x {dims=[1, 0]}\n %a = mm %t, %y",
        "%x0 = slice %x {dim=0, start=0, stop=3}\n %x1 = slice %x {dim=0, start=3, stop=8}\n"
        " %y0 = slice %y {dim=0, start=0, stop=3}\n %y1 = slice %y {dim=0, start=3, stop=8}\n"
        " %t0 = permute %x0 {dims=[1, 0]}\n %t1 = permute %x1 {dims=[1, 0]}\n"
        " %g0 = mm %t0, %y0\n %g1 = mm %t1, %y1\n %b = add %g1, %g0",
    ),
    "uneven rows": (
        "%h = mm %x, %w\n %a = sigmoid %h",
        "%x0 = slice %x {dim=0, start=0, stop=3}\n %x1 = slice %x {dim=0, start=3, stop=8}\n"
        " %h0 = mm %x0, %w\n %h1 = mm %x1, %w\n %s0 = sigmoid %h0\n %s1 = sigmoid %h1\n"
        " %b = concat %s0, %s1 {dim=0}",
    ),
    "padded rows": (
        "%h = mm %x, %w\n %a = sigmoid %h",
        "%z = pad %x {dim=0, lo=1, hi=3}\n %h = mm %z, %w\n %s = sigmoid %h\n"
        " %b = slice %s {dim=0, start=1, stop=9}",
    ),
    "shifted softmax": (
        "%h = mm %x, %w\n %e = exp %h\n %t = sum %e {dims=[1], keepdim=true}\n %a = div %e, %t",
        "%h = mm %x, %w\n %m = amax %h {dims=[1], keepdim=true}\n %c = sub %h, %m\n %e = exp %c\n"
        " %t = sum %e {dims=[1], keepdim=true}\n %b = div %e, %t",
    ),
    "padded table": (
        "%a = take %x, %i {dim=0}",
        "%z = pad %x {dim=0, lo=2, hi=3}\n %b = take %z, %i {dim=0, offset=-2}",
    ),
    "chunks of a lookup": (
        "%a = take %x, %i {dim=0}",
        "%i0 = slice %i {dim=0, start=0, stop=2}\n %i1 = slice %i {dim=0, start=2, stop=5}\n"
        " %t0 = take %x, %i0 {dim=0}\n %t1 = take %x, %i1 {dim=0}\n"
        " %b = concat %t0, %t1 {dim=0}",
    ),
    "turned mask": (
        "%c = le %x, %y\n %a = where %c, %x, %y",
        "%c = lt %y, %x\n %b = where %c, %y, %x",
    ),
}
HEAD = """program p
 input %x: f32[8, 6]
 input %y: f32[8, 6]
 input %w: f32[6, 4]
 input %i: i64[5]
"""


@pytest.mark.parametrize("name", SPELLINGS)
def test_spellings_of_one_function_have_one_key(name: str) -> None:
    found: list[tuple[Fraction, str]] = []
    for text, out in zip(SPELLINGS[name], "ab", strict=True):
        one = as_terms(inline(parse_text(f"{HEAD} {text}\n return %{out}")))
        found.append(Keys(one.terms).key(one.values[one.program.outputs[0].value]))
    assert found[0] == found[1]


NEAR = {
    "a sum with a constant part": (
        "%p = pad %x {dim=1, lo=0, hi=1}\n %e = exp %p\n %a = slice %e {dim=1, start=0, stop=6}",
        "%p = pad %x {dim=1, lo=0, hi=1}\n %e = exp %p\n %s = sum %e {dims=[1], keepdim=true}\n"
        " %d = div %e, %s\n %b = slice %d {dim=1, start=0, stop=6}",
    ),
    "cycles": (
        "%g = mm %xt, %y\n %a1 = mm %g, %g\n %a = mm %a1, %g",
        "%g = mm %xt, %y\n %b1 = mm %g, %g\n %b = mul %b1, %g",
    ),
    "a square of a sum": (
        "%s = sum %x {dims=[1]}\n %a = mul %s, %s",
        "%s = mul %x, %x\n %b = sum %s {dims=[1]}",
    ),
    "another window": (
        "%a = slice %x {dim=0, start=1, stop=5}",
        "%b = slice %x {dim=0, start=2, stop=6}",
    ),
    "a padded sigmoid": (
        "%s = sigmoid %x\n %a = pad %s {dim=0, lo=0, hi=2}",
        "%p = pad %x {dim=0, lo=0, hi=2}\n %b = sigmoid %p",
    ),
    "a shift that differs along the sum": (
        "%e = exp %x\n %a = sum %e {dims=[1]}",
        "%c = sub %x, %y\n %e = exp %c\n %b = sum %e {dims=[1]}",
    ),
    "another order of digits": (
        "%a = reshape %x {shape=[6, 8]}",
        "%b = permute %x {dims=[1, 0]}",
    ),
}


@pytest.mark.parametrize("name", NEAR)
def test_near_misses_have_other_keys(name: str) -> None:
    found: list[tuple[Fraction, str]] = []
    for text, out in zip(NEAR[name], "ab", strict=True):
        body = f"{HEAD} %xt = permute %x {{dims=[1, 0]}}\n {text}\n return %{out}"
        one = as_terms(inline(parse_text(body)))
        found.append(Keys(one.terms).key(one.values[one.program.outputs[0].value]))
    assert found[0] != found[1]


@pytest.mark.parametrize("turned", [True, False])
def test_a_long_term_and_its_transpose_have_one_key(
    turned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(form, "MAX_WRITTEN", 40)
    parts = "%t = add %x, %y\n %e = exp %t\n %f = gelu %e\n %g = add %e, %f\n"
    parts += " %h = mul %g, %g\n %k = permute %h {dims=[1, 0]}\n"
    found: list[tuple[Fraction, str]] = []
    one, other = "%m = mm %k, %x\n", "%m = mm %xt, %h\n"
    for text in (one, other + (" %m2 = permute %m {dims=[1, 0]}\n" if turned else "")):
        last = "%m2" if "m2" in text else "%m"
        body = f"{HEAD} %xt = permute %x {{dims=[1, 0]}}\n {parts} {text} %z = exp {last}\n"
        program = as_terms(inline(parse_text(f"{body} return %z")))
        found.append(Keys(program.terms).key(program.values[program.program.outputs[0].value]))
    assert (found[0] == found[1]) is turned


def test_sums_around_one_ring_and_around_two_have_other_keys() -> None:
    """Indices that look alike one by one are told apart by how they hang together."""

    def ring(count: int, times: int) -> str:
        lines = ["%g0 = mm %xt, %y"]
        lines += [f"%g{k} = mm %g{k - 1}, %g0" for k in range(1, count)]
        lines += ["%r = iota {shape=[6, 1], dim=0}", "%c = iota {shape=[1, 6], dim=1}"]
        lines += ["%d = eq %r, %c", "%f = cast %d {dtype=f32}"]
        lines += [f"%t = mul %g{count - 1}, %f", "%s1 = sum %t {dims=[0, 1]}"]
        lines += [f"%s{k} = mul %s{k - 1}, %s1" for k in range(2, times + 1)]
        return "\n ".join([*lines, f"return %s{times}"])

    found: list[tuple[Fraction, str]] = []
    for text in (ring(4, 1), ring(2, 2)):
        one = as_terms(inline(parse_text(f"{HEAD} %xt = permute %x {{dims=[1, 0]}}\n {text}")))
        found.append(Keys(one.terms).key(one.values[one.program.outputs[0].value]))
    assert found[0] != found[1]


UNDEFINED = {
    "a square of a root": (
        "%a = add %x, %y",
        "%s = add %x, %y\n %r = sqrt %s\n %b = mul %r, %r",
    ),
    "zeros divided by": (
        "%r = reciprocal %x\n %a = pad %r {dim=0, lo=0, hi=1}",
        "%p = pad %x {dim=0, lo=0, hi=1}\n %r = reciprocal %p\n"
        " %o = full {shape=[8, 6], value=1, dtype=f32}\n %m = pad %o {dim=0, lo=0, hi=1}\n"
        " %b = mul %r, %m",
    ),
}


@pytest.mark.parametrize("name", UNDEFINED)
def test_what_may_be_undefined_is_no_other_function(name: str) -> None:
    """One device computes finite values here, the other spelling does not."""
    found: list[tuple[Fraction, str]] = []
    for text, out in zip(UNDEFINED[name], "ab", strict=True):
        one = as_terms(inline(parse_text(f"{HEAD} {text}\n return %{out}")))
        found.append(Keys(one.terms).key(one.values[one.program.outputs[0].value]))
    assert found[0] != found[1]


def test_a_root_of_squares_is_squared() -> None:
    text = "%p = mul %x, %x\n %s = sum %p {dims=[1]}\n %r = sqrt %s\n %b = mul %r, %r"
    one = as_terms(inline(parse_text(f"{HEAD} {text}\n return %b, %s")))
    keys, (b, s) = Keys(one.terms), (one.values[o.value] for o in one.program.outputs)
    assert keys.key(b) == keys.key(s)


TRAPS = {
    "a square counted for each of its indices": """
 %a = slice %v {dim=0, start=0, stop=2}
 %b = slice %v {dim=0, start=2, stop=4}
 %p = sum %a {dims=[0]}
 %q = sum %b {dims=[0]}
 %t = sum %w {dims=[0]}
 %pp = mul %p, %p
 %pq = mul %p, %q
 %pq2 = mul_scalar %pq {value=2}
 %one = add %pp, %pq2
 %left = add %one, %t
 %all = sum %v {dims=[0]}
 %two = mul %p, %all
 %two2 = mul_scalar %two {value=2}
 %right = add %two2, %t
""",
    "a maximum that depends on an index by a range alone": """
 %e = expand %x {shape=[3, 2]}
 %e4 = pad %e {dim=1, lo=1, hi=1}
 %e5 = pad %e {dim=1, lo=1, hi=2}
 %m4 = amax %e4 {dims=[0]}
 %m5 = amax %e5 {dims=[0]}
 %x4 = exp %m4
 %x5 = exp %m5
 %s4 = sum %x4 {dims=[0]}
 %s5 = sum %x5 {dims=[0]}
 %left = reciprocal %s4
 %right = reciprocal %s5
""",
}


@pytest.mark.parametrize("name", TRAPS)
def test_traps_have_no_equal_key(name: str) -> None:
    head = "program p\n input %v: f32[4]\n input %w: f32[2]\n input %x: f32[3, 1]\n"
    program = parse_text(f"{head}{TRAPS[name]} return %left, %right")
    assert clashes(program, 0)[1] == []


@pytest.mark.parametrize("seed", range(6))
def test_chains_of_views_are_known_by_where_their_entries_stand(seed: int) -> None:
    rng = random.Random(seed)
    b = Builder("views")
    values = [b.input("x", F(2, 6, 4))]
    for _ in range(60):
        x = rng.choice(values)
        shape = b.types[x].shape
        order = rng.sample(range(len(shape)), len(shape))
        wanted = rng.choice([(2, 6, 4), (4, 6, 2), (2, 2, 3, 4), (8, 6), (3, 16), (48,), shape])
        chosen = rng.random() < 0.5
        attrs = {"dims": tuple(order)} if chosen else {"shape": wanted}
        values.append(b.add("permute" if chosen else "reshape", x, **attrs))
    b.output(values[-1], "output", "y")
    program = b.build()
    one = as_terms(program)
    made = evaluate(program, {"x": np.arange(48.0).reshape(2, 6, 4)}, Floats())
    found = {v: (b.types[v].shape, view(one.terms, one.values[v].id)) for v in values}
    alike = 0
    for v in values:
        for w in values:
            if found[v] == found[w]:
                assert np.array_equal(np.asarray(made[v]), np.asarray(made[w]))
                alike += v != w
    assert alike > 20
