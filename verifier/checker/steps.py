"""The rules that a certificate rests on, each distinct application looked at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from verifier.checker.claims import Claim, Row, fits, need
from verifier.checker.moves import join, move
from verifier.checker.parts import KINDS, blocks, part
from verifier.checker.rules import derive
from verifier.checker.step import Made, Step
from verifier.kernel.layout import Layout
from verifier.kernel.ops import lookup
from verifier.kernel.program.types import Mesh
from verifier.smt.instances import JOINED, Instance, Piece, normal_form
from verifier.terms import Ref, Terms
from verifier.terms.told import Told


class Steps:
    """Collects them while a certificate is checked."""

    def __init__(self, mesh: Mesh) -> None:
        self.mesh = mesh
        self.seen: dict[tuple[object, ...], Callable[[], Instance]] = {}
        self.made: dict[tuple[object, ...], Made] = {}
        self.tables: list[Told] = []

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
        """The distinct ones, in the order in which they came up."""
        return list(dict.fromkeys(normal_form(made()) for made in self.seen.values()))


def _pieces(given: Sequence[Claim], dtypes: tuple[str, ...]) -> tuple[Piece, ...]:
    kinds = dtypes or ("f32",) * len(given)
    return tuple(
        Piece(c.layout, c.where, kind, c.is_zero) for c, kind in zip(given, kinds, strict=True)
    )


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
    if instance.rule.startswith("blocks:"):
        return blocks(instance.op, attrs, given, made.layout, terms)
    return derive(Step(instance.op, attrs, instance.given, made.layout, mesh)).of(refs, terms)
