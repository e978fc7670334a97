"""A `Program`: SSA over tensors, the same for one device and for the ranks of a mesh.

A distributed program is one text run by every rank; its types are the *local* shapes and its
attributes may be `Affine` in mesh coordinates. `scan` nodes hold the body of repeated blocks.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from shardproof.verifier.kernel.program.types import (
    NO_MESH,
    NOWHERE,
    Attr,
    Mesh,
    Source,
    TensorType,
)
from shardproof.verifier.kernel.program.where import EVERYWHERE, Where

INPUT_ROLES = ("param", "input", "const", "cotangent", "carry", "xs")
OUTPUT_ROLES = ("output", "loss", "grad", "carry", "ys")


@dataclass(frozen=True, slots=True)
class Input:
    """An input of a program."""

    name: str
    type: TensorType
    role: str = "input"
    path: str = ""
    """For a param: its name in the owner's model, `*` for the layers of a repeated block."""
    where: Where = EVERYWHERE
    """The ranks that hold it."""


@dataclass(frozen=True, slots=True)
class Output:
    """An output of a program: a value with the role it plays."""

    value: str
    role: str = "output"
    path: str = ""
    """For a grad: the path of its param. For an output: its name in the owner's result."""


@dataclass(frozen=True, slots=True)
class Timing:
    """How a node runs in time. It says nothing about values."""

    asynchronous: bool = False
    """The result is in flight until a `wait` reads it."""
    stream: str = ""
    buffer: str = ""
    """The storage that the result is written to; two nodes may name the same one."""


IN_ORDER = Timing()


@dataclass(frozen=True)
class Node:
    """One op application. `outputs` are the names it defines."""

    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: dict[str, Attr] = field(default_factory=dict[str, "Attr"])
    source: Source = NOWHERE
    body: Program | None = None
    """Only for `scan`: inputs are carries, then one slice of each xs, then consts."""
    where: Where = EVERYWHERE
    """The ranks that run it; where nothing is said, all those that hold its operands."""
    timing: Timing = IN_ORDER

    @property
    def block(self) -> Program:
        """The body of a scan."""
        assert self.body is not None
        return self.body

    def number(self, name: str) -> int:
        """An attribute that is an integer, and said."""
        value = self.attrs[name]
        assert isinstance(value, int)
        return value

    def numbers(self, name: str) -> tuple[int, ...]:
        """An attribute that is a tuple of integers, and said."""
        value = self.attrs[name]
        assert isinstance(value, tuple)
        return tuple(n for n in value if isinstance(n, int))


@dataclass(frozen=True)
class Program:
    """Inputs, nodes in order, outputs. `types` gives the type of every value."""

    name: str
    inputs: tuple[Input, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[Output, ...]
    types: dict[str, TensorType]
    mesh: Mesh = NO_MESH
    """No dims: a one-device program."""

    def __getitem__(self, value: str) -> TensorType:
        return self.types[value]

    def input(self, name: str) -> Input:
        for item in self.inputs:
            if item.name == name:
                return item
        raise KeyError(name)

    def producers(self) -> dict[str, Node]:
        return {out: node for node in self.nodes for out in node.outputs}

    def walk(self) -> Iterator[tuple[Program, Node]]:
        """Every node with the program that holds it, bodies of scans included."""
        for node in self.nodes:
            yield self, node
            if node.body is not None:
                yield from node.body.walk()

    def scopes(self) -> list[Program]:
        """The program and the bodies of its scans, each once though several nodes share it."""
        found, left = dict[int, Program](), [self]
        while left:
            scope = left.pop()
            if id(scope) not in found:
                found[id(scope)] = scope
                left += [node.body for node in scope.nodes if node.body is not None]
        return list(found.values())

    def distinct(self) -> Iterator[tuple[Program, Node]]:
        """As `walk`, in another order, and a shared body once."""
        return ((scope, node) for scope in self.scopes() for node in scope.nodes)

    def renamed(self, names: Mapping[str, str]) -> Program:
        """The program with other names for some of its values."""

        def named(values: Iterable[str]) -> tuple[str, ...]:
            return tuple(names.get(v, v) for v in values)

        return replace(
            self,
            inputs=tuple(replace(i, name=names.get(i.name, i.name)) for i in self.inputs),
            nodes=tuple(
                replace(n, inputs=named(n.inputs), outputs=named(n.outputs)) for n in self.nodes
            ),
            outputs=tuple(replace(o, value=names.get(o.value, o.value)) for o in self.outputs),
            types={names.get(v, v): t for v, t in self.types.items()},
        )

    def with_nodes(self, nodes: list[Node], types: dict[str, TensorType]) -> Program:
        return replace(self, nodes=tuple(nodes), types=types)


def unused(name: str, taken: Container[str], mark: str = "") -> str:
    """The name, or where it is taken the first that is not, with a number behind `mark`."""
    found, count = name, 1
    while found in taken:
        count += 1
        found = f"{name}{mark}{count}"
    return found


def in_order(program: Program) -> bool:
    """Whether the ranks can only run it in the order of its text: no message, nothing in flight."""
    return all(node.timing == IN_ORDER and node.op != "recv" for _, node in program.distinct())


def live(program: Program) -> Program:
    """The program without the nodes that no output depends on. Bodies are left as they are."""
    kept = leading_to({o.value for o in program.outputs}, program.nodes)
    names = {i.name for i in program.inputs} | {v for n in kept for v in n.outputs}
    types = {v: t for v, t in program.types.items() if v in names}
    return program.with_nodes(kept, types)


def leading_to(values: Collection[str], nodes: Sequence[Node]) -> list[Node]:
    """Those nodes, in their order, that some of the values depend on."""
    needed, kept = set(values), list[Node]()
    for node in reversed(nodes):
        if not needed.isdisjoint(node.outputs):
            kept.append(node)
            needed.update(node.inputs)
    return kept[::-1]
