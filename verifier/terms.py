"""Global terms: hash-consed expressions over the inputs of the one-device program, in normal form.

A `Ref` is an exact rational times a term. The constructors normalise as they build: linear
combinations and products are flat and sorted, rational factors are pulled out of linear ops,
views compose, elementwise ops read through broadcasts, casts are the identity over the reals.
Two values are known to be equal when their refs are equal. Every rewrite here is an identity of
real arithmetic that holds for all values; none cancels a factor that could be zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from verifier import rowterms
from verifier.ir.types import FLOATS
from verifier.ops import lookup
from verifier.ops.registry import ONE

Shape = tuple[int, ...]
MAX_POWER = 64
"""Integer powers up to this are written out as products."""


class Ref(NamedTuple):
    """`coef` times the term with this id."""

    coef: Fraction
    id: int

    def __hash__(self) -> int:
        return hash(self.id)


@dataclass(frozen=True, slots=True)
class Term:
    op: str
    args: tuple[Ref, ...]
    attrs: tuple[Any, ...]
    shape: Shape


def times(a: Fraction, b: Fraction) -> Fraction:
    """The product; most factors are 1, and multiplying fractions is slow."""
    if a is ONE:
        return b
    if b is ONE:
        return a
    product = a * b
    return ONE if product == ONE else product


class Terms:
    """A table of terms. Ids grow; a term is never changed."""

    def __init__(self) -> None:
        self.nodes: list[Term] = []
        self._ids: dict[Term, int] = {}

    def __getitem__(self, id: int) -> Term:
        return self.nodes[id]

    def shape(self, ref: Ref) -> Shape:
        return self.nodes[ref.id].shape

    def intern(self, op: str, args: Sequence[Ref], attrs: tuple[Any, ...], shape: Shape) -> Ref:
        term = Term(op, tuple(args), attrs, shape)
        found = self._ids.get(term)
        if found is None:
            found = len(self.nodes)
            self.nodes.append(term)
            self._ids[term] = found
        return Ref(ONE, found)

    def var(self, name: str, shape: Shape) -> Ref:
        """An input of the one-device program."""
        return self.intern("var", (), (name,), shape)

    def ones(self, shape: Shape) -> Ref:
        return self.intern("ones", (), (), shape)

    def full(self, shape: Shape, value: Fraction) -> Ref:
        return Ref(Fraction(value), self.ones(shape).id)

    def is_zero(self, ref: Ref) -> bool:
        return ref.coef == 0

    def apply(
        self, op: str, args: Sequence[Ref], attrs: Mapping[str, Any], dtypes: Sequence[str]
    ) -> Ref:
        """The term of an op on whole operands; `dtypes` are those of the operands."""
        build = _BUILD.get(op)
        if build is not None:
            return build(self, list(args), attrs, dtypes)
        if lookup(op).kind == "map":
            return self.mapped(op, list(args), _key(attrs))
        raise KeyError(f"op {op} has no term")

    # structure

    def strip(self, ref: Ref) -> Ref:
        """Read through a broadcast: elementwise ops see the smaller tensor."""
        term = self.nodes[ref.id]
        if term.op == "expand":
            inner = term.args[0]
            return Ref(times(ref.coef, inner.coef), inner.id)
        if term.op == "ones" and term.shape != ():
            return Ref(ref.coef, self.ones(()).id)
        return ref

    def fit(self, ref: Ref, shape: Shape) -> Ref:
        """Broadcast back to the shape an elementwise op really has."""
        return ref if self.shape(ref) == shape else self.expand(ref, shape)

    def mapped(self, op: str, args: list[Ref], attrs: tuple[Any, ...]) -> Ref:
        shape = tuple(np.broadcast_shapes(*(self.shape(a) for a in args)))
        small = [self.strip(a) for a in args]
        inner = tuple(np.broadcast_shapes(*(self.shape(a) for a in small)))
        return self.fit(self.intern(op, small, attrs, inner), shape)

    def expand(self, ref: Ref, shape: Shape) -> Ref:
        term = self.nodes[ref.id]
        if term.shape == shape:
            return ref
        if ref.coef == 0 or term.op == "ones":
            return Ref(ref.coef, self.ones(shape).id)
        if term.op == "expand":
            ref = Ref(ref.coef * term.args[0].coef, term.args[0].id)
            if self.shape(ref) == shape:
                return ref
        return Ref(ref.coef, self.intern("expand", [Ref(ONE, ref.id)], (), shape).id)

    def reshape(self, ref: Ref, shape: Shape) -> Ref:
        term = self.nodes[ref.id]
        if term.shape == shape:
            return ref
        if ref.coef == 0 or term.op == "ones":
            return Ref(ref.coef, self.ones(shape).id)
        if term.op == "reshape":
            inner = term.args[0]
            return self.reshape(Ref(ref.coef * inner.coef, inner.id), shape)
        return Ref(ref.coef, self.intern("reshape", [Ref(ONE, ref.id)], (), shape).id)

    def permute(self, ref: Ref, dims: tuple[int, ...]) -> Ref:
        term = self.nodes[ref.id]
        shape = tuple(term.shape[d] for d in dims)
        if dims == tuple(range(len(dims))):
            return ref
        if ref.coef == 0 or term.op == "ones":
            return Ref(ref.coef, self.ones(shape).id)
        if term.op == "permute":
            inner: tuple[int, ...] = term.attrs[0]
            return self.permute(Ref(ref.coef, term.args[0].id), tuple(inner[d] for d in dims))
        moving = [d for d in dims if term.shape[d] != 1]
        if moving == sorted(moving):
            return self.reshape(ref, shape)
        return Ref(ref.coef, self.intern("permute", [Ref(ONE, ref.id)], (dims,), shape).id)

    # linear combinations and products

    def combine(self, parts: Sequence[tuple[Fraction, Ref]]) -> Ref:
        """A linear combination, broadcasting as `add` does."""
        shape = tuple(np.broadcast_shapes(*(self.shape(r) for _, r in parts)))
        total: dict[int, Fraction] = {}
        for weight, ref in parts:
            ref = self.strip(ref)
            coef = times(weight, ref.coef)
            term = self.nodes[ref.id]
            entries = term.args if term.op == "lin" else (Ref(ONE, ref.id),)
            for entry in entries:
                part, before = times(coef, entry.coef), total.get(entry.id)
                total[entry.id] = part if before is None else before + part
        items = sorted((i, c) for i, c in total.items() if c)
        if not items:
            return self.full(shape, Fraction(0))
        if len(items) == 1:
            return self.fit(Ref(items[0][1], items[0][0]), shape)
        lead = items[0][1]
        args = [Ref(ONE if c == lead else c / lead, i) for i, c in items]
        inner = tuple(np.broadcast_shapes(*(self.shape(a) for a in args)))
        made = self.intern("lin", args, (), inner)
        return self.fit(Ref(lead, made.id), shape)

    def product(self, args: Sequence[Ref]) -> Ref:
        shape = tuple(np.broadcast_shapes(*(self.shape(a) for a in args)))
        coef, powers = ONE, dict[int, int]()
        for ref in args:
            ref = self.strip(ref)
            coef = times(coef, ref.coef)
            term = self.nodes[ref.id]
            if term.op == "prod":
                for entry, power in zip(term.args, term.attrs, strict=True):
                    powers[entry.id] = powers.get(entry.id, 0) + power
            elif term.op != "ones":
                powers[ref.id] = powers.get(ref.id, 0) + 1
        if coef == 0:
            return self.full(shape, Fraction(0))
        if not powers:
            return self.full(shape, coef)
        items = sorted(powers.items())
        if items[0][1] == 1 and len(items) == 1:
            return self.fit(Ref(coef, items[0][0]), shape)
        factors = [Ref(ONE, i) for i, _ in items]
        inner = tuple(np.broadcast_shapes(*(self.shape(a) for a in factors)))
        made = self.intern("prod", factors, tuple(p for _, p in items), inner)
        return self.fit(Ref(coef, made.id), shape)

    def reciprocal(self, ref: Ref) -> Ref:
        shape = self.shape(ref)
        ref = self.strip(ref)
        if self.nodes[ref.id].op == "ones" and ref.coef:
            return self.full(shape, 1 / ref.coef)
        if ref.coef == 0:
            return self.fit(self.intern("reciprocal", [ref], (), self.shape(ref)), shape)
        made = self.intern("reciprocal", [Ref(ONE, ref.id)], (), self.shape(ref))
        return self.fit(Ref(1 / ref.coef, made.id), shape)

    def linear(self, op: str, args: Sequence[Ref], attrs: tuple[Any, ...], shape: Shape) -> Ref:
        """An op linear in its first operand: its rational factor comes out."""
        first = args[0]
        if first.coef == 0:
            return self.full(shape, Fraction(0))
        made = self.intern(op, [Ref(ONE, first.id), *args[1:]], attrs, shape)
        return Ref(first.coef, made.id)

    def reduce(self, op: str, ref: Ref, dims: tuple[int, ...], keepdim: bool) -> Ref:
        shape = self.shape(ref)
        kept = tuple(1 if i in dims else n for i, n in enumerate(shape))
        bare = tuple(n for i, n in enumerate(shape) if i not in dims)
        real = tuple(sorted(d for d in dims if shape[d] != 1))
        if not real:
            return self.reshape(ref, kept if keepdim else bare)
        inner = tuple(n for i, n in enumerate(shape) if i not in real)
        if op == "sum":
            term = self.nodes[ref.id]
            if term.op == "ones":
                out = self.full(inner, ref.coef * math.prod(shape[d] for d in real))
            elif term.op == "sum":
                before: tuple[int, ...] = term.attrs[0]
                source = term.args[0]
                left = [i for i in range(len(self.shape(source))) if i not in before]
                merged = tuple(sorted((*before, *(left[d] for d in real))))
                out = self.linear("sum", [Ref(ref.coef, source.id)], (merged,), inner)
            else:
                out = self.linear("sum", [ref], (real,), inner)
        else:
            out = self.intern(op, [ref], (real,), inner)
        return self.reshape(out, kept if keepdim else bare)


Build = Callable[[Terms, list[Ref], Mapping[str, Any], Sequence[str]], Ref]
"""(terms, whole operands, attributes, dtypes of the operands) -> the term of an op."""


def _key(attrs: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(sorted(attrs.items()))


def _matmul(t: Terms, args: list[Ref], attrs: Mapping[str, Any], dtypes: Sequence[str]) -> Ref:
    """`a b`, or the transpose of `b^T a^T` where that pair was made earlier."""
    a, b = args
    shape = (*t.shape(a)[:-1], t.shape(b)[-1])
    coef = a.coef * b.coef
    if coef == 0:
        return t.full(shape, Fraction(0))
    a, b = Ref(ONE, a.id), Ref(ONE, b.id)
    rank = len(shape)
    swap = (*range(rank - 2), rank - 1, rank - 2)
    left, right = t.permute(b, swap), t.permute(a, swap)
    if (left.id, right.id) < (a.id, b.id) and left.coef == right.coef == 1:
        turned = (*shape[:-2], shape[-1], shape[-2])
        made = t.permute(t.intern("matmul", [left, right], (), turned), swap)
    else:
        made = t.intern("matmul", [a, b], (), shape)
    return Ref(coef * made.coef, made.id)


def _where(t: Terms, args: list[Ref], attrs: Mapping[str, Any], dtypes: Sequence[str]) -> Ref:
    shape = tuple(np.broadcast_shapes(*(t.shape(a) for a in args)))
    cond, a, b = (t.strip(x) for x in args)
    if a == b:
        return t.fit(a, shape)
    pulled = a.coef or b.coef
    if not pulled:
        return t.full(shape, Fraction(0))
    a, b = Ref(a.coef / pulled, a.id), Ref(b.coef / pulled, b.id)
    a, b = (t.full((), Fraction(0)) if x.coef == 0 else x for x in (a, b))
    inner = tuple(np.broadcast_shapes(*(t.shape(x) for x in (cond, a, b))))
    made = t.intern("where", [cond, a, b], (), inner)
    return t.fit(Ref(pulled, made.id), shape)


def _sorted_map(name: str) -> Build:
    def build(t: Terms, args: list[Ref], attrs: Mapping[str, Any], dtypes: Sequence[str]) -> Ref:
        return t.mapped(name, sorted(args, key=lambda r: (r.id, r.coef)), ())

    return build


def _flipped(name: str) -> Build:
    def build(t: Terms, args: list[Ref], attrs: Mapping[str, Any], dtypes: Sequence[str]) -> Ref:
        return t.mapped(name, [args[1], args[0]], ())

    return build


def _pow(t: Terms, args: list[Ref], attrs: Mapping[str, Any], dtypes: Sequence[str]) -> Ref:
    exponent = Fraction(attrs["exponent"])
    if exponent.denominator == 1 and 0 < exponent <= MAX_POWER:
        return t.product([args[0]] * int(exponent))
    if exponent.denominator == 1 and -MAX_POWER <= exponent < 0:
        return t.reciprocal(t.product([args[0]] * int(-exponent)))
    return t.mapped("pow", args, (exponent,))


def _cast(t: Terms, args: list[Ref], attrs: Mapping[str, Any], dtypes: Sequence[str]) -> Ref:
    to = attrs["dtype"]
    if to == "u8" and dtypes[0] not in ("u8", "bool"):
        return t.mapped("cast", args, ("u8",))
    if to == dtypes[0] or to in FLOATS or (to != "bool" and dtypes[0] not in FLOATS):
        return args[0]
    return t.mapped("cast", args, ("bool" if to == "bool" else "int",))


def _slice(t: Terms, args: list[Ref], attrs: Mapping[str, Any], dtypes: Sequence[str]) -> Ref:
    (x,) = args
    dim, start, stop, step = (attrs[k] for k in ("dim", "start", "stop", "step"))
    shape = list(t.shape(x))
    if (start, stop, step) == (0, shape[dim], 1):
        return x
    shape[dim] = len(range(start, stop, step))
    term = t[x.id]
    if term.op == "ones":
        return t.full(tuple(shape), x.coef)
    if term.op == "slice" and term.attrs[0] == dim:
        first, by = term.attrs[1], term.attrs[3]
        inner = {"dim": dim, "start": first + start * by, "step": step * by}
        inner["stop"] = first + (stop - 1) * by + 1
        return _slice(t, [Ref(x.coef * term.args[0].coef, term.args[0].id)], inner, dtypes)
    if term.op == "concat" and step == 1:
        return _slice_of_concat(t, x, dim, start, stop, dtypes)
    part = rowterms.mask_window(t, x, dim, range(start, stop, step))
    return part or t.linear("slice", args, (dim, start, stop, step), tuple(shape))


def _slice_of_concat(
    t: Terms, x: Ref, dim: int, start: int, stop: int, dtypes: Sequence[str]
) -> Ref:
    """The parts that a contiguous slice meets, each cut to what it meets."""
    term = t[x.id]
    along = term.attrs[0]
    parts: list[Ref] = []
    at = 0
    for part in term.args:
        lo, hi = start, stop
        if dim == along:
            extent = t.shape(part)[dim]
            lo, hi = max(start, at) - at, min(stop, at + extent) - at
            at += extent
        if lo >= hi:
            continue
        cut = _slice(t, [part], {"dim": dim, "start": lo, "stop": hi, "step": 1}, dtypes)
        parts.append(Ref(cut.coef * x.coef, cut.id))
    if not parts:
        shape = [*t.shape(x)]
        shape[dim] = 0
        return t.full(tuple(shape), Fraction(0))
    return _concat(t, parts, {"dim": along}, dtypes)


def _concat(t: Terms, args: list[Ref], attrs: Mapping[str, Any], dtypes: Sequence[str]) -> Ref:
    dim = int(attrs["dim"])
    args = _flat(t, args, dim)
    if len(args) == 1:
        return args[0]
    first = t.shape(args[0])
    shape = (*first[:dim], sum(t.shape(a)[dim] for a in args), *first[dim + 1 :])
    pulled = next((a.coef for a in args if a.coef), None)
    if pulled is None:
        return t.full(shape, Fraction(0))
    parts = [Ref(a.coef / pulled, a.id if a.coef else t.ones(t.shape(a)).id) for a in args]
    return Ref(pulled, t.intern("concat", parts, (dim,), shape).id)


def _flat(t: Terms, args: Sequence[Ref], dim: int) -> list[Ref]:
    """The parts of a concatenation, nested ones opened, adjacent slices of one tensor joined."""
    opened: list[Ref] = []
    for arg in args:
        term = t[arg.id]
        if term.op == "concat" and term.attrs[0] == dim and arg.coef:
            opened += [Ref(arg.coef * p.coef, p.id) for p in term.args]
        elif t.shape(arg)[dim]:
            opened.append(arg)
    out: list[Ref] = []
    for arg in opened or list(args[:1]):
        joined = _adjacent(t, out[-1], arg, dim) if out else None
        if joined is None:
            out.append(arg)
        else:
            out[-1] = joined
    return out


def _adjacent(t: Terms, a: Ref, b: Ref, dim: int) -> Ref | None:
    """One slice for two that follow each other in one tensor."""
    left, right = t[a.id], t[b.id]
    if not (left.op == right.op == "slice" and a.coef == b.coef):
        return None
    if left.args != right.args or left.attrs[0] != dim or right.attrs[0] != dim:
        return None
    (_, start, stop, step), (_, begin, end, by) = left.attrs, right.attrs
    if not (step == by == 1 and stop == begin):
        return None
    x = Ref(a.coef * left.args[0].coef, left.args[0].id)
    return _slice(t, [x], {"dim": dim, "start": start, "stop": end, "step": 1}, ["f32"])


def _pad(t: Terms, args: list[Ref], attrs: Mapping[str, Any], dtypes: Sequence[str]) -> Ref:
    (x,) = args
    dim, lo, hi = (int(attrs[k]) for k in ("dim", "lo", "hi"))
    if lo == hi == 0:
        return x
    shape = t.shape(x)
    shape = (*shape[:dim], shape[dim] + lo + hi, *shape[dim + 1 :])
    return t.linear("pad", args, (dim, lo, hi), shape)


def _flip(t: Terms, args: list[Ref], attrs: Mapping[str, Any], dtypes: Sequence[str]) -> Ref:
    return t.linear("flip", args, (attrs["dim"],), t.shape(args[0]))


def _take(t: Terms, args: list[Ref], attrs: Mapping[str, Any], dtypes: Sequence[str]) -> Ref:
    x, idx = args
    dim, shape = attrs["dim"], t.shape(x)
    out = (*shape[:dim], *t.shape(idx), *shape[dim + 1 :])
    return t.linear("take", args, (dim, attrs["offset"]), out)


def _take_along(t: Terms, args: list[Ref], attrs: Mapping[str, Any], dtypes: Sequence[str]) -> Ref:
    return t.linear("take_along", args, (attrs["dim"], attrs["offset"]), t.shape(args[1]))


def _index_add(t: Terms, args: list[Ref], attrs: Mapping[str, Any], dtypes: Sequence[str]) -> Ref:
    g, idx = args
    shape = (attrs["size"], *t.shape(g)[len(t.shape(idx)) :])
    return t.linear("index_add", args, (attrs["offset"],), shape)


def _put_along(t: Terms, args: list[Ref], attrs: Mapping[str, Any], dtypes: Sequence[str]) -> Ref:
    dim, shape = attrs["dim"], t.shape(args[0])
    out = (*shape[:dim], attrs["size"], *shape[dim + 1 :])
    return t.linear("put_along", args, (dim, attrs["offset"]), out)


def _iota(t: Terms, args: list[Ref], attrs: Mapping[str, Any], dtypes: Sequence[str]) -> Ref:
    shape, dim, offset = tuple(attrs["shape"]), attrs["dim"], attrs["offset"]
    line = t.intern("ramp", (), (), (shape[dim],))
    kept = tuple(n if i == dim else 1 for i, n in enumerate(shape))
    ramp = t.expand(t.reshape(line, kept), shape)
    return t.combine([(ONE, ramp), (Fraction(offset), t.ones(shape))]) if offset else ramp


_BUILD: dict[str, Build] = {
    "neg": lambda t, a, k, d: Ref(-a[0].coef, a[0].id),
    "mul_scalar": lambda t, a, k, d: t.combine([(Fraction(k["value"]), a[0])]),
    "add_scalar": lambda t, a, k, d: t.combine(
        [(ONE, a[0]), (Fraction(k["value"]), t.ones(t.shape(a[0])))]
    ),
    "add": lambda t, a, k, d: t.combine([(ONE, a[0]), (ONE, a[1])]),
    "sub": lambda t, a, k, d: t.combine([(ONE, a[0]), (-ONE, a[1])]),
    "mul": lambda t, a, k, d: t.product(a),
    "div": lambda t, a, k, d: t.product([a[0], t.reciprocal(a[1])]),
    "reciprocal": lambda t, a, k, d: t.reciprocal(a[0]),
    "pow": _pow,
    "cast": _cast,
    "where": _where,
    "maximum": _sorted_map("maximum"),
    "minimum": _sorted_map("minimum"),
    "eq": _sorted_map("eq"),
    "ne": _sorted_map("ne"),
    "logical_and": _sorted_map("logical_and"),
    "logical_or": _sorted_map("logical_or"),
    "gt": _flipped("lt"),
    "ge": _flipped("le"),
    "mm": _matmul,
    "bmm": _matmul,
    "sum": lambda t, a, k, d: t.reduce("sum", a[0], tuple(k["dims"]), k["keepdim"]),
    "amax": lambda t, a, k, d: t.reduce("amax", a[0], tuple(k["dims"]), k["keepdim"]),
    "reshape": lambda t, a, k, d: t.reshape(a[0], tuple(k["shape"])),
    "permute": lambda t, a, k, d: t.permute(a[0], tuple(k["dims"])),
    "expand": lambda t, a, k, d: t.expand(a[0], tuple(k["shape"])),
    "slice": _slice,
    "concat": _concat,
    "pad": _pad,
    "flip": _flip,
    "take": _take,
    "take_along": _take_along,
    "index_add": _index_add,
    "put_along": _put_along,
    "full": lambda t, a, k, d: t.full(tuple(k["shape"]), Fraction(k["value"])),
    "iota": _iota,
    **rowterms.BUILD,
}
