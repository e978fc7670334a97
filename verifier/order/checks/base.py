"""What a check is."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from verifier.order.context import Context
from verifier.order.violation import Violation


@dataclass(frozen=True, slots=True)
class Check:
    """One property of orders."""

    name: str
    proves: str
    """What holds of a program that passes."""
    means: str
    """What a violation says."""
    find: Callable[[Context], Iterable[Violation]]
