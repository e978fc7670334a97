"""Axioms that take a difference of entries to 0, as certificates name them: roots and inverses, and
comparisons whose outcome follows from what one device computes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from shardproof.verifier.domains.base import UndefinedError
from shardproof.verifier.domains.monomials import Exact, Mono, Terms, into, over, ratio, scaled

if TYPE_CHECKING:
    from shardproof.verifier.domains.polynomials import Polynomials

TRUTHS = ("above 0", "is 0")
"""Comparisons of a polynomial with 0, which are 1 or 0."""
ROOTS = {"reciprocal": (1, True), "rsqrt": (2, True), "sqrt": (2, False)}
"""Functions y of x with y^n x = 1, or y^n = x, wherever they have a value: n, and which."""


def without(bank: Polynomials, terms: Terms, atom: int) -> Terms:
    """By the axiom of a root y of x, a polynomial that is 0 where x is not 0, or y no inverse, only
    if the given one is: in it y has a power below n.

    Raises UndefinedError where the atom is none of `ROOTS`.
    """
    name, _ = bank.atoms[atom]
    if name not in ROOTS:
        raise UndefinedError(f"no axiom of {name}")
    (degree, inverse), of, out = ROOTS[name], bank.argument(atom), dict[Mono, Exact]()
    powers = {m: int(dict(m).get(atom, 0)) for m in terms}
    most = max((p // degree for p in powers.values()), default=0)
    for mono, power in powers.items():
        rest = tuple((i, p) for i, p in mono if i != atom)
        left: Mono = ((atom, power % degree),) if power % degree else ()
        part = {bank.joined(rest, left): terms[mono]}
        times = power // degree
        for _ in range(most - times if inverse else times):
            part = bank.times(part, of)
        for m, c in part.items():
            into(out, m, c)
    return out


DECIDED = {"holds": 1, "fails": 0}
"""What a comparison comes to, by the axiom that says so."""


def decided(terms: Terms, truth: int, value: int) -> Terms:
    """A polynomial where a comparison holds, or where it does not."""
    out: Terms = {}
    for mono, coef in terms.items():
        rest = tuple((i, p) for i, p in mono if i != truth)
        if value or rest == mono:
            into(out, rest, coef)
    return out


def guard(bank: Polynomials, truth: int, defined: Set[int]) -> int | None:
    """What a comparison with 0 comes to wherever some functions have values: 1 or 0, None where
    these do not say."""
    name, args = bank.atoms[truth]
    for atom in defined & bank.partial.keys() if name in TRUTHS else ():
        needs, by = bank.partial[atom], ratio(dict(*args), bank.argument(atom))
        if needs == "not zero" and bank.positive(bank.argument(atom), strictly=False):
            needs = "positive"
        if not by or needs == "above -1" or (name == "is 0" and needs == "not negative"):
            continue
        if name == "is 0" or (by < 0 and needs != "not zero"):
            return 0
        if needs == "positive":
            return 1
    return None


def parts(bank: Polynomials, terms: Terms) -> Iterator[Terms]:
    """Sums that are 0 if a polynomial is, each but for a factor that no axiom changes: atoms that
    neither have one nor are in the argument of one that has."""
    changed, todo = set[int](), {i for m in terms for i, _ in m}
    while todo:
        atom = todo.pop()
        name, _ = bank.atoms[atom]
        if name in TRUTHS or name in ROOTS:
            changed.add(atom)
        if name in ROOTS:
            under = {i for m in bank.argument(atom) for i, _ in m}
            todo |= under - changed
            changed |= under
    if changed & bank.exponentials:
        changed |= bank.exponentials
    found = defaultdict[Mono, Terms](dict)
    for mono, coef in terms.items():
        outside = tuple(f for f in mono if f[0] not in changed)
        found[outside][tuple(f for f in mono if f[0] in changed)] = coef
    for part in found.values():
        yield scaled(part, over(part[min(part)]))


@dataclass
class Gap:
    """A part of a difference of two entries that is no polynomial 0."""

    bank: Polynomials
    terms: Terms
    defined: Set[int]
    """Atoms that have a value wherever the outputs of one device have theirs."""
    atoms: list[int] = field(default_factory=list[int])
    """Those that it is made of, by their place in the identity."""

    def allowed(self, axiom: str, atom: int) -> bool:
        """Whether an atom has a value wherever the difference counts, or that of an axiom."""
        if axiom in DECIDED:
            return guard(self.bank, atom, self.defined) == DECIDED[axiom]
        return atom not in self.bank.partial or atom in self.defined

    def applied(self, terms: Terms, axiom: str, atom: int) -> Terms:
        """What an axiom makes of a polynomial."""
        if axiom in DECIDED:
            return decided(terms, atom, DECIDED[axiom])
        return without(self.bank, terms, atom)

    def said(self) -> dict[str, Any]:
        """The difference, inputs and places left aside: gaps that say the same are one identity."""
        todo, met = [i for m in self.terms for i, _ in m], set[int]()
        while todo:
            atom = todo.pop()
            if atom not in met:
                met.add(atom)
                inner = (m for arg in self.bank.atoms[atom][1] for m, _ in arg)
                todo += [i for m in inner for i, _ in m]
        self.atoms = sorted(met)
        names = {atom: k for k, atom in enumerate(self.atoms)}

        def poly(terms: Iterator[Any]) -> list[Any]:
            rows = [
                ([[names[i], p] for i, p in sorted(m, key=lambda f: names[f[0]])], str(c))
                for m, c in terms
            ]
            return [[c, m] for m, c in sorted(rows)]

        told = [self.bank.atoms[atom] for atom in self.atoms]
        rows = [[name if args else "", [poly(iter(arg)) for arg in args]] for name, args in told]
        return {"atoms": rows, "difference": poly(iter(self.terms.items()))}
