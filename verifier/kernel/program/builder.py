"""Builds programs: names values, infers types through the op registry, checks as it goes."""

from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager

from shardproof.verifier.kernel.program.errors import IRError
from shardproof.verifier.kernel.program.program import (
    IN_ORDER,
    Input,
    Node,
    Output,
    Program,
    Timing,
)
from shardproof.verifier.kernel.program.registry import Refused, infer_types
from shardproof.verifier.kernel.program.residency import region_of
from shardproof.verifier.kernel.program.types import (
    NO_MESH,
    NOWHERE,
    Attr,
    Mesh,
    Source,
    TensorType,
)
from shardproof.verifier.kernel.program.where import EVERYWHERE, Where, ranks_where


class Builder:
    """Appends nodes in order.

    `b.add("mm", x, w)` returns the name of the result (a tuple of names for several results).
    Any op name also works as a method: `b.mm(x, w)`, `b.reshape(x, shape=(2, 3))`.

    Raises:
        IRError: an undefined operand, an unknown op, a name defined twice.
        ShapeError: operands that the op does not accept.
    """

    def __init__(self, name: str, mesh: Mesh = NO_MESH) -> None:
        self.name = name
        self.mesh = mesh
        self.inputs: list[Input] = []
        self.nodes: list[Node] = []
        self.outputs: list[Output] = []
        self.types: dict[str, TensorType] = {}
        self.source = NOWHERE
        self.where = EVERYWHERE
        self.held: dict[str, Where] = {}
        """The ranks that hold each value."""
        self._count = 0
        self._reserved: set[str] = set()

    def reserve(self, names: Iterable[str]) -> None:
        """`fresh` gives none of these names: they are defined later."""
        self._reserved.update(names)

    def fresh(self, hint: str = "") -> str:
        while True:
            self._count += 1
            name = f"{hint}.{self._count}" if hint else str(self._count)
            if name not in self.types and name not in self._reserved:
                return name

    @contextmanager
    def at(self, source: Source) -> Generator[None]:
        """Nodes added inside carry this source location."""
        before, self.source = self.source, source
        try:
            yield
        finally:
            self.source = before

    @contextmanager
    def on(self, **coords: int | Sequence[int]) -> Generator[None]:
        """Nodes and inputs added inside belong to the ranks at these coordinates."""
        chosen = {k: (v,) if isinstance(v, int) else tuple(v) for k, v in coords.items()}
        before, self.where = self.where, ranks_where(self.mesh, {**dict(self.where), **chosen})
        try:
            yield
        finally:
            self.where = before

    def define(self, name: str, type: TensorType) -> str:
        if name in self.types:
            raise IRError(f"{self.name}: %{name} is defined twice")
        self.types[name] = type
        return name

    def input(
        self,
        name: str,
        type: TensorType,
        role: str = "input",
        path: str = "",
        where: Where | None = None,
    ) -> str:
        held = self.where if where is None else where
        self.inputs.append(Input(self.define(name, type), type, role, path or name, held))
        self.held[name] = held
        return name

    def param(self, name: str, type: TensorType, path: str = "") -> str:
        return self.input(name, type, "param", path)

    def add_node(
        self,
        op: str,
        inputs: Sequence[str],
        attrs: dict[str, Attr] | None = None,
        *,
        outputs: Sequence[str] | None = None,
        source: Source | None = None,
        body: Program | None = None,
        where: Where | None = None,
        timing: Timing = IN_ORDER,
    ) -> tuple[str, ...]:
        attrs = dict(attrs or {})
        place = source or self.source
        for value in inputs:
            if value not in self.types:
                raise IRError(f"{self.name}: {op} reads %{value}, which nothing defines  {place}")
        types = infer_types(op, [self.types[v] for v in inputs], attrs, self.mesh, body)
        names = tuple(outputs) if outputs is not None else tuple(self.fresh() for _ in types)
        if len(names) != len(types):
            raise IRError(f"{self.name}: {op} has {len(types)} results, {len(names)} names given")
        for name, type in zip(names, types, strict=True):
            self.define(name, type)
        on = self.where if where is None else where
        node = Node(op, tuple(inputs), names, attrs, place, body, on, timing)
        self.nodes.append(node)
        region = _region(node, [self.held.get(v, EVERYWHERE) for v in inputs], self.mesh)
        self.held |= dict.fromkeys(names, region)
        return names

    def append(self, node: Node) -> tuple[str, ...]:
        """Append a node of another program as it is."""
        return self.add_node(
            node.op,
            node.inputs,
            node.attrs,
            outputs=node.outputs,
            source=node.source,
            body=node.body,
            where=node.where,
            timing=node.timing,
        )

    def add(self, op: str, *inputs: str, **attrs: Attr) -> str:
        """Append a node with one result."""
        (name,) = self.add_node(op, inputs, attrs)
        return name

    def output(self, value: str, role: str = "output", path: str = "") -> None:
        if value not in self.types:
            raise IRError(f"{self.name}: output %{value} is not defined")
        self.outputs.append(Output(value, role, path or value))

    def build(self) -> Program:
        return Program(
            self.name,
            tuple(self.inputs),
            tuple(self.nodes),
            tuple(self.outputs),
            dict(self.types),
            self.mesh,
        )


def _region(node: Node, wheres: Sequence[Where], mesh: Mesh) -> Where:
    """Where a node runs; a program whose ranks cannot run it may be built, and is refused later."""
    try:
        return region_of(node, wheres, mesh)
    except Refused:
        return node.where
