"""Whether a function may be run one store at a time, each over all its iterations at once.

It may, where no two iterations that run at once touch one element (a race), no plain store writes
an element twice, and no iteration needs what a later store left there in an earlier one. Each of
these is a question over bounded integers, put to Z3; an answer that is not `no` is an error.
"""

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from shardproof.synthesis.frontends.tir.errors import fail
from shardproof.synthesis.frontends.tir.leaves import Flat, Leaf
from shardproof.synthesis.frontends.tir.private import common
from shardproof.synthesis.frontends.tir.tree import (
    COMPARISONS,
    Apply,
    Expr,
    Load,
    Place,
    TIRVar,
    as_int,
    loads,
    substitute,
)
from shardproof.synthesis.frontends.tir.updates import reads_of, update_of
from shardproof.verifier.smt import solver as smt

Term = Any


class Opaque(Exception):  # noqa: N818  (an answer, not a failure)
    """Not arithmetic over loop variables."""


def term(expr: Expr, name: Any) -> Term:
    """An integer or truth expression for Z3; `name` gives the Z3 name of a variable."""
    known = as_int(expr)
    if known is not None:
        return smt.whole(known)
    if isinstance(expr, TIRVar):
        return smt.integer(name(expr.name))
    if not isinstance(expr, Apply):
        raise Opaque
    if expr.op == "cast" and str(expr.attr).startswith("i"):
        return term(expr.args[0], name)
    args = [term(a, name) for a in expr.args]
    if expr.op not in _TERMS:
        raise Opaque
    return _TERMS[expr.op](*args)


def _quotient(a: Term, b: Term) -> Term:
    return a / b  # of Z3 integers: the floor, for a divisor above 0


def _larger(a: Term, b: Term) -> Term:
    return smt.when(a >= b, a, b)


def _smaller(a: Term, b: Term) -> Term:
    return smt.when(a <= b, a, b)


_TERMS: dict[str, Callable[..., Term]] = {
    **{n: getattr(operator, n) for n in ("add", "sub", "mul", "neg", *COMPARISONS)},
    "floordiv": _quotient,
    "floormod": operator.mod,
    "maximum": _larger,
    "minimum": _smaller,
    "logical_and": smt.conj,
    "logical_or": smt.disj,
    "logical_not": smt.negation,
}


@dataclass(frozen=True)
class _Access:
    buffer: str
    indices: tuple[Expr, ...]
    """Over the loops; an index that is not integer arithmetic may be anything."""
    write: bool
    place: Place


def _accesses(leaf: Leaf) -> Iterator[_Access]:
    def raw(indices: Sequence[Expr]) -> tuple[Expr, ...]:
        return tuple(substitute(i, leaf.raw) for i in indices)

    s = leaf.store
    yield _Access(s.buffer, raw(s.indices), True, s.place)
    for x in reads_of(leaf):
        yield _Access(x.buffer, raw(x.indices), False, x.place)


def _first(name: str) -> str:
    return f"{name}.p"


def _second(name: str) -> str:
    return f"{name}.q"


def _domain(leaf: Leaf, name: Any) -> list[Term]:
    out: list[Term] = []
    for loop in leaf.loops:
        var = smt.integer(name(loop.name))
        out += [var >= 0, var < loop.extent]
    return out + [term(g, name) for g in leaf.guards]


def _same(a: _Access, b: _Access) -> Term:
    """Both touch one element."""
    facts: list[Term] = [smt.whole(0) == smt.whole(0)]
    for x, y in zip(a.indices, b.indices, strict=True):
        if loads(x) or loads(y):
            continue
        try:
            facts.append(term(x, _first) == term(y, _second))
        except Opaque:
            continue
    return smt.conj(*facts)


def check_order(flat: Flat) -> None:
    """Raise TirError unless the stores may run one after the other, each over all iterations.

    Raises:
        TirError: a race, an element written twice, a dependence that a loop carries.
    """
    leaves = flat.leaves
    for b, late in enumerate(leaves):
        for a in range(b + 1):
            early = leaves[a]
            shared = [lp for lp in common(early.loops, late.loops) if lp.extent > 1]
            if not shared:
                continue
            for y in _accesses(late):
                for x in _accesses(early):
                    if x.buffer == y.buffer and (x.write or y.write):
                        _Pair(flat, early, late, a == b).check(x, y)


