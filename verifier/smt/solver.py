"""Asks Z3, and reads its answers: the one solver of the project.

`unknown` is an answer of its own and is never read as `sat` or `unsat`. Limits are counted in
Z3's own steps (`rlimit`, the same on every machine) with a wall-clock limit behind them. Terms
live in Z3's main context, so one thread asks at a time.
"""

import math
import threading
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal, get_args

import z3 as _z3

z3: Any = _z3
"""Z3 has no type stubs; its terms are `Any` here."""

Term = Any
Error: type[Exception] = z3.Z3Exception
"""What Z3 raises of terms that are none."""
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
    stats: Stats = field(default_factory=Stats)

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
            _, answer = self._check(self._z3)
            if isinstance(answer, Undecided):
                _, answer = self._afresh()
        _record(self._z3.assertions(), goal, answer)
        return answer

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


Status = Literal["unsat", "sat", "unknown"]
STATUSES: tuple[Status, ...] = get_args(Status)


@dataclass(frozen=True, slots=True)
class Obligation:
    """Premises and a goal as SMT-LIB text, which asks for a model in which the goal fails."""

    text: str
    status: Status
    """What Z3 answers; `unsat`: the premises imply the goal."""


_RECORDS: list[dict[str, Obligation]] = []


@contextmanager
def obligations() -> Generator[dict[str, Obligation]]:
    """Every distinct goal that is asked of Z3 inside, also those that its simplifier closes."""
    found: dict[str, Obligation] = {}
    _RECORDS.append(found)
    try:
        yield found
    finally:
        _RECORDS.pop()


@contextmanager
def attempt() -> Generator[Callable[[], None]]:
    """Goals that are asked inside are obligations only where what is given is called: then those
    that were shown are."""
    outer = _RECORDS[:]
    if not outer:
        yield lambda: None
        return
    found: dict[str, Obligation] = {}
    _RECORDS[:] = [found]

    def keep() -> None:
        for record in outer:
            record.update({t: o for t, o in found.items() if o.status == "unsat"})

    try:
        yield keep
    finally:
        _RECORDS[:] = outer


def _record(premises: Iterable[Term], goal: Term, answer: Answer) -> None:
    if not _RECORDS:
        return
    names: dict[type, Status] = {Valid: "unsat", Invalid: "sat", Undecided: "unknown"}
    status = names[type(answer)]
    made = Obligation(_smtlib(list(premises), goal, status), status)
    for record in _RECORDS:
        record.setdefault(made.text, made)


def _smtlib(premises: Sequence[Term], goal: Term, status: str) -> str:
    """A file that any solver of SMT-LIB 2.6 reads."""
    declared: dict[str, str] = {}
    quantified = False
    for term in _subterms([*premises, goal]):
        quantified |= bool(z3.is_quantifier(term))
        if z3.is_app(term) and term.decl().kind() == z3.Z3_OP_UNINTERPRETED:
            declared[str(term.decl().name())] = str(term.decl().sexpr())
    named = [f"(assert (! {f.sexpr()} :named premise-{i}))" for i, f in enumerate(premises)]
    head = ["(set-info :smt-lib-version 2.6)", f"(set-info :status {status})"]
    logic = "(set-logic UFNIRA)" if quantified else "(set-logic QF_UFNIRA)"
    goals = [f"(assert (! (not {goal.sexpr()}) :named goal-fails))", "(check-sat)"]
    lines = [*head, logic, *(declared[name] for name in sorted(declared)), *named, *goals]
    return "\n".join(lines) + "\n"


def read_smtlib(text: str) -> Status:
    """What Z3 answers to an obligation that is read from text.

    Raises:
        ValueError: it is no SMT-LIB text.
    """
    solver: Any = z3.Solver()
    solver.set("rlimit", RLIMIT)
    try:
        solver.from_string(text)
    except z3.Z3Exception as error:
        raise ValueError(f"no SMT-LIB text: {error}") from None
    said = str(solver.check())
    return next(status for status in STATUSES if status == said)


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


def truth(value: Any) -> Term:
    """A truth value of Python or of the solver."""
    return value if z3.is_bool(value) else z3.BoolVal(bool(value))


def is_truth(term: Term) -> bool:
    return bool(z3.is_bool(term))


def to_real(value: Any) -> Term:
    """An integer of Python or of the solver as a real."""
    return z3.RealVal(value) if isinstance(value, int) else z3.ToReal(value)


def to_int(value: Term) -> Term:
    """The integer that a real is, or the one below it."""
    return z3.ToInt(value)


def is_whole(value: Term) -> Term:
    return z3.IsInt(value)


def instead(term: Term, pairs: Sequence[tuple[Term, Term]]) -> Term:
    """The term with other terms in place of constants."""
    return z3.substitute(term, *pairs) if pairs else term


