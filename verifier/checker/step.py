"""One application of an op on a rank, and what several rules ask of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from verifier.checker.claims import Claim, need
from verifier.kernel.layout import Layout
from verifier.kernel.program.program import Node
from verifier.kernel.program.types import Mesh
from verifier.terms import Ref, Terms


@dataclass(frozen=True, slots=True)
class Step:
    """One application on a rank: claims of the operands, claimed layout of the result."""

    node: Node
    attrs: dict[str, Any]
    args: tuple[Claim, ...]
    dtypes: tuple[str, ...]
    layout: Layout
    mesh: Mesh
    terms: Terms

    def term(self, **attrs: Any) -> Ref:
        """The op on the whole operands, with these attributes instead of the local ones."""
        refs = [a.ref for a in self.args]
        return self.terms.apply(self.node.op, refs, {**self.attrs, **attrs}, self.dtypes)

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
