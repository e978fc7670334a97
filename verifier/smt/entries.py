"""Equalities of single entries, as obligations of Z3.

Both programs are run on its terms (`domains/symbolic.py`); it is told nothing of the forms in which
the checker compared them. Entries that are alike but for the names of inputs are one class, which
is asked about once.
"""

import hashlib
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any

from shardproof.verifier.domains.base import Array, Symbols
from shardproof.verifier.domains.symbolic import Symbolic, number, term
from shardproof.verifier.smt import solver as smt
from shardproof.verifier.smt.equalities import How
from shardproof.verifier.smt.pointwise import AXIOMS, RLIMIT, TIMEOUT_MS

QUERIES = 8
"""Equalities of one proof that the solver may leave open before it is asked no more."""
Sides = Callable[[Symbols], Iterable[tuple[Array, Array]]]
"""Arrays that must be equal, on one device and on ranks."""


def identities(sides: Sides, known: dict[str, How]) -> tuple[list[str], str]:
    """The classes of entries, by keys of what is `known`; and what refutes one, up to the first.

    A class that is `known` is not asked about again; what is found is added. Entries that Z3 has
    one term for are no class.
    """
    domain, found = Symbolic(("max",)), dict[str, Any]()
    met, left = dict[int, Any](), QUERIES
    try:
        for want, have in sides(domain):
            for x, y in zip(want.reshape(-1), have.reshape(-1), strict=True):
                a, b = number(x), number(y)
                if isinstance(a, Fraction) and isinstance(b, Fraction):
                    if a != b:
                        return [*found], f"an entry is {b}, expected {a}"
                    continue
                given = term(a) == term(b)
                if term(a).eq(term(b)) or given.get_id() in met:
                    continue
                met[given.get_id()] = given
                key = _key(_renamed(given), domain)
                if key not in known:
                    how, asked = _asked(given, domain, left > 0)
                    left -= asked
                    if how is None:
                        return [*found], f"Z3 refutes {str(given)[:200]}"
                    known[key] = how
                found[key] = known[key]
    except (TypeError, ValueError, smt.Error):
        pass
    return [*found], ""


def _inputs(goal: Any) -> list[Any]:
    return [at for at in smt.constants(goal) if "[" in str(at)]


def _renamed(goal: Any) -> Any:
    """With inputs named by the order in which they come up."""
    return smt.instead(goal, [(at, smt.real(f"e{k}")) for k, at in enumerate(_inputs(goal))])


def _key(goal: Any, domain: Symbolic) -> str:
    """Of maxima all is told that is known."""
    left = [at for at in smt.constants(goal) if str(at).startswith("max")]
    facts = [str(fact.sexpr()) for fact in domain.facts] if left else []
    return hashlib.sha256("".join([str(goal.sexpr()), *facts]).encode()).hexdigest()[:32]


def _asked(goal: Any, domain: Symbolic, further: bool) -> tuple[How | None, bool]:
    """On what an equality rests, None where it is refuted, which is for arithmetic alone; and
    whether the solver left it open, which is asked where the simplifier does not do."""
    with smt.attempt() as keep:
        if smt.simplifies(goal):
            keep()
            return "shown", False
        certain = not (smt.applies(goal) or domain.facts)
        if not (further or certain):
            return "numbers", False
        solver = smt.Solver(rlimit=RLIMIT, timeout_ms=TIMEOUT_MS)
        told = smt.applications([goal, *domain.facts])
        solver.assume(*domain.facts, *(AXIOMS[f](x, y) for f, x, y in told if f in AXIOMS))
        answer = solver.prove(goal)
        if isinstance(answer, smt.Valid):
            keep()
            return "shown", False
    return None if certain and isinstance(answer, smt.Invalid) else "numbers", True
