"""What a placement rule is given, what it says, and which ops it is of."""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from shardproof.verifier.kernel.layout import Layout
from shardproof.verifier.kernel.program.registry import ONE, Op, Refused
from shardproof.verifier.kernel.program.types import Attr, Mesh


@dataclass(frozen=True, slots=True)
class Placed:
    """One true statement about the result of an op, given the layouts of its operands.

    The local result is a piece, laid out as `layouts`, of `scale` times the op applied with
    `attrs` to the whole operands; with `moves` set, of `scale` times operand 0 itself.
    """

    layouts: tuple[Layout, ...]
    attrs: tuple[tuple[str, Attr], ...] = ()
    scale: Fraction = ONE
    moves: bool = False
    facts: tuple[str, ...] = ()
    """Side conditions that were checked, for the certificate."""


@dataclass(frozen=True, slots=True)
class Operands:
    """What a placement rule is given."""

    layouts: tuple[Layout, ...]
    attrs: tuple[tuple[str, Attr], ...]
    mesh: Mesh
    zeros: frozenset[int] = frozenset()
    """Operands that are the constant 0: a share of any pending sum."""
    known: frozenset[tuple[int, ...]] = frozenset()
    """Shapes of the values of the one-device program, for ops tagged `SPREADS`."""

    def attr(self, name: str) -> Any:
        return dict(self.attrs)[name]

    def number(self, name: str) -> int:
        """An integer attribute."""
        return self.attr(name)

    def numbers(self, name: str) -> tuple[int, ...]:
        """An attribute that is a tuple of integers."""
        return tuple(self.attr(name))

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Local shapes."""
        return tuple(layout.local_shape for layout in self.layouts)


PlaceRule = Callable[[Op, Operands], list[Placed]]
OF_OP: dict[str, PlaceRule] = {}
OF_KIND: dict[str, PlaceRule] = {}
"""Of ops that have no rule of their own."""


def of_ops(*ops: Op) -> Callable[[PlaceRule], PlaceRule]:
    """Declare the rule of these ops."""

    def declare(rule: PlaceRule) -> PlaceRule:
        OF_OP.update((op.name, rule) for op in ops)
        return rule

    return declare


def of_kind(kind: str) -> Callable[[PlaceRule], PlaceRule]:
    """Declare the rule of all other ops of a kind."""

    def declare(rule: PlaceRule) -> PlaceRule:
        OF_KIND[kind] = rule
        return rule

    return declare


def place(op: Op, given: Operands) -> list[Placed]:
    """What is true of the result of an op on operands that are laid out so.

    Raises:
        Refused: nothing is known to be.
    """
    rule = OF_OP.get(op.name) or OF_KIND.get(op.kind)
    if rule is None:
        raise Refused(f"no placement passes through {op.name}")
    return rule(op, given)
