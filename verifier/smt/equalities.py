"""Equalities of terms that a proof rests on, tried on numbers.

That an op on terms is some term, and that laws or keys take one term to another, is told by code
that prover and checker share. Here both sides are computed. What they are made of are arbitrary
numbers first. Where the sides differ then, it is opened, one level after another, down to inputs.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from verifier.domains.base import Array, is_index
from verifier.domains.floats import Floats
from verifier.kernel.ops import lookup
from verifier.kernel.program.registry import traits
from verifier.kernel.program.types import FLOATS
from verifier.ops import facets
from verifier.terms import Ref, Term, Terms
from verifier.terms.told import Call, Told

MOST = 1 << 16
"""Entries of one side of an equality that is tried, all that it is made of together."""
FIRST, DRAWS, SEEDS = 3, 8, 32
"""Draws of numbers: where the first show nothing no others are made, and one may be rounding. Those
that leave a whole number in fractions, as half of an odd count, are no draws."""
COMPARED = 64
"""Entries of two keys that are compared over the first draws, at least: few of them may tell."""
LEVELS = 12
DEPTH = 4
"""How deep two equalities must look alike to be one form."""
FREE = frozenset({"var", "addend", "scan"})
"""Terms of which nothing is known but their name."""
_D = Floats()


class _FractionError(ValueError):
    """A whole number that the numbers drawn make none."""


@dataclass(frozen=True, slots=True)
class Tried:
    """What numbers say of the equalities of terms of one proof."""

    forms: int = 0
    large: int = 0
    """Forms that are too large to be tried."""
    wrong: str = ""

    def __str__(self) -> str:
        left = f", {self.large} too large to be tried" if self.large else ""
        return f"{self.forms} forms of equal terms, on numbers{left}"


def equalities(tables: Iterable[Told]) -> Tried:
    """Every form of equality in the tables, up to the first that is wrong."""
    forms, large = set[object](), 0
    for told in tables:
        kinds = _kinds(told)
        for call in told.calls:
            form = _form(told, call)
            if form in forms:
                continue
            forms.add(form)
            own = {r.id: k for r, k in zip(call.args, call.dtypes, strict=False)}
            found = _differs(told, call, kinds | own)
            large += found is None
            if found:
                return Tried(len(forms), large, found)
    return Tried(len(forms), large)


def _kinds(told: Told) -> dict[int, str]:
    """Terms by the dtype that they are read in; the narrowest, where a cast takes one to itself."""
    found: dict[int, str] = {}
    for call in told.calls:
        for ref, kind in zip(call.args, call.dtypes, strict=False):
            found[ref.id] = max(kind, found.get(ref.id, kind), key=_narrow)
    return found


def _narrow(dtype: str) -> int:
    return 0 if dtype in FLOATS else 2 if dtype == "bool" else 1


def _form(terms: Terms, call: Call) -> object:
    """What an equality says, the terms below named by the order in which they come up."""
    names: dict[int, int] = {}

    def of(ref: Ref, depth: int) -> object:
        name = names.get(ref.id)
        if name is not None:
            return ref.coef, name
        name = names[ref.id] = len(names)
        term = terms[ref.id]
        if not depth or term.op in FREE:
            return ref.coef, name, term.shape
        inner = tuple(of(a, depth - 1) for a in term.args)
        return ref.coef, name, term.op, term.attrs, term.shape, inner

    given = tuple(of(a, DEPTH) for a in call.args)
    return call.op, call.attrs, call.dtypes, given, of(call.made, DEPTH + 1)


def _differs(terms: Terms, call: Call, kinds: Mapping[int, str]) -> str | None:
    """How the sides of an equality differ, empty where they do not; None where it is too large."""
    closed = {a.id for a in call.args} if call.op else set[int]()
    for _ in range(LEVELS):
        wrong = _wrong(terms, call, kinds, closed)
        if wrong is None:
            return None
        if len(wrong) < 2:
            return ""
        inner = {a.id for i in closed for a in terms[i].args if terms[i].op not in FREE}
        left = {i for i in closed if terms[i].op in FREE} | inner
        if left == closed:
            break
        closed = left
    else:
        return None
    return f"{call.op or 'a law'} of {[_said(terms[a.id]) for a in call.args]}: {wrong[0]}"


def _wrong(
    terms: Terms, call: Call, kinds: Mapping[int, str], closed: set[int]
) -> list[str] | None:
    """How the sides differ on draws of numbers; None where it is too large, or no draw is one."""
    wrong, tried = list[str](), 0
    entries = max(1, math.prod(terms.shape(call.made)))
    first = FIRST if call.op else min(SEEDS, max(FIRST, COMPARED // entries))
    for seed in range(SEEDS):
        try:
            why = _tried(terms, call, kinds, closed, seed)
        except _FractionError:
            continue
        if why is None:
            return None
        tried += 1
        wrong += [why] if why else []
        if len(wrong) > 1 or tried == max(DRAWS, first) or (not wrong and tried == first):
            break
    return wrong if tried else None


def _said(term: Term) -> str:
    return f"{term.op}{list(term.shape)}"


def _tried(
    terms: Terms, call: Call, kinds: Mapping[int, str], closed: set[int], seed: int
) -> str | None:
    numbers = Numbers(terms, kinds, closed, seed)
    try:
        with np.errstate(all="ignore"):
            given = [numbers.of(a) for a in call.args]
            got = _D.lift(numbers.of(call.made))
            if call.op == "combine":
                weights = dict(call.attrs)["weights"]
                want = sum(
                    (_scaled(a, w) for a, w in zip(given, weights, strict=True)), np.zeros(())
                )
            elif call.op:
                kind = call.dtypes or ("f32",) * len(given)
                read = [_as(a, k) for a, k in zip(given, kind, strict=True)]
                want = _meant(call.op, read, dict(call.attrs))
            else:
                (want,) = given
    except OverflowError:
        return None
    want = _D.lift(np.asarray(want))
    if want.shape != got.shape:
        return f"shape {list(got.shape)}, expected {list(want.shape)}"
    told = np.isfinite(want)
    if np.allclose(got[told], want[told], rtol=1e-7, atol=1e-9):
        return ""
    at = tuple(int(i) for i in np.argwhere(told & ~np.isclose(got, want, rtol=1e-7, atol=1e-9))[0])
    return f"entry {list(at)} is {got[at]:.6g}, expected {want[at]:.6g}"


def _scaled(a: Array, by: Fraction) -> Array:
    if by.denominator == 1 and a.dtype.kind == "i":
        return a * by.numerator
    return _D.lift(a) * float(by)


def _as(a: Array, dtype: str) -> Array:
    """Numbers as an operand of a dtype."""
    if dtype in FLOATS:
        return _D.lift(a)
    if dtype == "bool":
        return a != 0
    near = np.rint(a)
    if np.any(np.isfinite(a) & (abs(a - near) > 1e-6 * np.maximum(1, abs(near)))):
        raise _FractionError
    return near.astype(np.int64)


def _meant(op: str, args: Iterable[Array], attrs: Mapping[str, Any]) -> Array:
    known = lookup(op)
    return np.asarray(facets(op).meaning(_D, *args, **known.with_defaults(attrs)))


class Numbers:
    """The value of each term, where those that are closed, and inputs, have arbitrary ones.

    Raises OverflowError where that is too much work.
    """

    def __init__(self, terms: Terms, kinds: Mapping[int, str], closed: set[int], seed: int) -> None:
        self.terms, self.kinds, self.closed, self.seed = terms, kinds, closed, seed
        self.left = MOST
        self.known: dict[int, Array] = {}

    def of(self, ref: Ref) -> Array:
        todo = [ref.id]
        while todo:
            id = todo[-1]
            term = self.terms[id]
            free = id in self.closed or term.op in FREE
            missing = [] if free else [a.id for a in term.args if a.id not in self.known]
            if missing:
                todo += missing
                continue
            todo.pop()
            if id not in self.known:
                self.left -= max(
                    1, math.prod(term.shape), *map(self._size, () if free else term.args)
                )
                if self.left < 0:
                    raise OverflowError
                self.known[id] = self._drawn(id, term) if free else self._made(term)
        return _scaled(self.known[ref.id], ref.coef) if ref.coef != 1 else self.known[ref.id]

    def _size(self, ref: Ref) -> int:
        return math.prod(self.terms.shape(ref))

    def _drawn(self, id: int, term: Term) -> Array:
        rng = np.random.default_rng((self.seed, id))
        kind = self.kinds.get(id, "f32")
        if kind in FLOATS:
            return np.asarray(rng.standard_normal(term.shape))
        return (
            rng.integers(2, size=term.shape) == 1
            if kind == "bool"
            else rng.integers(-1, 5, term.shape)
        )

    def _made(self, term: Term) -> Array:
        """What a term means, from what it is made of."""
        op, shape, attrs = term.op, term.shape, term.attrs
        args = [self.of(a) for a in term.args]
        match op:
            case "ones":
                return np.ones(shape)
            case "ramp":
                return np.arange(shape[0])
            case "lin":
                return sum(map(_D.lift, args), np.zeros(()))
            case "prod":
                powers = [_D.lift(a) ** k for a, k in zip(args, attrs, strict=True)]
                return np.asarray(math.prod(powers, start=np.ones(())))
            case "nought":
                return np.asarray(_D.lift(args[0]) * 0)
            case "matmul":
                return np.matmul(*map(_D.lift, args))
            case "expand":
                return np.broadcast_to(args[0], shape)
            case "reshape":
                return args[0].reshape(shape)
            case "cast":
                whole = attrs[0] not in FLOATS and attrs[0] != "bool"
                return _as(np.trunc(args[0]) if whole else args[0], attrs[0])
            case _:
                index = traits(op).index
                read = [_as(a, "i64") if i == index else a for i, a in enumerate(args)]
                if op in ("sum", "amax"):
                    read = list(map(_D.lift, read))
                if op == "concat" and not all(map(is_index, read)):
                    read = list(map(_D.lift, read))
                return _meant(op, read, _named(term))


def _named(term: Term) -> dict[str, Any]:
    """The attributes of a term by name."""
    op, attrs, shape = term.op, term.attrs, term.shape
    if op == "index_add":
        return {"offset": attrs[0], "size": shape[0]}
    if op == "put_along":
        return {"dim": attrs[0], "offset": attrs[1], "size": shape[attrs[0]]}
    if op == "dropout_mask":
        names = ("p", "stream", "offset", "strides")
        return {"shape": shape, **dict(zip(names, attrs, strict=False))}
    if lookup(op).kind == "map" and attrs and isinstance(attrs[0], tuple):
        return dict(attrs)
    return dict(zip(lookup(op).attrs, attrs, strict=False))
