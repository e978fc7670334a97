"""A one-device program on rows in another order: inputs whose chunks lie as ranks have them.

An op of which a placement rule says that it works on the chunks one by one, each in the same way,
gives the same chunks in that order too; one that folds them gives what it gave. So the order is
carried from the inputs through the program, and undone before an op of which no rule says so. A
table becomes one with its entries in that order.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations, islice, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardproof.synthesis.frontends.torch.aten.table import content_name
from shardproof.verifier.kernel.layout import Atom, Layout, normal
from shardproof.verifier.kernel.ops import Refused, lookup
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.errors import IRError
from shardproof.verifier.kernel.program.program import Input, Node, Program, live
from shardproof.verifier.kernel.program.registry import infer_types
from shardproof.verifier.kernel.program.types import NO_MESH, Attr, Mesh
from shardproof.verifier.ops import facets
from shardproof.verifier.provers.relate.rules import Rules

MOST = 64
"""Ways in which operands may lie that are tried for an op."""
ROWS = ("rows", "columns")
"""Names of the chunks in layouts: along two dims of one value at once, as in scores."""
Tables = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Chunks:
    """Chunks of equal extent along a dim, in the order in which they lie."""

    dim: int
    order: tuple[int, ...]


def permuted(
    program: Program,
    inputs: Mapping[str, Chunks],
    outputs: Mapping[str, Chunks],
    tables: Tables,
    along: int,
) -> tuple[Program, dict[str, NDArray[Any]]]:
    """The program that gives what `program` gives, for inputs whose chunks lie in these orders,
    with its tables. Outputs that are named have theirs so too; other outputs are the same. One
    order is of all; chunks lie so along as many dims of a value as `along` says, at most."""
    return _Carrying(program, inputs, outputs, tables, ROWS[:along]).carried()


class _Carrying:
    def __init__(
        self,
        program: Program,
        inputs: Mapping[str, Chunks],
        outputs: Mapping[str, Chunks],
        tables: Tables,
        names: tuple[str, ...],
    ) -> None:
        self.program, self.inputs, self.outputs, self.names = program, inputs, outputs, names
        self.tables = dict(tables)
        (self.order,) = {chunks.order for chunks in (*inputs.values(), *outputs.values())}
        self.back = tuple(map(self.order.index, range(len(self.order))))
        self.rules = Rules(Mesh(tuple((name, len(self.order)) for name in names)))
        self.b = Builder(program.name, program.mesh)
        self.b.reserve(program.types)
        ordered = [(i, self._chunks(i)) for i in program.inputs]
        self.extents = {i.type.shape[c.dim] for i, c in ordered if c is not None}
        self.shapes = frozenset(t.shape for t in program.types.values())
        self.states: dict[str, dict[Layout, str]] = {}
        """How each value lies that the new program has, with its name there: chunks in the order
        are bound to `rows`."""
        self.made: dict[str, Node] = {}
        """The op of each value that is made of tables alone, or that spreads another and so lies in
        any order: it is computed where it is read."""

    def _chunks(self, item: Input) -> Chunks | None:
        """How an input lies; a cotangent lies as its output does."""
        by = {"input": self.inputs, "cotangent": self.outputs}.get(item.role, {})
        return by.get(item.path)

    def carried(self) -> tuple[Program, dict[str, NDArray[Any]]]:
        for item in self.program.inputs:
            if item.role == "const" and item.name in self.tables:
                self.states[item.name] = {}
                continue
            self.b.input(item.name, item.type, item.role, item.path)
            state = self._whole(item.name)
            if (chunks := self._chunks(item)) is not None:
                state = self._split(state, chunks.dim)
            self.states[item.name] = {state: item.name}
        for node in self.program.nodes:
            with self.b.at(node.source):
                self._take(node)
        for out in self.program.outputs:
            state = self._whole(out.value)
            if out.path in self.outputs:
                state = self._split(state, self.outputs[out.path].dim)
            self.b.output(self._get(out.value, state), out.role, out.path)
        program = live(self.b.build())
        read = {i.name for i in program.inputs}
        return program, {name: table for name, table in self.tables.items() if name in read}

    def _whole(self, value: str) -> Layout:
        return Layout.replicate(self.program.types[value].shape)

    def _split(self, layout: Layout, dim: int) -> Layout:
        count = len(self.order)
        (own,) = layout.dims[dim]
        return layout.with_dim(dim, (Atom(count, ROWS[0]), Atom(own.size // count)))

    def _is_table(self, value: str) -> bool:
        return value in self.made or (value in self.tables and value in self.states)

    def _lies(self, value: str) -> bool:
        """Whether a value has chunks in the order, as it was made."""
        return any(state.sharded for state in islice(self.states[value], 1))

    def _take(self, node: Node) -> None:
        plain = node.body is None and len(node.outputs) == 1
        spreads = plain and facets(node.op).spreads and not any(map(self._lies, node.inputs))
        if spreads or (plain and all(map(self._is_table, node.inputs))):
            self.made[node.outputs[0]] = node
            self.states[node.outputs[0]] = {}
            return
        found = next(self._ways(node), None) if plain else None
        given = found[0] if found else tuple(map(self._whole, node.inputs))
        names = [self._get(v, state) for v, state in zip(node.inputs, given, strict=True)]
        made = self.b.add_node(node.op, names, dict(node.attrs), body=node.body)
        for value, name in zip(node.outputs, made, strict=True):
            self.states[value] = {found[1] if found else self._whole(value): name}

    def _ways(self, node: Node) -> Iterator[tuple[tuple[Layout, ...], Layout]]:
        """How operands may lie, not all of them whole, and how the result lies then."""
        first = [[next(iter(self.states[v]), self._whole(v))] for v in node.inputs]
        lying = {state for (state,) in first}
        tables = [self._may(v, lying) if self._is_table(v) else [] for v in node.inputs]
        undone = [
            [*dict.fromkeys((*f, self._whole(v)))] for f, v in zip(first, node.inputs, strict=True)
        ]
        for options in (
            [[*f, *t] for f, t in zip(first, tables, strict=True)],
            [[*u, *t] for u, t in zip(undone, tables, strict=True)],
        ):
            for given in islice(product(*options), MOST):
                if any(state.sharded for state in given):
                    yield from ((given, state) for state in self._results(node, given))

    def _may(self, value: str, lying: set[Layout]) -> list[Layout]:
        """How a table may lie: with the order along its dims of as many rows, or as another."""
        whole = self._whole(value)
        dims = [d for d, n in enumerate(whole.global_shape) if n in self.extents]
        found = [s for s in lying if s.global_shape == whole.global_shape and s.sharded]
        for count in range(1, len(self.names) + 1):
            for chosen in combinations(dims, count):
                state = whole
                for dim in chosen:
                    state = self._split(state, dim)
                found.append(state)
        return list(dict.fromkeys(found))

    def _results(self, node: Node, given: tuple[Layout, ...]) -> Iterator[Layout]:
        """How the result lies where operands lie so, by the placement rules."""
        (out,) = node.outputs
        shape = self.program.types[out].shape
        for layouts in product(*map(self._named, given)):
            types = [
                replace(self.program.types[v], shape=at.local_shape)
                for v, at in zip(node.inputs, layouts, strict=True)
            ]
            for attrs in self._local(node, shape):
                try:
                    (local,) = infer_types(node.op, types, attrs, NO_MESH, None)
                    asked = replace(node, attrs=attrs)
                    placed = self.rules.place(asked, layouts, frozenset(), self.shapes)
                except (Refused, IRError):
                    continue
                for option in placed:
                    (layout,) = option.layouts
                    same = _attrs(node.op, dict(option.attrs)) == _attrs(node.op, node.attrs)
                    fits = (layout.global_shape, layout.local_shape) == (shape, local.shape)
                    if fits and same and option.scale == 1 and not option.moves:
                        yield Layout(tuple(normal(map(_unnamed, dim)) for dim in layout.dims))

    def _named(self, state: Layout) -> Iterator[Layout]:
        """The layout with names of their own for the chunks along each dim."""
        count = sum(a.mesh_dim is not None for dim in state.dims for a in dim)
        for names in [()] if not count else combinations_of(self.names, count):
            left = iter(names)
            yield Layout(
                tuple(
                    tuple(a if a.mesh_dim is None else Atom(a.size, next(left)) for a in dim)
                    for dim in state.dims
                )
            )

    def _local(self, node: Node, shape: tuple[int, ...]) -> Iterator[dict[str, Attr]]:
        """The attributes that the op may have on chunks: its extents may be those of a chunk."""
        yield dict(node.attrs)
        keys = [k for k, v in node.attrs.items() if isinstance(v, tuple) and v == shape]
        count = len(self.order)
        dims = [d for d, n in enumerate(shape) if n % count == 0]
        for many in range(1, len(self.names) + 1) if keys else ():
            for chosen in combinations(dims, many):
                less = tuple(n // count if d in chosen else n for d, n in enumerate(shape))
                yield {**node.attrs, **dict.fromkeys(keys, less)}

    def _get(self, value: str, state: Layout) -> str:
        """The value as it lies so, in the new program."""
        known = self.states[value]
        if state in known:
            return known[state]
        if value in self.made:
            known[state] = self._computed(self.made[value], state)
        elif value in self.tables and not known:
            table = self._laid(self.tables[value], state)
            name = value if not state.sharded else content_name(table)
            if name not in self.b.types:
                self.b.input(name, self.program.types[value], "const", name)
            self.tables[name] = table
            return name
        else:
            whole = self._whole(value)
            if whole not in known:
                other, name = next(iter(known.items()))
                known[whole] = self._put(name, other, self.back)
            if state not in known:
                known[state] = self._put(known[whole], state, self.order)
        return known[state]

    def _computed(self, node: Node, state: Layout) -> str:
        """A value of tables alone, as it lies so: of operands that lie so that it does."""
        whole = tuple(map(self._whole, node.inputs))
        options = [[w, *self._may(v, {state})] for w, v in zip(whole, node.inputs, strict=True)]
        options = [
            list(dict.fromkeys((*o, *self.states[v])))
            for o, v in zip(options, node.inputs, strict=True)
        ]
        given = next(
            (
                way
                for way in islice(product(*options), MOST)
                if state.sharded and state in self._results(node, way)
            ),
            whole,
        )
        with self.b.at(node.source):
            names = [self._get(v, at) for v, at in zip(node.inputs, given, strict=True)]
            (made,) = self.b.add_node(node.op, names, dict(node.attrs))
            put = state.sharded and given == whole and state not in self._results(node, whole)
            return self._put(made, state, self.order) if put else made

    def _put(self, name: str, state: Layout, order: tuple[int, ...]) -> str:
        """A value whose chunks lie in an order, where a layout binds them."""
        for dim, atoms in enumerate(state.dims):
            shape, at = self.b.types[name].shape, 0
            if not any(a.mesh_dim for a in atoms):
                continue
            place = next(i for i, a in enumerate(atoms) if a.mesh_dim)
            if len(atoms) > 2 or place > 0:
                sizes = [a.size for a in atoms]
                name = self.b.add("reshape", name, shape=(*shape[:dim], *sizes, *shape[dim + 1 :]))
                at = place
            step = self.b.types[name].shape[dim + at] // len(order)
            parts = (
                self.b.add("slice", name, dim=dim + at, start=c * step, stop=(c + 1) * step, step=1)
                for c in order
            )
            name = self.b.add("concat", *parts, dim=dim + at)
            if self.b.types[name].shape != shape:
                name = self.b.add("reshape", name, shape=shape)
        return name

    def _laid(self, table: NDArray[Any], state: Layout) -> NDArray[Any]:
        atoms = [a for dim in state.dims for a in dim]
        laid = table.reshape([a.size for a in atoms])
        for axis, atom in enumerate(atoms):
            if atom.mesh_dim is not None:
                laid = np.take(laid, self.order, axis=axis)
        return laid.reshape(table.shape)


def combinations_of(names: tuple[str, ...], count: int) -> Iterator[tuple[str, ...]]:
    """Ways to name so many things, each otherwise."""
    return (ways for ways in product(names, repeat=count) if len(set(ways)) == count)


def _unnamed(atom: Atom) -> Atom:
    return Atom(atom.size, None if atom.mesh_dim is None else ROWS[0])


def _attrs(op: str, attrs: Mapping[str, Attr]) -> dict[str, Attr]:
    known = lookup(op)
    return dict(known.with_defaults({k: v for k, v in attrs.items() if k in known.attrs}))
