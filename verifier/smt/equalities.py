"""Equalities of terms that a proof rests on: shown by Z3, and tried on numbers.

That an op on terms is some term, and that laws or keys take one term to another, is told by code
that prover and checker share. Each is an obligation of Z3 (`pointwise.py`). Before it is asked,
both sides are computed, so that what is wrong is found although Z3 may not know enough to say so.
What they are made of are arbitrary numbers first. Where the sides differ then, it is opened, one
level after another, down to inputs.
"""

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np

from shardproof.verifier.domains.base import Array
from shardproof.verifier.domains.floats import Floats
from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.kernel.ops.map import broadcast
from shardproof.verifier.kernel.program.registry import Site
from shardproof.verifier.kernel.program.types import FLOATS, Mesh, TensorType
from shardproof.verifier.smt.values import (
    FREE,
    PLACES,
    Entries,
    FractionError,
    Numbers,
    Whole,
    cone,
    named,
    scaled,
)
from shardproof.verifier.terms import Ref, Term, Terms
from shardproof.verifier.terms.defined import uses_all
from shardproof.verifier.terms.refs import Shape
from shardproof.verifier.terms.told import Call, Told

FIRST, DRAWS, SEEDS = 3, 8, 32
"""Draws of numbers: where the first show nothing no others are made, and one may be rounding. Those
that leave a whole number in fractions, as half of an odd count, are no draws."""
COMPARED = 64
"""Entries of two keys that are compared over the first draws, at least: few of them may tell."""
LEVELS = 12
DEPTH = 4
"""How deep two ops on terms must look alike to be one form; other equalities as far as they go."""
_D = Floats()


How = Literal["definition", "shown", "numbers", "large"]
"""On what an equality rests: the term is the op itself; Z3 shows it; numbers alone say it; neither,
as it is too large for them."""
RESTS: tuple[How, ...] = get_args(How)


@dataclass(frozen=True, slots=True)
class Tried:
    """What is known of the equalities of terms of one proof."""

    counts: Mapping[How, int] = field(default_factory=dict[How, int])
    """Of forms."""
    wrong: str = ""
    """What refutes an equality, and which."""

    @property
    def forms(self) -> int:
        return sum(self.counts.values())

    def __str__(self) -> str:
        told = [f"{self.counts[how]} {_SAID[how]}" for how in RESTS if self.counts.get(how)]
        return f"{self.forms} equal terms" + (f": {', '.join(told)}" if told else "")


_SAID: dict[How, str] = {
    "definition": "by definition",
    "shown": "shown by Z3",
    "numbers": "on numbers alone",
    "large": "too large to try",
}


def equalities(tables: Iterable[Told], known: dict[str, How] | None = None) -> Tried:
    """Every form of equality in the tables, up to the first that is wrong.

    A form that is `known` is not asked about again; what is found is added.
    """
    known, found = {} if known is None else known, dict[object, How]()
    for told in tables:
        kinds = _kinds(told)
        for call, of_ranks in told.calls.items():
            wrong = _lost(told, call) if of_ranks else ""
            form, seen = _form(told, call, kinds)
            if not wrong and form not in found:
                key = hashlib.sha256(repr(form).encode()).hexdigest()[:32]
                if key not in known:
                    how, wrong = _rests(told, call, kinds, seen)
                    if not wrong:
                        known[key] = how
                found[form] = known.get(key, "numbers")
            if wrong:
                return Tried(Counter(found.values()), wrong)
    return Tried(Counter(found.values()))


def _rests(told: Told, call: Call, kinds: Mapping[int, str], seen: Set[int]) -> tuple[How, str]:
    """On what an equality rests, and what refutes it.

    Z3 is told of the terms that are `seen` in the form, and of no others: what it shows holds of
    all equalities of the form.
    """
    from shardproof.verifier.smt.pointwise import ask

    own = {r.id: k for r, k in zip(call.args, call.dtypes, strict=False)}
    wrong = _differs(told, call, {**kinds, **own})
    if wrong:
        return "numbers", f"numbers refute an equality: {wrong}"
    if _plain(told[call.made.id], call):
        return "definition", ""
    told_of = {id: k for id, k in kinds.items() if id not in seen or told[id].op in FREE}
    answer = ask(told, call, _shape(told, call), {**told_of, **own}, seen)
    if answer == "refuted":
        sides = f"{call.op} of {[_said(told[a.id]) for a in call.args]}"
        return "numbers", f"Z3 refutes an equality: {sides} is not {_said(told[call.made.id])}"
    return "shown" if answer == "shown" else "numbers" if wrong == "" else "large", ""


