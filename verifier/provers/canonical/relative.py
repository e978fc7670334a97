"""Equality of terms in which values of the one-device program stand for themselves.

An identity that holds of any values holds of these. So two terms deep in a program are compared by
the few ops in which they differ.
"""

from __future__ import annotations

from collections.abc import Container

from shardproof.verifier.kernel.program.registry import ONE
from shardproof.verifier.provers.canonical.keys import Keys
from shardproof.verifier.terms import Ref, Terms

MAX_WRITTEN = 20_000
"""Factors that are written for one comparison."""
MAX_TERMS = 200
"""Terms that are opened for one."""
MOVES = frozenset(("reshape", "permute", "expand", "slice", "ones"))
"""Opened in known values too: normal forms put them together differently."""
MORE = tuple(map(frozenset[str], ((), ("prod",), ("lin",), ("lin", "prod", "sum"))))
"""Likewise, each opened only where terms are not seen to be equal without."""


def equal_over_known(terms: Terms, known: Container[int], a: Ref, b: Ref) -> bool:
    """Whether two terms are one function of the known values that they are made of, and have a
    value alike. False where that is not seen."""
    if terms.shape(a) != terms.shape(b) or terms.loose(a.id) or terms.loose(b.id):
        return False
    tried = set[frozenset[int]]()
    for more in MORE:
        writing = _Writing(terms, known, MOVES | more)
        ours = [writing.top(ref) for ref in (a, b)]
        stood = frozenset(writing.stood)
        if stood not in tried and writing.same(*ours):
            return True
        tried.add(stood)
    return False


class _Writing:
    """Terms of one table written in another, known ones as variables."""

    def __init__(self, terms: Terms, known: Container[int], opened: Container[str]) -> None:
        self.terms, self.known, self.opened = terms, known, opened
        self.made: dict[int, Ref] = {}
        self.stood: list[int] = []
        """Terms that are variables: what is written depends on nothing else."""
        self.table = Terms()

    def same(self, a: Ref, b: Ref) -> bool:
        """Whether two terms of the other table are equal."""
        if len(self.made) > MAX_TERMS:
            return False
        keys = Keys(self.table)
        keys.left = MAX_WRITTEN
        return keys.same(a, b)

    def top(self, ref: Ref) -> Ref:
        """A term that is compared: what it is a part of, in another order, is opened."""
        id = ref.id
        while self.terms[id].op in MOVES and self.terms[id].args:
            id = self.terms[id].args[0].id
        if id not in self.made:
            self.made[id] = self._open(id)
        return self._of(ref)

    def _of(self, ref: Ref) -> Ref:
        if ref.id not in self.made:
            stands = ref.id in self.known and self.terms[ref.id].op not in self.opened
            if stands or len(self.made) > MAX_TERMS:
                made = self.table.var(str(ref.id), self.terms[ref.id].shape)
                self.stood.append(ref.id)
            else:
                made = self._open(ref.id)
            self.made[ref.id] = made
        made = self.made[ref.id]
        return made if ref.coef is ONE else Ref(ref.coef * made.coef, made.id)

    def _open(self, id: int) -> Ref:
        term = self.terms[id]
        return self.table.intern(term.op, [self._of(a) for a in term.args], term.attrs, term.shape)
