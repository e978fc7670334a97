"""Takes two terms to one by laws, and says how, so that another can follow every step."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from verifier.kernel.program.registry import REGISTRY
from verifier.provers.rewrite.blocks import elementwise, matmul, rebuilt, scaled
from verifier.provers.rewrite.laws import LAWS
from verifier.terms import ONE, Ref, Term, Terms

SLICE = ("dim", "start", "stop", "step")


@dataclass(frozen=True, slots=True)
class Budget:
    """What one search may use."""

    steps: int = 20_000
    seconds: float = 5.0


@dataclass(frozen=True, slots=True)
class Step:
    """One equality: `before`, a term, equals `after`."""

    law: str
    """The name of a law, or `operands`: the same op on operands that earlier steps made equal."""
    before: int
    after: Ref


@dataclass(frozen=True)
class Found:
    """Whether two terms were taken to one, and the steps. Reads as a truth value."""

    same: bool
    steps: tuple[Step, ...] = field(default=())
    reason: str = ""

    def __bool__(self) -> bool:
        return self.same


class _SpentError(Exception):
    pass


def same_terms(terms: Terms, a: Ref, b: Ref, budget: Budget | None = None) -> Found:
    """Whether laws take `a` and `b` to the same term. New terms are added to the table.

    A `Found` that is false says nothing: the laws may not reach, or the budget may be used up.
    """
    if a == b:
        return Found(True)
    if terms.shape(a) != terms.shape(b):
        return Found(False, reason="the shapes differ")
    search = _Search(terms, budget or Budget())
    try:
        left, right = search.final(a), search.final(b)
    except (_SpentError, RecursionError):
        return Found(False, reason="the budget is used up")
    if left != right and not left.coef == right.coef == 0:
        return Found(False, reason="the laws take the terms to different ones")
    return Found(True, tuple(search.steps))


class _Search:
    def __init__(self, terms: Terms, budget: Budget) -> None:
        self.terms, self.budget = terms, budget
        self.deadline = time.monotonic() + budget.seconds
        self.known: dict[int, Ref] = {}
        self.steps: list[Step] = []
        self._open: set[int] = set()

    def final(self, ref: Ref) -> Ref:
        found = self.known.get(ref.id)
        if found is None:
            found = self._final(ref.id)
        return scaled(found, ref.coef)

    def _final(self, id: int) -> Ref:
        if len(self.steps) > self.budget.steps or time.monotonic() > self.deadline:
            raise _SpentError
        if id in self._open:
            raise _SpentError
        self._open.add(id)
        after = self._once(id)
        out = Ref(ONE, id) if after is None else self.final(after)
        self._open.discard(id)
        self.known[id] = out
        return out

    def _once(self, id: int) -> Ref | None:
        """The next term on the way, or None at its end."""
        terms, term = self.terms, self.terms[id]
        args = [self.final(Ref(ONE, a.id)) for a in term.args]
        if any(new != Ref(ONE, old.id) for new, old in zip(args, term.args, strict=True)):
            after = with_operands(terms, term, args)
            if after != Ref(ONE, id):
                self.steps.append(Step("operands", id, after))
                return after
        for law in LAWS.values():
            after = law.rewrite(terms, term)
            if after is not None and after != Ref(ONE, id):
                self.steps.append(Step(law.name, id, after))
                return after
        return None


def with_operands(terms: Terms, term: Term, bare: Sequence[Ref]) -> Ref:
    """The term with its operands, taken without their factors, replaced by equal ones."""
    args = [scaled(new, old.coef) for new, old in zip(bare, term.args, strict=True)]
    op, attrs, shape = term.op, term.attrs, term.shape
    match op:
        case "matmul":
            return matmul(terms, args[0], args[1])
        case "expand":
            return terms.expand(args[0], shape)
        case "reshape":
            return terms.reshape(args[0], shape)
        case "permute":
            return terms.permute(args[0], attrs[0])
        case "sum" | "amax":
            return terms.reduce(op, args[0], attrs[0], False)
        case "slice":
            named: dict[str, Any] = dict(zip(SLICE, attrs, strict=True))
            return terms.apply("slice", args, named, ["f32"])
        case "concat":
            return terms.apply("concat", args, {"dim": attrs[0]}, ["f32"] * len(args))
        case _ if elementwise(term):
            return terms.fit(rebuilt(terms, term, args), shape)
        case _ if op in REGISTRY and frozenset({0}) in REGISTRY[op].linear:
            return terms.linear(op, args, attrs, shape)
        case _:
            return Ref(ONE, terms.intern(op, args, attrs, shape).id)


def replay(terms: Terms, a: Ref, b: Ref, steps: Sequence[Step]) -> str:
    """Empty where every step follows and they take `a` and `b` to one term; else what is wrong."""
    equal: dict[int, Ref] = {}

    def resolved(ref: Ref) -> Ref:
        seen: set[int] = set()
        while ref.id in equal and ref.id not in seen:
            seen.add(ref.id)
            ref = scaled(equal[ref.id], ref.coef)
        return ref

    for number, step in enumerate(steps):
        term = terms[step.before]
        if step.law == "operands":
            bare = [resolved(Ref(ONE, x.id)) for x in term.args]
            made = with_operands(terms, term, bare)
        elif step.law in LAWS:
            made = LAWS[step.law].rewrite(terms, term)
        else:
            return f"step {number}: no law {step.law}"
        if made != step.after:
            return f"step {number}: {step.law} gives {made}, not {step.after}"
        if terms.shape(step.after) != term.shape:
            return f"step {number}: {step.law} changes the shape"
        equal[step.before] = step.after
    left, right = resolved(a), resolved(b)
    same = left == right or left.coef == right.coef == Fraction(0)
    return "" if same else f"the steps lead to {left} and {right}"
