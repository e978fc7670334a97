"""A fault of a wrong program, and the rules that find it, of which one table has all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from shardproof.verifier.kernel.program.program import Node
from shardproof.verifier.kernel.program.types import Source

Context = TypeVar("Context")


@dataclass(frozen=True)
class Fault:
    """What is at fault, and why it is to blame."""

    op: Node | None
    """None of a line of source that is wrong before it makes an op."""
    line: Source
    why: str


@dataclass(frozen=True)
class Rule(Generic[Context]):
    """A way to find faults; of a table, the first are asked first."""

    about: type[Context]
    """What it is asked about: a run on numbers, or a module in its source."""
    find: Callable[[Context], Iterator[Fault]]
    beside: bool = False
    """Whether it names lines to look at beside the one that is to blame."""
    weak: bool = False
    """Whether it says where numbers go wrong, not what made them so."""
