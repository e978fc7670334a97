"""The program that takes a batch at once, of one that takes it in micro-batches.

Micro-batches are a mesh dim of time (`micro_batches`). By the placement rules each value over that
dim is a piece of a whole one: the program of the whole ones is what is looked for. Nothing here is
trusted: that both compute the same is proved.
"""

from collections.abc import Iterator
from itertools import islice, product

from shardproof.verifier.kernel.layout import Layout
from shardproof.verifier.kernel.ops import Refused, lookup
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.program import Node, Program, live
from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.provers.relate.rules import Rules

MOST = 4
"""Wholes that are kept of a value, and ways to put operands together that are tried."""
Whole = tuple[str, Layout]
"""A value, and how its pieces are laid out."""


def whole_batch(program: Program, dim: str) -> Program | None:
    """The program of the wholes that `program` has the pieces of over `dim`; None where the rules
    do not say them all."""
    if any(n.body is not None or n.where for n in program.nodes):
        return None
    return _Lifting(program, dim).lifted()


class _Lifting:
    def __init__(self, program: Program, dim: str) -> None:
        self.program, self.dim = program, dim
        mesh = program.mesh
        self.rules = Rules(mesh)
        self.b = Builder(program.name, Mesh(tuple(d for d in mesh.dims if d[0] != dim)))
        self.b.reserve(program.types)
        self.held: dict[str, list[Whole]] = {}
        self.known: dict[object, str] = {}

    def lifted(self) -> Program | None:
        for item in self.program.inputs:
            self.b.input(item.name, item.type, item.role, item.path)
            self.held[item.name] = [(item.name, Layout.replicate(item.type.shape))]
        for node in self.program.nodes:
            with self.b.at(node.source):
                found = list(dict.fromkeys(self._wholes(node)))
            if not found:
                return None
            parts = [whole for whole in found if whole[1].mentioned]
            alike = [whole for whole in found if not whole[1].mentioned]
            self.held[node.outputs[0]] = [*parts[: MOST - len(alike[:1])], *alike[:1]]
        for out in self.program.outputs:
            whole = next((v for v, at in self.held[out.value] if not at.mentioned), None)
            if whole is None:
                return None
            self.b.output(whole, out.role, out.path)
        return live(self.b.build())

    def _wholes(self, node: Node) -> Iterator[Whole]:
        """What a value may be a piece of."""
        local = self.program.types[node.outputs[0]].shape
        shapes = self._shapes(local)
        for operands in islice(product(*(self.held[v] for v in node.inputs)), MOST * MOST):
            try:
                layouts = tuple(at for _, at in operands)
                placed = self.rules.place(node, layouts, frozenset(), shapes)
            except Refused:
                continue
            for option in placed:
                (layout,) = option.layouts
                if layout.local_shape != local:
                    continue
                names = tuple(v for v, _ in operands)
                name = names[0] if option.moves else self._add(node.op, names, dict(option.attrs))
                if option.scale != 1:
                    name = self.b.add("mul_scalar", name, value=option.scale)
                if self.b.types[name].shape == layout.global_shape:
                    yield name, layout

    def _shapes(self, local: tuple[int, ...]) -> frozenset[tuple[int, ...]]:
        """Shapes that a value with pieces of a shape may have, for ops that spread one number."""
        copies = self.program.mesh[self.dim]
        wider = [(*local[:d], n * copies, *local[d + 1 :]) for d, n in enumerate(local)]
        return frozenset((local, *wider))

    def _add(self, op: str, operands: tuple[str, ...], attrs: dict[str, object]) -> str:
        attrs = {k: v for k, v in attrs.items() if k in lookup(op).attrs}
        key = op, operands, tuple(sorted(attrs.items()))
        if key not in self.known:
            self.known[key] = self.b.add(op, *operands, **attrs)  # pyright: ignore[reportArgumentType]
        return self.known[key]
