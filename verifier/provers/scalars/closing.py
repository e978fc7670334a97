"""Looks for axioms that take a difference of entries to 0."""

from __future__ import annotations

from collections.abc import Iterator

from shardproof.verifier.domains.axioms import DECIDED, ROOTS, Gap

MOST = 40
"""Axioms that are applied to one difference."""


def close(gap: Gap, _: str = "") -> list[tuple[str, int]] | None:
    """Axioms by name, each with the place of its atom, the outermost first: what an axiom brings in
    is made of earlier atoms. None where they do not close the difference.

    Raises UndefinedError where the polynomials become too long.
    """
    terms, found, done = gap.terms, list[tuple[str, int]](), set[int]()
    while terms:
        atoms = {i for m in terms for i, _ in m} - done
        step = max(((i, axiom) for i in atoms for axiom in _axioms(gap, i)), default=None)
        if step is None or len(found) == MOST:
            return None
        atom, axiom = step
        done.add(atom)
        terms = gap.applied(terms, axiom, atom)
        found.append((axiom, gap.atoms.index(atom)))
    return found


def _axioms(gap: Gap, atom: int) -> Iterator[str]:
    name, _ = gap.bank.atoms[atom]
    for axiom in (*DECIDED, *({name} & ROOTS.keys())):
        if gap.allowed(axiom, atom):
            yield axiom