def _kinds(told: Told) -> dict[int, str]:
    """Terms by the dtype that they are read in; the narrowest, where a cast takes one to itself."""
    found: dict[int, str] = {}
    for call in told.calls:
        for ref, kind in zip(call.args, call.dtypes, strict=False):
            found[ref.id] = max(kind, found.get(ref.id, kind), key=_narrow)
    return found


def _narrow(dtype: str) -> int:
    return 0 if dtype in FLOATS else 2 if dtype == "bool" else 1


def _form(terms: Terms, call: Call, kinds: Mapping[int, str]) -> tuple[object, Set[int]]:
    """What an equality says, the terms below named by the order in which they come up; and those
    terms of which it says what they are made of."""
    refs = (*call.args, call.made)
    if not call.op:
        return _whole_form(terms, refs, kinds), cone(terms, (r.id for r in refs))
    names: dict[int, int] = {}
    seen = _near(terms, [a.id for a in call.args], call.made.id)

    def of(ref: Ref) -> object:
        name = names.get(ref.id)
        if name is not None:
            return ref.coef, name
        name = names[ref.id] = len(names)
        term = terms[ref.id]
        if ref.id not in seen:
            return ref.coef, name, term.shape, kinds.get(ref.id)
        return ref.coef, name, term.op, term.attrs, term.shape, tuple(map(of, term.args))

    return (call.op, call.attrs, call.dtypes, *map(of, refs)), seen


def _near(terms: Terms, args: Iterable[int], made: int) -> set[int]:
    """Terms at most `DEPTH` below, and constants."""
    found, level = set[int](), {made}
    for _ in range(DEPTH + 1):
        found |= level
        below = {a.id for id in level for a in terms[id].args}
        level = below | set(args) if made in level else below
    found |= {id for id in level if not terms[id].args}
    return {id for id in found if terms[id].op not in FREE}


def _whole_form(terms: Terms, refs: Sequence[Ref], kinds: Mapping[int, str]) -> object:
    """Terms with all that they are made of."""
    below = sorted(cone(terms, (r.id for r in refs)))
    names = {id: name for name, id in enumerate(below)}

    def of(given: Iterable[Ref]) -> object:
        return tuple((r.coef, names[r.id]) for r in given)

    whole = [(id, terms[id]) for id in below]
    return of(refs), tuple((t.op, t.attrs, t.shape, of(t.args), kinds.get(id)) for id, t in whole)


def _lost(terms: Terms, call: Call) -> str:
    """Which operand that may have no value is gone from what an op of ranks is said to be."""
    made, op = terms[call.made.id], call.op
    if 0 in made.shape or not op:
        return ""
    known = None if op in ("combine", "matmul") else lookup(op)
    index = known.traits.index if known and known.kind == "index" else None
    entire = not known or known.traits.strict or (known.kind == "map" and op != "where")
    used = {0} if op == "where" else {index} if not entire else range(len(call.args))
    left = terms.open(call.made.id)
    kept = cone(terms, [call.made.id]) if call.made.id in (terms.needed or ()) else set[int]()
    for i, arg in enumerate(call.args):
        if i not in used or arg.id in kept or terms.open(arg.id) <= left:
            continue
        whole = _used(terms, call.made.id)
        if arg.id not in whole and not terms.open(arg.id) <= left | whole:
            return f"{op} of {_said(terms[arg.id])}, which may have no value, is {_said(made)}"
    return ""


def _used(terms: Terms, id: int) -> set[int]:
    """The terms below one of which it needs every entry."""
    todo, found = [id], set[int]()
    while todo:
        term = terms[todo.pop()]
        if uses_all(term) and math.prod(term.shape):
            todo += {a.id for a in term.args} - found
            found |= {a.id for a in term.args}
    return found


def _differs(terms: Terms, call: Call, kinds: Mapping[int, str]) -> str | None:
    """How the sides of an equality differ, empty where they do not; None where it is too large."""
    given = [_said(terms[a.id]) for a in call.args]
    if not call.op:
        shared = cone(terms, [call.args[0].id]) & cone(terms, [call.made.id])
        wrong = _wrong(terms, call, kinds, set())
        if wrong is None and _wrong(terms, call, kinds, shared) == "":
            return ""
        return wrong and f"a law of {given}: {wrong}"
    closed, below = {a.id for a in call.args}, cone(terms, [call.made.id])
    for _ in range(LEVELS):
        wrong = _wrong(terms, call, kinds, closed)
        if wrong == "":
            return ""
        known = {i for i in closed if terms[i].op in FREE}
        opened = closed - known - below or closed - known
        if not opened:
            return wrong and f"{call.op} of {given}: {wrong}"
        closed = closed - opened | {a.id for i in opened for a in terms[i].args}
    return None


