"""One application of an op on a rank, and what several rules ask of it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from shardproof.verifier.checker.claims import need
from shardproof.verifier.kernel.instance import Piece
from shardproof.verifier.kernel.layout import Layout
from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.terms import ONE, Ref, Terms, times


@dataclass(frozen=True, slots=True)
class Made:
    """What a step makes of the whole operands, whichever they are."""

    op: str
    """The op on them; none where it is the first of them."""
    attrs: dict[str, Any]
    dtypes: tuple[str, ...]
    factor: Fraction = ONE

    def of(self, refs: Sequence[Ref], terms: Terms) -> Ref:
        if self.op:
            return terms.apply(self.op, refs, self.attrs, self.dtypes)
        return Ref(times(refs[0].coef, self.factor), refs[0].id)


@dataclass(frozen=True, slots=True)
class Step:
    """One application on a rank: claims of the operands, claimed layout of the result."""

    op: str
    attrs: dict[str, Any]
    args: tuple[Piece, ...]
    layout: Layout
    mesh: Mesh

    def term(self, **attrs: Any) -> Made:
        """The op on the whole operands, with these attributes instead of the local ones."""
        return Made(self.op, {**self.attrs, **attrs}, tuple(a.dtype for a in self.args))

    def scaled(self, factor: Fraction = ONE) -> Made:
        """The first operand, or so many times it."""
        return Made("", {}, (), factor)

    def at(self, key: str) -> int:
        """An integer attribute."""
        return int(self.attrs[key])

    def ints(self, key: str) -> tuple[int, ...]:
        """An attribute that lists integers."""
        return tuple(map(int, self.attrs[key]))

    @property
    def first(self) -> Layout:
        return self.args[0].layout


def sums(layout: Layout) -> None:
    need(all(fold == "sum" for _, fold in layout.partial), "a pending fold other than a sum")


def pending(step: Step, *groups: Iterable[tuple[str, str]]) -> None:
    """The result waits for exactly these folds, none of them twice."""
    expected = [p for group in groups for p in group]
    need(len(dict(expected)) == len(expected), "two sums pending over one mesh dim")
    need(tuple(sorted(expected)) == step.layout.partial, f"pending: expected {expected}")


def same_partial(step: Step) -> None:
    need(step.layout.partial == step.first.partial, "a fold appears or is lost")


def others(step: Step, index: int) -> None:
    """All dims but `index` are as in the operand."""
    theirs, mine = step.layout.dims, step.first.dims
    need(len(theirs) == len(mine), "another number of dims")
    need(
        all(a == b for i, (a, b) in enumerate(zip(theirs, mine, strict=True)) if i != index),
        "another dim changes",
    )
