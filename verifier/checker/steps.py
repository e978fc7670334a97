"""The rules that a certificate rests on, each distinct application looked at once."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from shardproof.verifier.checker.claims import Claim, Row
from shardproof.verifier.checker.rules import derive
from shardproof.verifier.checker.step import Made, Step
from shardproof.verifier.kernel.instance import JOINED, Instance, Piece
from shardproof.verifier.kernel.layout import Layout
from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.terms import Terms


class Steps:
    """Collects them while a certificate is checked."""

    def __init__(self, mesh: Mesh) -> None:
        self.mesh = mesh
        self.seen: dict[tuple[object, ...], Callable[[], Instance]] = {}
        self.made: dict[tuple[object, ...], Made] = {}
        self.tables: list[Terms] = []

    def derived(
        self,
        op: str,
        attrs: Mapping[str, Any],
        given: Sequence[Claim],
        dtypes: tuple[str, ...],
        row: Row,
        layout: Layout,
    ) -> Made:
        """What a rule of the checker makes of claims about operands of these dtypes.

        Raises NotShownError.
        """
        key = self.add(op, attrs, given, dtypes, op, row, layout)
        found = self.made.get(key)
        if found is None:
            step = Step(op, dict(attrs), _pieces(given, dtypes), layout, self.mesh)
            found = self.made[key] = derive(step)
        return found

    def add(
        self,
        op: str,
        attrs: Mapping[str, Any],
        given: Sequence[Claim],
        dtypes: tuple[str, ...],
        rule: str,
        row: Row,
        layout: Layout | None = None,
    ) -> tuple[object, ...]:
        """Take note of a step, and say by what it is told from others."""
        layout = layout or row.layout
        laid = [layout, *(c.layout for c in given)]
        wheres = [row.where, *(c.where for c in given)]
        if op != JOINED and "mesh_dim" not in attrs:
            names = {name for where in wheres for name, _ in where}
            wheres = wheres if any(names & one.mentioned for one in laid) else []
        zeros = tuple(c.is_zero for c in given)
        named = tuple(sorted(attrs.items()))
        key = (rule, op, named, *laid, *wheres, zeros, dtypes)
        if key not in self.seen:
            made = Piece(layout, row.where)
            pieces = _pieces(given, dtypes)
            self.seen[key] = partial(Instance, rule, op, named, pieces, made, self.mesh)
        return key

    def instances(self) -> list[Instance]:
        """Those that came up, in their order."""
        return [made() for made in self.seen.values()]


def _pieces(given: Sequence[Claim], dtypes: tuple[str, ...]) -> tuple[Piece, ...]:
    kinds = dtypes or ("f32",) * len(given)
    return tuple(
        Piece(c.layout, c.where, kind, c.is_zero) for c, kind in zip(given, kinds, strict=True)
    )
