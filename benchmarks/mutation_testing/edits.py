"""Edits of programs: a node replaced by others, in the program or in the body of a scan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count as counted, islice

from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.errors import IRError
from shardproof.verifier.kernel.program.program import Node, Output, Program
from shardproof.verifier.kernel.program.types import Attr, TensorType

Path = tuple[int, ...]
"""Indices of the scan nodes that lead to a body."""


@dataclass(frozen=True)
class Site:
    """A node with the program (or body) that holds it."""

    scope: Program
    index: int
    path: Path = ()
    replicated: frozenset[tuple[str, str]] = frozenset()
    """(input, mesh dim) where the contract gives every rank of the mesh dim the whole input."""

    @property
    def node(self) -> Node:
        return self.scope.nodes[self.index]

    @property
    def types(self) -> dict[str, TensorType]:
        return self.scope.types

    def fresh(self, count: int = 1) -> list[str]:
        """Names that the scope does not use."""
        return list(islice((n for k in counted() if (n := f"new{k}") not in self.types), count))

    def producer(self, value: str) -> Node | None:
        return self.scope.producers().get(value)

    def before(self) -> list[str]:
        """Values that are defined when the node runs."""
        made = [v for n in self.scope.nodes[: self.index] for v in n.outputs]
        return [*(i.name for i in self.scope.inputs), *made]

    def uses(self, value: str) -> int:
        """How many operands and outputs of the scope are this value."""
        read = sum(n.inputs.count(value) for n in self.scope.nodes)
        return read + sum(o.value == value for o in self.scope.outputs)


def sites(
    program: Program, path: Path = (), replicated: frozenset[tuple[str, str]] = frozenset()
) -> Iterator[Site]:
    for index, node in enumerate(program.nodes):
        yield Site(program, index, path, replicated)
        if node.body is not None:
            yield from sites(node.body, (*path, index))


def rebuilt(program: Program, nodes: Sequence[Node], outputs: Sequence[Output]) -> Program | None:
    """The program with other nodes, types inferred anew; None where that is no program."""
    b = Builder(program.name, program.mesh)
    try:
        for item in program.inputs:
            b.input(item.name, item.type, item.role, item.path, item.where)
        for n in nodes:
            b.add_node(
                n.op,
                n.inputs,
                n.attrs,
                outputs=n.outputs,
                source=n.source,
                body=n.body,
                where=n.where,
                timing=n.timing,
            )
        for out in outputs:
            b.output(out.value, out.role, out.path)
    except (IRError, KeyError, IndexError):
        return None
    done = b.build()
    same = all(
        done[o.value].shape == program[p.value].shape
        for o, p in zip(done.outputs, program.outputs, strict=True)
    )
    return done if same else None


def splice(
    root: Program, site: Site, nodes: Sequence[Node], rename: tuple[str, str] | None = None
) -> Program | None:
    """`root` with the node at `site` replaced; `rename` (old, new) redirects later uses."""
    before, after = site.scope.nodes[: site.index], list(site.scope.nodes[site.index + 1 :])
    outputs = list(site.scope.outputs)
    if rename:
        old, new = rename
        after = [replace(n, inputs=tuple(new if v == old else v for v in n.inputs)) for n in after]
        outputs = [replace(o, value=new) if o.value == old else o for o in outputs]
    return with_scope(root, site, rebuilt(site.scope, [*before, *nodes, *after], outputs))


def with_scope(root: Program, site: Site, scope: Program | None) -> Program | None:
    """`root` with the scope of `site` replaced."""
    for depth in range(len(site.path) - 1, -1, -1):
        if scope is None:
            return None
        outer = root
        for index in site.path[:depth]:
            body = outer.nodes[index].body
            assert body is not None
            outer = body
        nodes = list(outer.nodes)
        at = site.path[depth]
        nodes[at] = replace(nodes[at], body=scope)
        scope = rebuilt(outer, nodes, outer.outputs)
    return scope


def with_attrs(node: Node, **attrs: Attr) -> Node:
    return replace(node, attrs={**node.attrs, **attrs})


def wrapped(site: Site, op: str, value: str, attrs: dict[str, Attr]) -> tuple[Node, str]:
    """A new node `op(value)` and the name of its result."""
    (name,) = site.fresh()
    return Node(op, (value,), (name,), attrs, site.node.source), name
