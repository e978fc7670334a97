"""Looks for axioms that take a difference of entries to 0."""

from collections.abc import Callable, Sequence, Set

from shardproof.verifier.domains.polynomials import ROOTS, Polynomials, Terms, without

MOST = 40
"""Axioms that are applied to one difference."""


def steps(
    bank: Polynomials, terms: Terms, allowed: Callable[[int], bool], places: Sequence[int]
) -> list[tuple[str, int]] | None:
    """Axioms by name, each with the place of its atom, the outermost first: what an axiom brings in
    is made of earlier atoms. None where they do not close the difference.

    Raises UndefinedError where the polynomials become too long.
    """
    found, done = list[tuple[str, int]](), set[int]()
    while terms:
        atom = _next(bank, terms, done)
        if atom is None or len(found) == MOST or not allowed(atom):
            return None
        done.add(atom)
        terms = without(bank, terms, atom)
        found.append((bank.atoms[atom][0], places.index(atom)))
    return found


def _next(bank: Polynomials, terms: Terms, done: Set[int]) -> int | None:
    open_ = {i for m in terms for i, _ in m if bank.atoms[i][0] in ROOTS} - done
    return max(open_, default=None)
