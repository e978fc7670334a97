"""A term, and a reference to one with its rational factor."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

from shardproof.verifier.kernel.program.registry import ONE

if TYPE_CHECKING:
    from shardproof.verifier.terms.table import Terms

Shape = tuple[int, ...]


class Ref(NamedTuple):
    """`coef` times the term with this id."""

    coef: Fraction
    id: int

    def __hash__(self) -> int:
        return hash(self.id)


@dataclass(frozen=True, slots=True)
class Term:
    op: str
    args: tuple[Ref, ...]
    attrs: tuple[Any, ...]
    shape: Shape


def times(a: Fraction, b: Fraction) -> Fraction:
    """The product; most factors are 1, and multiplying fractions is slow."""
    if a is ONE:
        return b
    if b is ONE:
        return a
    product = a * b
    return ONE if product == ONE else product


Build = Callable[["Terms", list[Ref], Mapping[str, Any], Sequence[str]], Ref]
"""(terms, whole operands, attributes, dtypes of the operands) -> the term of an op."""
