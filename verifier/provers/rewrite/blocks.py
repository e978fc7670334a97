"""What the laws build with: products, slices, sums of terms, and the table of laws itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from verifier.kernel.ops import lookup
from verifier.kernel.program.errors import IRError
from verifier.terms import ONE, Ref, Term, Terms

MAX_SUMMANDS = 64
Rewrite = Callable[[Terms, Term], Ref | None]


@dataclass(frozen=True)
class Law:
    """An equality of terms, read from left to right."""

    name: str
    says: str
    rewrite: Rewrite


LAWS: dict[str, Law] = {}


def law(name: str, says: str) -> Callable[[Rewrite], Rewrite]:
    def declare(rewrite: Rewrite) -> Rewrite:
        if name in LAWS:
            raise ValueError(f"law {name} is declared twice")
        LAWS[name] = Law(name, says, rewrite)
        return rewrite

    return declare


def scaled(ref: Ref, factor: Fraction) -> Ref:
    return Ref(ref.coef * factor, ref.id)


def matmul(t: Terms, a: Ref, b: Ref) -> Ref:
    """The product as it stands, rational factors outside."""
    shape = (*t.shape(a)[:-1], t.shape(b)[-1])
    coef = a.coef * b.coef
    if not coef:
        return t.full(shape, Fraction(0))
    return Ref(coef, t.intern("matmul", [Ref(ONE, a.id), Ref(ONE, b.id)], (), shape).id)


def cut(t: Terms, x: Ref, dim: int, start: int, stop: int) -> Ref:
    attrs = {"dim": dim, "start": start, "stop": stop, "step": 1}
    return t.apply("slice", [x], attrs, ["f32"])


def along_dim(t: Terms, x: Ref, rank: int, dim: int, start: int, stop: int, step: int) -> Ref:
    """The slice of an operand that belongs to a slice of the broadcast result of some rank."""
    at = dim - (rank - len(t.shape(x)))
    if at < 0 or t.shape(x)[at] == 1:
        return x
    return t.apply("slice", [x], {"dim": at, "start": start, "stop": stop, "step": step}, ["f32"])


def joined(t: Terms, parts: Sequence[Ref], dim: int) -> Ref:
    return t.apply("concat", list(parts), {"dim": dim}, ["f32"] * len(parts))


def entries(t: Terms, ref: Ref) -> list[Ref]:
    """Summands of the shape of the sum."""
    term = t[ref.id]
    if term.op == "expand":
        inner = entries(t, term.args[0])
        return [scaled(t.fit(e, term.shape), ref.coef) for e in inner]
    if term.op != "lin" or len(term.args) > MAX_SUMMANDS:
        return [ref]
    return [scaled(t.fit(Ref(ONE, e.id), term.shape), e.coef * ref.coef) for e in term.args]


def total(t: Terms, parts: Sequence[Ref]) -> Ref:
    return t.combine([(ONE, p) for p in parts])


def summed(t: Terms, x: Ref, dims: tuple[int, ...]) -> Ref:
    return t.reduce("sum", x, dims, False)


def is_constant(t: Terms, factor: Ref, dim: int, rank: int) -> bool:
    """Whether a factor is the same all along a dim."""
    shape = t.shape(factor)
    at = dim - (rank - len(shape))
    return at < 0 or shape[at] == 1


def elementwise(term: Term) -> bool:
    """Whether entries of a term are functions of the entries of its operands at one place."""
    if term.op in ("lin", "prod"):
        return True
    known = term.op not in ("var", "ones", "ramp", "matmul", "mask", "expand")
    return known and bool(term.args) and _kind(term.op) == "map"


def _kind(op: str) -> str:
    try:
        return lookup(op).kind
    except IRError:
        return ""


def rebuilt(t: Terms, term: Term, args: Sequence[Ref]) -> Ref:
    """A term of the same op on other operands of broadcastable shapes."""
    if term.op == "lin":
        return t.combine([(ONE, a) for a in args])
    if term.op == "prod":
        return t.product([a for a, k in zip(args, term.attrs, strict=True) for _ in range(k)])
    if term.op == "reciprocal":
        return t.reciprocal(args[0])
    if term.op == "where":
        return t.apply(term.op, list(args), {}, ["f32"] * len(args))
    return t.mapped(term.op, list(args), term.attrs)


def aligned(t: Terms, term: Term) -> list[Ref]:
    """Operands with as many dims as the term, extents of 1 kept."""
    rank = len(term.shape)
    return [t.reshape(a, (1,) * (rank - len(t.shape(a))) + t.shape(a)) for a in term.args]