def _wrong(terms: Terms, call: Call, kinds: Mapping[int, str], closed: set[int]) -> str | None:
    """How the sides differ on draws of numbers, empty where they do not; None where it is too
    large, or no draw is one."""
    wrong, tried = list[str](), 0
    first = FIRST
    if not call.op:
        most = max(math.prod(terms[i].shape) for i in cone(terms, [call.args[0].id, call.made.id]))
        first = min(SEEDS, max(FIRST, COMPARED // max(most, 1)))
    for seed in range(SEEDS):
        try:
            why = _tried(terms, call, kinds, closed, seed)
        except FractionError:
            continue
        if why is None:
            return None
        tried += 1
        wrong += [why] if why else []
        if len(wrong) > 1 or tried == max(DRAWS, first) or (not wrong and tried == first):
            break
    if not tried:
        return None
    return wrong[0] if len(wrong) > 1 else ""


def _said(term: Term) -> str:
    return f"{term.op}{list(term.shape)}"


def _tried(
    terms: Terms, call: Call, kinds: Mapping[int, str], closed: set[int], seed: int
) -> str | None:
    made = terms[call.made.id]
    with np.errstate(all="ignore"):
        with suppress(OverflowError):
            return _compared(call, Whole(terms, kinds, closed, seed), "entry")
        if _plain(made, call):
            return ""
        shape = _shape(terms, call)
        if made.shape != shape:
            return f"shape {list(made.shape)}, expected {list(shape)}"
        if 0 in shape:
            return ""
        for count in PLACES:
            with suppress(OverflowError):
                return _compared(call, Entries(terms, kinds, closed, seed, shape, count), "place")
    return None


def _compared(call: Call, numbers: Numbers, entry: str) -> str:
    """How the sides differ, empty where they do not. Raises OverflowError."""
    got, want = _D.lift(numbers.given(call.made)), _D.lift(np.asarray(_wanted(call, numbers)))
    if want.shape != got.shape:
        return f"shape {list(got.shape)}, expected {list(want.shape)}"
    told = np.isfinite(want)
    if np.allclose(got[told], want[told], rtol=1e-7, atol=1e-9):
        return ""
    at = tuple(int(i) for i in np.argwhere(told & ~np.isclose(got, want, rtol=1e-7, atol=1e-9))[0])
    return f"{entry} {list(at)} is {got[at]:.6g}, expected {want[at]:.6g}"


def _wanted(call: Call, numbers: Numbers) -> Array:
    """What the op computes, or the operand itself."""
    attrs = dict(call.attrs)
    if call.op == "combine":
        parts = zip(call.args, attrs["weights"], strict=True)
        return sum((scaled(numbers.given(a), w) for a, w in parts), np.zeros(()))
    if call.op:
        dtypes = call.dtypes or ("f32",) * len(call.args)
        return numbers.applied(call.op, call.args, dtypes, attrs)
    return numbers.given(call.args[0])


def _plain(made: Term, call: Call) -> bool:
    """Whether the term is the op itself, of the same operands."""
    op = "matmul" if call.op in ("mm", "bmm") else call.op
    if made.op != op or call.made.coef != 1 or made.args != call.args or made.op == "cast":
        return False
    return op == "matmul" or _filled(call.op, named(made)) == _filled(call.op, dict(call.attrs))


def _filled(op: str, attrs: dict[str, object]) -> object:
    return lookup(op).with_defaults(attrs)


def _shape(terms: Terms, call: Call) -> Shape:
    """The shape of what an op makes of its operands."""
    given = [terms.shape(a) for a in call.args]
    if call.op == "combine":
        return broadcast(*given)
    if not call.op:
        return given[0]
    dtypes = call.dtypes or ("f32",) * len(given)
    types = tuple(TensorType(s, t) for s, t in zip(given, dtypes, strict=True))
    op = lookup(call.op)
    (made,) = op.types(Site(call.op, types, op.with_defaults(dict(call.attrs)), Mesh(())))
    return made.shape
