"""Asks Z3, and reads its answers: the one solver of the project.

`unknown` is an answer of its own and is never read as `sat` or `unsat`. Limits are counted in
Z3's own steps (`rlimit`, the same on every machine) with a wall-clock limit behind them. Terms
live in Z3's main context, so one thread asks at a time.
"""

import threading
import time
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import z3 as _z3

z3: Any = _z3
"""Z3 has no type stubs; its terms are `Any` here."""

Term = Any
RLIMIT = 4_000_000
TIMEOUT_MS = 4_000


@dataclass(frozen=True, slots=True)
class Valid:
    """The goal holds in every model of the premises."""


@dataclass(frozen=True, slots=True)
class Invalid:
    """The goal fails in some model of the premises."""

    model: tuple[tuple[str, str], ...]
    """Values of the constants, by name."""


@dataclass(frozen=True, slots=True)
class Undecided:
    """Z3 gave up."""

    reason: str


Answer = Valid | Invalid | Undecided


@dataclass
class Stats:
    """What was asked so far."""

    queries: int = 0
    undecided: int = 0
    seconds: float = 0.0
    steps: int = 0
    """Z3's resource count."""


@dataclass
class Solver:
    """Premises on a stack, and goals to prove from them."""

    rlimit: int = RLIMIT
    timeout_ms: int = TIMEOUT_MS
    """0: none, so that every machine has the same answer."""
    keep: bool = False
    """Whether every query is kept in `archive` as SMT-LIB text."""
    stats: Stats = field(default_factory=Stats)
    archive: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        self._z3: Any = self._fresh()

    def _fresh(self) -> Any:
        solver: Any = z3.Solver()
        if self.timeout_ms:
            solver.set("timeout", self.timeout_ms)
        solver.set("rlimit", self.rlimit)
        # Z3's own handler would take SIGINT and answer `unknown`, with no word of the interrupt.
        solver.set("ctrl_c", False)
        return solver

    def assume(self, *facts: Term) -> None:
        """Add premises to the present scope."""
        self._z3.add(*facts)

    @contextmanager
    def scope(self, *facts: Term) -> Generator[None]:
        """Premises that hold only inside."""
        self._z3.push()
        try:
            self._z3.add(*facts)
            yield
        finally:
            self._z3.pop()

    def prove(self, goal: Term) -> Answer:
        """Whether the premises imply `goal`. Signal handlers run once Z3 returns: `interrupt`."""
        with self.scope(z3.Not(goal)):
            result, answer = self._check(self._z3)
            if isinstance(answer, Undecided):
                result, answer = self._afresh()
        return answer if result != z3.unsat else Valid()

    def consistent(self) -> Answer:
        """Whether the premises have a model: `Valid` where they do, `Invalid` where none exists.

        Premises that contradict each other prove anything.
        """
        result, answer = self._check(self._z3)
        if result == z3.sat:
            return Valid()
        return Invalid(()) if result == z3.unsat else answer

    def _afresh(self) -> tuple[Any, Answer]:
        """Ask again without the stack: Z3 then chooses its strategy by the logic of the query."""
        once = self._fresh()
        once.add(*self._z3.assertions())
        return self._check(once)

    def _check(self, solver: Any) -> tuple[Any, Answer]:
        if self.keep:
            self.archive.append(str(solver.to_smt2()))
        begin = time.perf_counter()
        with _query():
            result = solver.check()
        self.stats.queries += 1
        self.stats.seconds += time.perf_counter() - begin
        self.stats.steps += _steps(solver)
        if result == z3.sat:
            return result, Invalid(_model(solver.model()))
        if result == z3.unsat:
            return result, Valid()
        self.stats.undecided += 1
        return result, Undecided(str(solver.reason_unknown()))


class _Queries:
    """Queries under way, and whether one was told to end."""

    def __init__(self) -> None:
        self.lock, self.running, self.told = threading.Lock(), 0, False


_QUERIES = _Queries()


@contextmanager
def _query() -> Generator[None]:
    """A query that `interrupt` ends. One that comes as the query ends would cancel the next call to
    Z3, whatever it is; a query of nothing takes it away."""
    with _QUERIES.lock:
        _QUERIES.running += 1
    try:
        yield
    finally:
        with _QUERIES.lock:
            _QUERIES.running -= 1
            told, _QUERIES.told = _QUERIES.told, False
        if told:
            z3.Solver().check()


def interrupt() -> None:
    """Make the query that runs in another thread return at once, undecided; nothing where none
    runs."""
    with _QUERIES.lock:
        if _QUERIES.running:
            _QUERIES.told = True
            z3.main_ctx().interrupt()


def prove(
    goal: Term,
    premises: Iterable[Term] = (),
    rlimit: int = RLIMIT,
    timeout_ms: int = TIMEOUT_MS,
) -> Answer:
    """Whether `premises` imply `goal`, on a solver of its own."""
    solver = Solver(rlimit=rlimit, timeout_ms=timeout_ms)
    solver.assume(*premises)
    return solver.prove(goal)


def _steps(solver: Any) -> int:
    stats = solver.statistics()
    return next((int(stats[i][1]) for i in range(len(stats)) if stats[i][0] == "rlimit count"), 0)


def _model(model: Any) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((str(d.name()), str(model[d])) for d in model.decls() if d.arity() == 0))


def integer(name: str) -> Term:
    return z3.Int(name)


def integers(names: str) -> Sequence[Term]:
    """Integer constants from names with blanks between."""
    return list(z3.Ints(names))


def real(name: str) -> Term:
    return z3.Real(name)


def whole(value: int) -> Term:
    return z3.IntVal(value)


def rational(value: Fraction) -> Term:
    return z3.RealVal(f"{value.numerator}/{value.denominator}")


def function(name: str, *kinds: str) -> Any:
    """An uninterpreted function; `kinds` are `int`, `real` or `bool`, the result last."""
    sorts = {"int": z3.IntSort(), "real": z3.RealSort(), "bool": z3.BoolSort()}
    return z3.Function(name, *(sorts[k] for k in kinds))


def conj(*facts: Term) -> Term:
    return z3.And(*facts)


def disj(*facts: Term) -> Term:
    return z3.Or(*facts)


def simplifies(goal: Term) -> bool:
    """Whether Z3's simplifier takes a goal to true; equations as polynomials."""
    if z3.is_eq(goal) and not z3.is_bool(goal.arg(0)):
        goal = z3.simplify(goal.arg(0) - goal.arg(1), som=True) == 0
    return bool(z3.is_true(z3.simplify(goal)))


def negation(fact: Term) -> Term:
    return z3.Not(fact)


def implies(premise: Term, conclusion: Term) -> Term:
    return z3.Implies(premise, conclusion)


def forall(variables: Sequence[Term], body: Term) -> Term:
    return z3.ForAll(list(variables), body)


def when(condition: Term, then: Term, otherwise: Term) -> Term:
    return z3.If(condition, then, otherwise)


def names(term: Term) -> set[str]:
    """The constants and functions in a term that Z3 gives no meaning to."""
    found: set[str] = set()
    seen: set[int] = set()
    left = [term]
    while left:
        at = left.pop()
        if at.get_id() in seen:
            continue
        seen.add(at.get_id())
        if z3.is_app(at):
            if at.decl().kind() == z3.Z3_OP_UNINTERPRETED:
                found.add(str(at.decl().name()))
            left.extend(at.children())
    return found
