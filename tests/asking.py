"""Element by element by Z3, with functions uninterpreted."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

import z3 as _z3

from shardproof.verifier.domains.base import Array
from shardproof.verifier.domains.symbolic import Symbolic
from shardproof.verifier.kernel.contract import Contract, output_key
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.provers.scalars.outputs import all_ranks, pairs
from shardproof.verifier.refute.evaluate import Ranks, Values, evaluate
from shardproof.verifier.smt import solver as smt
from shardproof.verifier.smt.pieces import equations
from shardproof.verifier.smt.solver import Answer

z3: Any = _z3
SMALL_GOAL = 2_000
"""Characters of a goal that Z3 is asked in a cross-check."""


class Lawful(Symbolic):
    """With the laws of `exp`, `rsqrt` and `reciprocal` in `facts`."""

    def __init__(self) -> None:
        super().__init__(("max",))

    def _apply(self, name: str, x: Any) -> Any:
        if name == "exp":
            return self._exp(x)
        out = super()._apply(name, x)
        if name == "rsqrt":
            self._know(z3.Implies(x > 0, z3.And(out > 0, out * out * x == 1)))
        if name == "reciprocal":
            self._know(z3.Implies(x != 0, out * x == 1))
        return out

    def _exp(self, x: Any) -> Any:
        """The product of `exp` of the terms of a sum."""
        out = z3.RealVal(1)
        for part, sign in _summands(x, 1):
            factor = super()._apply("exp", part if sign > 0 else -part)
            self._know(factor > 0)
            if sign < 0:
                other = super()._apply("exp", part)
                self._know(other > 0)
                self._know(factor * other == 1)
            out = out * factor
        return out

    def _know(self, fact: Any) -> None:
        if fact.get_id() not in self._seen:
            self._seen.add(fact.get_id())
            self.facts.append(fact)


def _summands(expression: Any, sign: int) -> list[tuple[Any, int]]:
    """Terms with signs whose sum is `expression`."""
    if z3.is_add(expression):
        return [p for child in expression.children() for p in _summands(child, sign)]
    if z3.is_sub(expression):
        first, *rest = expression.children()
        return [*_summands(first, sign), *(p for c in rest for p in _summands(c, -sign))]
    if z3.is_app_of(expression, z3.Z3_OP_UMINUS):
        return _summands(expression.arg(0), -sign)
    return [(expression, sign)]


class DisagreementError(RuntimeError):
    """Z3 has a model in which an element differs that was found equal."""


def elementwise(
    sequential: Program,
    distributed: Program,
    contract: Contract,
    indices: dict[str, Array] | None = None,
    solver: smt.Solver | None = None,
) -> dict[str, Answer]:
    """For each output key: whether it is equal for all float inputs, functions uninterpreted.

    `Invalid` only says that congruence and arithmetic do not give the equality.

    Args:
        indices: values of the integer inputs, which stay concrete.
    """
    domain = Symbolic()
    one, ranks = _on_symbols(sequential, distributed, contract, indices or {}, domain)
    solver = solver or smt.Solver()
    answers: dict[str, Answer] = {}
    for out in sequential.outputs:
        key = output_key(out)
        both = pairs(key, contract, distributed, one[out.value], ranks, domain)
        answers[key] = _all(solver.prove(goal) for _, a, b in both for goal in equations(a, b))
    return answers


def _on_symbols(
    sequential: Program,
    distributed: Program,
    contract: Contract,
    indices: Mapping[str, Array],
    domain: Symbolic,
) -> tuple[Values, Ranks]:
    wholes = {
        i.name: indices[i.name] if i.name in indices else domain.symbols(i.name, i.type.shape)
        for i in sequential.inputs
    }
    one = evaluate(sequential, wholes, domain)
    return one, all_ranks(sequential, distributed, contract, wholes, domain)


def _all(answers: Iterator[Answer]) -> Answer:
    return next((a for a in answers if not isinstance(a, smt.Valid)), smt.Valid())


def confirm(
    sequential: Program,
    distributed: Program,
    contract: Contract,
    case: Mapping[str, Array],
    seconds: float,
) -> int:
    """Hold small elements that were found equal against Z3. Returns how many it confirmed.

    A model counts only where the goal is about the inputs alone, with no function that Z3 knows
    nothing of: then it is a counterexample.

    Raises:
        DisagreementError: it is one.
    """
    domain = Lawful()
    one, ranks = _on_symbols(sequential, distributed, contract, case, domain)
    solver, confirmed = smt.Solver(rlimit=200_000, timeout_ms=200), 0
    inputs, deadline = {i.name for i in sequential.inputs}, time.monotonic() + seconds
    for out in sequential.outputs:
        key = output_key(out)
        for where, a, b in pairs(key, contract, distributed, one[out.value], ranks, domain):
            for goal in equations(a, b):
                text = goal.sexpr()
                if time.monotonic() > deadline:
                    return confirmed
                if len(text) > SMALL_GOAL:
                    continue
                premises = [f for f in domain.facts if len(f.sexpr()) <= SMALL_GOAL][:50]
                with solver.scope(*premises):
                    answer = solver.prove(goal)
                confirmed += isinstance(answer, smt.Valid)
                known = {name.split("[")[0] for name in smt.names(goal)} <= inputs
                if isinstance(answer, smt.Invalid) and known:
                    raise DisagreementError(f"{key} {where}: Z3 has a model in which it differs")
    return confirmed
