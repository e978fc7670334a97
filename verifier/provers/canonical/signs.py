"""What is known of the sign of expressions, and laws that need it.

    exp(n log P + E)            = P^n exp(E)              where P > 0
    1 / (A + B / P)             = P / (A P + B)           where P > 0
    log(A + B / P)              = log(A P + B) - log P    where P > 0 and A P + B > 0
    P (1/P)                     = 1                       where P > 0
    M (1/Q) (1/P)               = (1/Q - 1/P) / c         where P = Q + c M, and P, Q > 0

Without the sign the two sides are not defined at the same places.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import TYPE_CHECKING

from shardproof.verifier.kernel.program.registry import traits
from shardproof.verifier.provers.canonical.affine import INDICATORS, decided
from shardproof.verifier.provers.canonical.form import Body, Factor, Mono, Poly, Space, reads

if TYPE_CHECKING:
    from shardproof.verifier.provers.canonical.sums import Sums


def positive(space: Space, poly: Poly) -> bool:
    """Whether an expression is seen to be above 0 everywhere."""
    kinds = [_sign(space, c, m) for c, m in poly]
    return all(kind is not None for kind in kinds) and 1 in kinds


def _sign(space: Space, coef: Fraction, mono: Mono) -> int | None:
    """1 where a term is above 0, 0 where it is not below, None where that is not seen."""
    if coef < 0:
        return None
    doubtful = list[Factor]()
    strict = all(v in mono.bound for v, _, _ in mono.ranges)
    squares: dict[Factor, int] = {}
    for f in mono.factors:
        known = traits(f.head[0])
        if (known.sign == 1 and not known.needs) or (
            f.head[0] == "reciprocal" and positive(space, f.args[0].poly)
        ):
            continue
        if f.head[0] in INDICATORS:
            doubtful.append(f)
        elif known.sign is not None:
            strict = False
        else:
            squares[f] = squares.get(f, 0) + 1
    if any(power % 2 for power in squares.values()):
        return None
    bound = set(mono.bound)
    if any(reads(space, Mono((f,))) & bound for f in squares):
        strict = False
    return int(strict and not squares and _somewhere(space, mono, doubtful))


def _somewhere(space: Space, mono: Mono, doubtful: Iterable[Factor]) -> bool:
    """Whether the comparisons of a term hold at the first or the last entry of its sum."""
    doubtful = list(doubtful)
    if any(f.head[0] != "below" for f in doubtful):
        return False
    limits = {v: (lo, hi) for v, lo, hi in mono.ranges if v in mono.bound}
    for end in (0, 1):
        at = {v: limits.get(v, (0, space.extents[v])) for v in mono.bound}
        at = {v: (lo, lo + 1) if end == 0 else (hi - 1, hi) for v, (lo, hi) in at.items()}
        if all(decided(space, f, at).value == 1 for f in doubtful):
            return True
    return False


def risky(space: Space, mono: Mono) -> bool:
    """Whether a term has a function that may have no finite value somewhere."""
    for f in mono.factors:
        for body in f.args:
            if traits(f.head[0]).needs and not positive(space, body.poly):
                return True
            if any(risky(space, m) for _, m in body.poly):
                return True
    return False


def exponential(sums: Sums, value: Poly, inverse: Callable[[Poly], Poly]) -> Poly | None:
    """`exp` of an expression with logarithms in it, as powers of what they are of."""
    rest, powers = list[tuple[Fraction, Mono]](), list[tuple[int, Poly]]()
    for coef, mono in value:
        log = mono.factors[0] if len(mono.factors) == 1 else None
        plain = log is not None and log.head == ("log",) and not mono.bound and not mono.ranges
        if not plain or coef.denominator != 1 or abs(coef) > MAX_POWER:
            rest.append((coef, mono))
            continue
        assert log is not None
        if not positive(sums.space, log.args[0].poly):
            rest.append((coef, mono))
            continue
        powers.append((int(coef), log.args[0].poly))
    if not powers:
        return None
    out = (
        sums.of(Factor(("exp",), (), (Body(tuple(rest)),))) if rest else sums.constant(Fraction(1))
    )
    for power, base in powers:
        factor = base if power > 0 else inverse(base)
        for _ in range(abs(power)):
            out = sums.multiply(out, factor)
    return out


MAX_POWER = 3


def denominators(sums: Sums, poly: Poly) -> list[Poly]:
    """The arguments of reciprocals in an expression, those above 0 that no sum is over."""
    found: dict[str, Poly] = {}
    for _, mono in poly:
        for f in mono.factors:
            if f.head != ("reciprocal",) or reads(sums.space, Mono((f,))) & set(mono.bound):
                continue
            under = f.args[0].poly
            if len(under) == 1 and under[0][1].bound and positive(sums.space, under):
                found.setdefault(sums.writer.factor(f, {}, 0), under)
    return list(found.values())


def cancelled(sums: Sums, mono: Mono) -> Poly | None:
    """A term with a reciprocal less, by the laws above; None where none applies.

    Of a sum over rows, each with a reciprocal of its own, the terms of one row are looked at.
    """
    rows = {
        frozenset(reads(sums.space, Mono((f,))) & set(mono.bound))
        for f in mono.factors
        if f.head == ("reciprocal",)
    }
    for names in sorted(rows, key=sorted):
        bound = tuple(v for v in mono.bound if v not in names)
        kept = tuple(r for r in mono.ranges if r[0] not in names)
        made = _cancelled(sums, Mono(mono.factors, bound, kept))
        if made is not None:
            rest = tuple(r for r in mono.ranges if r[0] in names)
            outer = tuple(v for v in mono.bound if v in names)
            return tuple(
                (c, Mono(m.factors, (*m.bound, *outer), tuple(sorted((*m.ranges, *rest)))))
                for c, m in made
            )
    return None


def _cancelled(sums: Sums, mono: Mono) -> Poly | None:
    inverses = [
        (f, f.args[0].poly)
        for f in mono.factors
        if f.head == ("reciprocal",)
        and not (reads(sums.space, Mono((f,))) & set(mono.bound))
        and positive(sums.space, f.args[0].poly)
    ]
    if not inverses:
        return None
    parts = sums.components(mono)
    texts = [sums.writer.mono(p, {}, 0) for p in parts]

    def without(at: int | None, gone: Iterable[Factor]) -> Poly:
        """The product of the other components, less some reciprocals."""
        left = list(gone)
        outer = tuple(r for r in mono.ranges if r[0] not in mono.bound)
        out: Poly = ((Fraction(1), Mono((), (), outer)),)
        for k, part in enumerate(parts):
            if k != at:
                kept = list[Factor]()
                for f in part.factors:
                    if f in left:
                        left.remove(f)
                    else:
                        kept.append(f)
                out = sums.multiply(
                    out, ((Fraction(1), Mono(tuple(kept), part.bound, part.ranges)),)
                )
        return out

    for factor, under in inverses:
        if len(under) == 1:
            found = _like(sums, under[0][1], texts)
            if found is not None:
                return sums.scale(without(found, [factor]), 1 / under[0][0])
    for p, whole in inverses:
        for q, part in inverses:
            if p is q:
                continue
            rest = sums.add([whole, sums.scale(part, Fraction(-1))])
            if len(rest) != 1:
                continue
            found = _like(sums, rest[0][1], texts)
            if found is not None:
                by = 1 / rest[0][0]
                a, b = without(found, [p]), without(found, [q])
                return sums.scale(sums.add([a, sums.scale(b, Fraction(-1))]), by)
    return None


def _like(sums: Sums, mono: Mono, texts: list[str]) -> int | None:
    if not mono.bound:
        return None
    text = sums.writer.mono(mono, {}, 0)
    return texts.index(text) if text in texts else None
