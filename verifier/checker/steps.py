"""The rules that a certificate rests on, each distinct application once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from verifier.checker.claims import Claim, Row, fits, need
from verifier.checker.moves import join, move
from verifier.checker.parts import KINDS, blocks, part
from verifier.checker.rules import derive
from verifier.checker.step import Step
from verifier.kernel.ops import lookup
from verifier.kernel.program.program import Node
from verifier.kernel.program.types import Mesh
from verifier.smt.instances import JOINED, Instance, Piece, normal_form
from verifier.terms import Ref, Terms
from verifier.terms.told import Told


class Steps:
    """Collects them while a certificate is checked."""

    def __init__(self, mesh: Mesh) -> None:
        self.mesh = mesh
        self.seen: dict[Instance, Instance] = {}
        self.tables: list[Told] = []

    def add(
        self,
        row: Row,
        op: str,
        attrs: Mapping[str, Any],
        given: Sequence[Claim],
        dtypes: Iterable[str] = (),
    ) -> None:
        """Take note of a step that follows from claims about operands of these dtypes."""
        kinds = [*dtypes] or ["f32"] * len(given)
        pieces = tuple(
            Piece(c.layout, c.where, kind, c.is_zero) for c, kind in zip(given, kinds, strict=True)
        )
        made = Piece(row.layout, row.where)
        found = Instance(row.rule, op, tuple(sorted(attrs.items())), pieces, made, self.mesh)
        if found not in self.seen:
            self.seen[found] = normal_form(found)

    def instances(self) -> list[Instance]:
        """The distinct ones, in the order in which they came up."""
        return list(dict.fromkeys(self.seen.values()))


def conclude(instance: Instance, refs: Sequence[Ref], terms: Terms) -> Ref:
    """What the checker takes the result for, of operands that are these terms.

    Raises NotShownError.
    """
    mesh, made = instance.mesh, instance.made
    given = tuple(
        Claim(ref, p.layout, p.where) for ref, p in zip(refs, instance.given, strict=True)
    )
    row = Row(None, None, made.layout, (), instance.rule, made.where)
    fits(made.layout, mesh, made.layout.local_shape)
    if instance.op == JOINED:
        if any(kind in KINDS for kind in instance.rule.split(":")[1:2]):
            everywhere = frozenset(mesh.names)
            return part(row, given, "", everywhere, False, terms, mesh)
        return join(row, given, terms, mesh)
    attrs = lookup(instance.op).with_defaults(dict(instance.attrs))
    if lookup(instance.op).kind == "movement":
        need(len(given) == 1, "a movement rests on one claim")
        return move(instance.op, attrs, row, given[0], terms, mesh)
    names = tuple(f"i{k}" for k in range(len(given)))
    node = Node(instance.op, names, ("out",), dict(instance.attrs))
    if instance.rule.startswith("blocks:"):
        return blocks(node, given, made.layout, terms)
    dtypes = tuple(p.dtype for p in instance.given)
    return derive(Step(node, attrs, given, dtypes, made.layout, mesh, terms))