class _Pair:
    """Two leaves (or one twice): `late` at `p`, `early` at `q`."""

    def __init__(self, flat: Flat, early: Leaf, late: Leaf, same: bool) -> None:
        self.flat, self.early, self.late, self.same = flat, early, late, same
        self.levels = [lp for lp in common(early.loops, late.loops) if lp.extent > 1]
        self.premises = [*_domain(late, _first), *_domain(early, _second)]

    def vars(self, name: str) -> tuple[Term, Term]:
        return smt.integer(_first(name)), smt.integer(_second(name))

    def check(self, x: _Access, y: _Access) -> None:
        p_q = [self.vars(lp.name) for lp in self.levels]
        solver = smt.Solver()
        solver.assume(*self.premises, _same(y, x))
        apart = smt.disj(*(p != q for p, q in p_q))
        if self.ask(solver, apart) is None:
            return
        equal: list[Term] = []
        earlier: list[Term] = []
        for loop, (p, q) in zip(self.levels, p_q, strict=True):
            if loop.kind == "parallel":
                model = self.ask(solver, smt.conj(*equal, p != q))
                if model is not None:
                    self.race(x, y, f"parallel loop {loop.name}", model)
            earlier.append(smt.conj(*equal, p < q))
            equal.append(p == q)
        if self.same and x.write and y.write:
            self.written_twice(solver, x, y)
            return
        both = (update_of(self.early.store), update_of(self.late.store))
        folds = {u.fold if u else None for u in both}
        if x.write and y.write and not self.same and len(folds) == 1 and None not in folds:
            return
        goal = apart if self.same else smt.disj(*earlier)
        model = self.ask(solver, goal)
        if model is not None:
            fail(
                y.place,
                f"{y.buffer} carries a value from one iteration to another",
                expected="iterations that touch elements of their own, or a reduction",
                got=f"the element of line {x.place.line or '?'} again, {self.shown(model)}",
            )

    def written_twice(self, solver: smt.Solver, x: _Access, y: _Access) -> None:
        """One store, one element, two iterations: a sum of parts, or a mistake."""
        for item in self.late.iters:
            if item.kind == "S" and item.extent > 1:
                at = self.late.raw[item.name]
                differ = term(at, _first) != term(at, _second)
                model = self.ask(solver, differ)
                if model is not None:
                    self.race(x, y, f"spatial axis {item.name}", model)
        if update_of(self.late.store) is None:
            pairs = [self.vars(lp.name) for lp in self.levels]
            model = self.ask(solver, smt.disj(*(p != q for p, q in pairs)))
            fail(
                y.place,
                f"an element of {y.buffer} is written by more than one iteration",
                expected="one write, or an update such as C[i] = C[i] + x",
                got=self.shown(model or ()),
            )

    def race(self, x: _Access, y: _Access, over: str, model: tuple[tuple[str, str], ...]) -> None:
        fail(
            y.place,
            f"a race on {y.buffer} over the {over}",
            expected="a reduce axis (serial loop), or an element for each iteration",
            got=f"one element touched twice, {self.shown(model)}",
        )

    def ask(self, solver: smt.Solver, goal: Term) -> tuple[tuple[str, str], ...] | None:
        """Values for which `goal` holds; None where there are none."""
        match solver.prove(smt.negation(goal)):
            case smt.Valid():
                return None
            case smt.Invalid(model=model):
                return model
            case smt.Undecided(reason=reason):
                return fail(
                    self.late.store.place,
                    f"whether iterations touch {self.late.store.buffer} twice is not decided",
                    got=reason,
                    hint="use simpler indices or smaller extents",
                )

    def shown(self, model: tuple[tuple[str, str], ...]) -> str:
        values = dict(model)
        names = [lp.name for lp in self.levels]
        first = ", ".join(f"{n}={values.get(_second(n), '0')}" for n in names)
        then = ", ".join(f"{n}={values.get(_first(n), '0')}" for n in names)
        return f"at {first} and at {then}"


def holds(goal: Expr, premises: Sequence[Expr], extents: dict[str, int]) -> smt.Answer:
    """Whether a truth expression holds in the box of its variables, where the premises do."""
    facts: list[Term] = []
    for name, extent in extents.items():
        facts += [smt.integer(name) >= 0, smt.integer(name) < extent]
    for premise in premises:
        if isinstance(premise, Load) or loads(premise):
            continue
        try:
            facts.append(term(premise, str))
        except Opaque:
            continue
    return smt.prove(term(goal, str), facts)