def scale(term: Term) -> tuple[Fraction, Term]:
    """The rational factors of a product, and the rest."""
    if z3.is_rational_value(term):
        return term.as_fraction(), z3.RealVal(1)
    if not z3.is_mul(term):
        return Fraction(1), term
    parts = [scale(child) for child in term.children()]
    by = math.prod((b for b, _ in parts), start=Fraction(1))
    if by == 1:
        return by, term
    rest = [t for _, t in parts if not z3.is_rational_value(t)]
    return by, math.prod(rest[1:], start=rest[0]) if rest else z3.RealVal(1)


def products(term: Term, most: int = 64) -> list[tuple[Fraction, list[Term]]] | None:
    """A number as a sum of products of what is no sum or product, each with its rational factor;
    a choice as what it takes, times whether it does. None where there are more than `most`."""
    out: list[tuple[Fraction, list[Term]]]
    if z3.is_rational_value(term):
        value = term.as_fraction()
        return [(value, [])] if value else []
    parts: list[Term] = [] if z3.is_to_real(term) else term.children()
    signs = [1] * len(parts)
    if z3.is_app_of(term, z3.Z3_OP_ITE):
        condition, *sides = parts
        one, none = rational(Fraction(1)), rational(Fraction(0))
        taken: list[Term] = [when(condition, one, none), when(condition, none, one)]
        if {str(side) for side in sides} <= {"0", "1"}:
            return [(Fraction(1), [term])]
        return products(sum(t * s for t, s in zip(taken, sides, strict=True)), most)
    if z3.is_app_of(term, z3.Z3_OP_UMINUS):
        signs = [-1]
    elif z3.is_sub(term):
        signs[1:] = [-1] * (len(parts) - 1)
    elif not (z3.is_add(term) or z3.is_mul(term)):
        return [(Fraction(1), [term])]
    spread = [products(part, most) for part in parts]
    if None in spread:
        return None
    if z3.is_mul(term):
        out = [(Fraction(1), [])]
        for part in spread:
            out = [(c * d, [*f, *g]) for c, f in out for d, g in part or ()]
            if len(out) > most:
                return None
        return out
    out = [(s * c, f) for s, part in zip(signs, spread, strict=True) for c, f in part or ()]
    return out if len(out) <= most else None


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
    flat = goal
    if z3.is_eq(goal) and not z3.is_bool(goal.arg(0)):
        try:
            rest = z3.simplify(
                goal.arg(0) - goal.arg(1), som=True, som_blowup=1000, max_steps=1_000_000
            )
        except z3.Z3Exception:  # the step limit
            return False
        flat = rest == 0
    closed = bool(z3.is_true(z3.simplify(flat)))
    if closed:
        _record((), goal, Valid())
    return closed


def negation(fact: Term) -> Term:
    return z3.Not(fact)


def implies(premise: Term, conclusion: Term) -> Term:
    return z3.Implies(premise, conclusion)


def forall(variables: Sequence[Term], body: Term) -> Term:
    return z3.ForAll(list(variables), body)


def when(condition: Term, then: Term, otherwise: Term) -> Term:
    return z3.If(condition, then, otherwise)


def applies(term: Term) -> bool:
    """Whether a term applies a function that Z3 gives no meaning to."""
    found = (t for t in _subterms([term]) if z3.is_app(t) and t.num_args())
    return any(t.decl().kind() == z3.Z3_OP_UNINTERPRETED for t in found)


def applications(terms: Iterable[Term]) -> list[tuple[str, Term, Term]]:
    """Functions of one operand in terms that Z3 gives no meaning to: name, operand and value."""
    found = (t for t in _subterms(terms) if z3.is_app(t) and t.num_args() == 1)
    return [
        (str(t.decl().name()), t.arg(0), t)
        for t in found
        if t.decl().kind() == z3.Z3_OP_UNINTERPRETED
    ]


def names(term: Term) -> set[str]:
    """The constants and functions in a term that Z3 gives no meaning to."""
    found = (t for t in _subterms([term]) if z3.is_app(t))
    return {str(t.decl().name()) for t in found if t.decl().kind() == z3.Z3_OP_UNINTERPRETED}


def constants(term: Term) -> list[Term]:
    """The constants in a term that Z3 gives no meaning to, in the order in which they come up."""
    found = (t for t in _subterms([term]) if z3.is_app(t) and not t.num_args())
    return [t for t in found if t.decl().kind() == z3.Z3_OP_UNINTERPRETED]


def _subterms(terms: Iterable[Term]) -> Generator[Term]:
    """All that terms are made of, each once."""
    seen: set[int] = set()
    left = list(terms)
    while left:
        at = left.pop()
        if at.get_id() in seen:
            continue
        seen.add(at.get_id())
        yield at
        left.extend(at.children())
