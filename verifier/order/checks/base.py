"""What a check is."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from shardproof.verifier.order.context import Context
from shardproof.verifier.order.violation import Violation


@dataclass(frozen=True, slots=True)
class Check:
    """One property of orders."""

    name: str
    proves: str
    """What holds of a program that passes."""
    means: str
    """What a violation says."""
    find_all: Callable[[Context], Iterable[Violation]]
    """Violations of this check, and of others that are found with it."""

    def find(self, ctx: Context) -> Iterator[Violation]:
        return (v for v in ctx.once(self.find_all) if v.check == self.name)
