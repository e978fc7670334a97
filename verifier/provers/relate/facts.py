"""Facts about the values of a distributed program."""

from __future__ import annotations

from dataclasses import dataclass, field

from shardproof.verifier.kernel.layout import Layout
from shardproof.verifier.kernel.ops import Refused
from shardproof.verifier.kernel.peeling import Peel
from shardproof.verifier.kernel.program.program import Node
from shardproof.verifier.kernel.program.where import EVERYWHERE, Where, show
from shardproof.verifier.provers.sequential import Scan, Sequential
from shardproof.verifier.terms import Ref

MAX_FACTS = 6


@dataclass(frozen=True, slots=True)
class Fact:
    """On the ranks of `where`, the value is the piece of `ref` that `layout` gives the rank."""

    ref: Ref
    layout: Layout
    premises: tuple[int, ...] = ()
    """Which fact of each operand it was derived from, -1 for an operand that has no part in it.
    For a rule `joined...`: which facts of the value itself."""
    rule: str = ""
    where: Where = EVERYWHERE


@dataclass(frozen=True, slots=True)
class Break:
    """An op whose result has no relation, though its operands have."""

    node: Node
    refused: Refused
    operands: tuple[Fact, ...]
    path: str


@dataclass
class Related:
    """The outcome of a walk."""

    facts: dict[str, list[Fact]]
    breaks: list[Break]
    bodies: dict[str, tuple[Scan, Related]] = field(
        default_factory=dict[str, "tuple[Scan, Related]"]
    )
    """By the first output of each scan: the block it repeats, and the facts of one step."""
    rules: dict[str, int] = field(default_factory=dict[str, int])
    wanted: list[Peel] = field(default_factory=list[Peel])
    """How the one-device program may be cut so that repeated blocks have their like."""
    covered: set[str] = field(default_factory=set[str])
    """Blocks of the distributed program that a wanted cut has its like for."""


def describe(sequential: Sequential, fact: Fact) -> str:
    """A fact in words: `2 * %h as [2@tp, 4]`."""
    name = sequential.known.get(fact.ref.id)
    shown = f"%{name}" if name else sequential.terms[fact.ref.id].op + "(...)"
    scale = "" if fact.ref.coef == 1 else f"{fact.ref.coef} * "
    on = f" on {show(fact.where)}" if fact.where else ""
    return f"{scale}{shown} as {fact.layout}{on}"
