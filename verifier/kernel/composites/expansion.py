"""Composite ops: written with primitive ops, so their meaning is not a second opinion.

An op is declared by its expansion, and written out by it.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from shardproof.verifier.kernel.inline import inline
from shardproof.verifier.kernel.ops import Op, Site, lookup, register
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.errors import IRError
from shardproof.verifier.kernel.program.program import IN_ORDER, Node, Program
from shardproof.verifier.kernel.program.types import Attr, TensorType

Body = Callable[..., str | tuple[str, ...]]


def composite(signature: str, **attrs: Any) -> Callable[[Body], Op]:
    """Declare an op by its expansion `(builder, *inputs, **attrs) -> value, or several`."""

    def declare(body: Body) -> Op:
        def types(site: Site) -> tuple[TensorType, ...]:
            b = Builder(site.op)
            names = [b.input(f"i{k}", t) for k, t in enumerate(site.types)]
            return tuple(b.types[v] for v in results(body(b, *names, **site.attrs)))

        name = body.__name__.strip("_")
        return register(Op(name, "composite", signature, types, attrs=attrs, expand=body))

    return declare


def written_out(
    program: Program, bodies: dict[int, Program], names: dict[int, dict[str, str]] | None
) -> Program:
    """`inline` of a program that has composite ops. Raises IRError."""
    b = Builder(program.name, program.mesh)
    for item in program.inputs:
        b.input(item.name, item.type, item.role, item.path, item.where)
    reserved = set(program.types)
    rename: dict[str, str] = {}
    for node in program.nodes:
        _emit(b, node, rename, reserved, bodies, names)
    if names is not None:
        names[id(program)] = rename
    for out in program.outputs:
        b.output(rename.get(out.value, out.value), out.role, out.path)
    return b.build()


def _emit(
    b: Builder,
    node: Node,
    rename: dict[str, str],
    reserved: set[str],
    bodies: dict[int, Program],
    names: dict[int, dict[str, str]] | None,
) -> None:
    op = lookup(node.op)
    inputs = tuple(rename.get(v, v) for v in node.inputs)
    if op.expand is None:
        body = None
        if node.body is not None:
            body = bodies.get(id(node.body)) or inline(node.body, bodies, names)
            bodies[id(node.body)] = body
        b.append(replace(node, inputs=inputs, body=body))
        return
    scratch = _Expansion(b, reserved)
    first = len(b.nodes)
    with b.at(node.source), b.on(**dict(node.where)):
        made = results(op.expand(scratch, *inputs, **op.with_defaults(node.attrs)))
        if node.where:
            made = [scratch.add("only", v) if v in inputs else v for v in made]
    if node.timing != IN_ORDER:
        _time(b, node, first, made)
    rename |= zip(node.outputs, made, strict=True)


def _time(b: Builder, node: Node, first: int, made: Sequence[str]) -> None:
    """Says of the primitives from `first` on what the op says of its time.

    On a stream, they run there in order. Raises IRError where several would be in flight at once.
    """
    timing, ops = node.timing, b.nodes[first:]
    alone = len(ops) == 1 and list(ops[0].outputs) == list(made)
    if (timing.asynchronous or timing.buffer) and not alone:
        raise IRError(
            f"{b.name}: %{node.outputs[0]} = {node.op} is {len(ops)} ops, which async and into "
            f"cannot say of one; write them out, or give it a stream  {node.source}"
        )
    told = timing if alone else replace(timing, asynchronous=False, buffer="")
    b.nodes[first:] = [replace(inner, timing=told) for inner in ops]


class _Expansion(Builder):
    """A view of a builder whose composite ops expand on the spot."""

    def __init__(self, target: Builder, reserved: set[str]) -> None:
        super().__init__(target.name, target.mesh)
        self.target, self.reserved = target, reserved
        self.types = target.types

    def add(self, op: str, *inputs: str, **attrs: Attr) -> str:
        declared = lookup(op)
        if declared.expand is not None:
            return declared.expand(self, *inputs, **declared.with_defaults(attrs))
        name = self.target.fresh("v")
        while name in self.reserved:
            name = self.target.fresh("v")
        self.target.add_node(op, inputs, attrs, outputs=(name,))
        return name


def results(made: str | tuple[str, ...]) -> tuple[str, ...]:
    """The values that an expansion returned."""
    return (made,) if isinstance(made, str) else made
