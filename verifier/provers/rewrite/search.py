"""Takes two terms to one by laws, and says how, so that another can follow every step."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from verifier.provers.rewrite.blocks import scaled
from verifier.provers.rewrite.laws import LAWS
from verifier.provers.rewrite.steps import OPERANDS, Step, with_operands
from verifier.terms import ONE, Ref, Terms


@dataclass(frozen=True, slots=True)
class Budget:
    """What one search may use."""

    steps: int = 20_000
    seconds: float = 5.0


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
                self.steps.append(Step(OPERANDS, id, after))
                return after
        for law in LAWS.values():
            after = law.rewrite(terms, term)
            if after is not None and after != Ref(ONE, id):
                self.steps.append(Step(law.name, id, after))
                return after
        return None
