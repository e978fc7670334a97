"""Replaces ops of a program, one pattern at a time, by equal ones."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from fractions import Fraction

from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.program import Node, Program, live
from shardproof.verifier.kernel.program.types import Attr, TensorType
from shardproof.verifier.kernel.program.where import EVERYWHERE, Where


class Rewriting:
    """The program as rewritten so far. Patterns read it and add to it."""

    def __init__(self, program: Program) -> None:
        self.b = Builder(program.name, program.mesh)
        self.b.reserve(program.types)
        self.where: Where = EVERYWHERE
        """The ranks that run the op which a pattern is given."""
        self._made: dict[str, Node] = {}
        self._count = 0

    def type(self, name: str) -> TensorType:
        return self.b.types[name]

    def node(self, name: str) -> Node | None:
        """The op that makes a value; None for an input."""
        while self._count < len(self.b.nodes):
            node = self.b.nodes[self._count]
            self._made.update(dict.fromkeys(node.outputs, node))
            self._count += 1
        return self._made.get(name)

    def made(self, name: str, *ops: str) -> Node | None:
        """The op that makes a value on the same ranks, if it is one of `ops`."""
        node = self.node(name)
        same = node is not None and node.op in ops and node.where == self.where
        return node if same else None

    def through(self, name: str, *ops: str) -> str:
        """The value that `name` is a chain of `ops` of."""
        while node := self.made(name, *ops):
            name = node.inputs[0]
        return name

    def number(self, name: str) -> Fraction | None:
        """The number that all entries of a value are."""
        node = self.made(self.through(name, "reshape", "expand"), "full")
        value = node.attrs["value"] if node is not None else None
        return value if isinstance(value, Fraction) else None

    def add(self, op: str, *inputs: str, **attrs: Attr) -> str:
        return self.b.add(op, *inputs, **attrs)

    def reshape(self, name: str, shape: tuple[int, ...]) -> str:
        return name if self.type(name).shape == shape else self.add("reshape", name, shape=shape)


Pattern = Callable[[Rewriting, Node], str | None]
"""Given an op on rewritten operands: the name of an equal value, or None."""


def rewrite(
    program: Program,
    patterns: Mapping[str, Pattern],
    some_ranks: bool = False,
    reserved: Iterable[str] = (),
) -> Program:
    """The program without the ops that a pattern of their name replaced, nor those then unused.

    Bodies of scans are left as they are; what some ranks alone run is too, unless `some_ranks`.
    No new value has a name of the program or a `reserved` one.
    """
    r = Rewriting(program)
    r.b.reserve(reserved)
    for item in program.inputs:
        r.b.input(item.name, item.type, item.role, item.path, item.where)
    names: dict[str, str] = {}
    for node in program.nodes:
        inputs = tuple(names.get(v, v) for v in node.inputs)
        r.b.append(replace(node, inputs=inputs))
        pattern = patterns.get(node.op)
        if pattern is not None and (some_ranks or not node.where):
            r.where = node.where
            with r.b.at(node.source), r.b.on(**dict(node.where)):
                equal = pattern(r, r.b.nodes[-1])
            if equal is not None:
                names[node.outputs[0]] = equal
    for out in program.outputs:
        r.b.output(names.get(out.value, out.value), out.role, out.path)
    return live(r.b.build())
