"""Real functions of one number, by name: what the domains compute for each.

Ops declare them (`verifier/kernel/ops/functions.py`). Over a prime field and for Z3 a function is
known by its name alone; on floats and expressions as it says here.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol, TypeVar

X = TypeVar("X")


class Calculus(Protocol[X]):
    """What functions are defined by, on expressions of any kind."""

    @property
    def one(self) -> X: ...
    def add(self, a: X, b: X, /) -> X: ...
    def sub(self, a: X, b: X, /) -> X: ...
    def mul(self, a: X, b: X, /) -> X: ...
    def neg(self, a: X, /) -> X: ...
    def scale(self, a: X, value: Fraction, /) -> X: ...
    def reciprocal(self, a: X, /) -> X: ...
    def exp(self, a: X, /) -> X: ...
    def log(self, a: X, /) -> X: ...
    def absolute(self, a: X, /) -> X: ...


@dataclass(frozen=True, slots=True)
class Function:
    """A function of one real number."""

    name: str
    floats: Callable[[Any], Any]
    """On arrays of float64."""
    by: Callable[[Calculus[Any], Any], Any] | None = None
    """Its definition, where it is made of others. All expressions are read by it."""
    algebra: Callable[[Any, Any], Any] | None = None
    """On the expressions of `domains/algebra`, where its table has a form of its own."""
    strict: bool = False
    """Whether it has no value where its operand has none; else floats may have one."""
    rising: bool = False
    """Whether it never falls."""


FUNCTIONS: dict[str, Function] = {}


def declared(function: Function) -> Function:
    """Raises ValueError where the name is taken."""
    if function.name in FUNCTIONS:
        raise ValueError(f"function {function.name} is declared twice")
    FUNCTIONS[function.name] = function
    return function
