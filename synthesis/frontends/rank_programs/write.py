"""The text of one rank, as `read_ranks` reads it, from the program that the rank runs."""

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.kernel.program.errors import IRError
from shardproof.verifier.kernel.program.program import Node, Program
from shardproof.verifier.kernel.program.types import Affine, Attr, named_mesh_dims
from shardproof.verifier.kernel.program.where import process_groups
from shardproof.verifier.text import source_note
from shardproof.verifier.text.printing import show_attr
from shardproof.verifier.text.tokens import quote, value, word


def rank_text(program: Program, rank: int) -> bytes:
    """The text of one rank of which this is the program: it runs all of it, the operand of a recv
    is what arrives, and no send waits.

    Raises:
        IRError: a message inside a repeated block.
    """
    arriving = {n.inputs[0] for n in program.nodes if n.op == "recv"}
    kept = tuple(i for i in program.inputs if i.name not in arriving)
    lines = _Rank(program, rank).lines(replace(program, inputs=kept))
    return "\n".join([f"rank {rank}", *lines, "end", ""]).encode()


class _Rank:
    """One rank of a mesh, and how it says what it runs."""

    def __init__(self, program: Program, rank: int) -> None:
        self.rank, self.mesh = rank, program.mesh
        self.here = self.mesh.coords()[rank]
        self.groups: dict[tuple[str, ...], tuple[int, ...]] = {}

    def lines(self, scope: Program, indent: str = "") -> Iterator[str]:
        """The statements of a program, or of the body of a repeated block."""
        for item in scope.inputs:
            path = _path(item.path, item.name)
            yield f"{indent}{item.role} {value(item.name)}: {item.type}{path}"
        for node in scope.nodes:
            yield from self.node(node, scope, indent)
        shown: list[str] = []
        for item in scope.outputs:
            role = "" if item.role == "output" else f"{item.role} "
            shown.append(f"{role}{value(item.value)}{_path(item.path, item.value)}")
        yield f"{indent}return {', '.join(shown)}".rstrip()

    def node(self, node: Node, scope: Program, indent: str) -> Iterator[str]:
        if node.op in ("send", "recv") and indent:
            raise IRError(f"{scope.name}: {node.op} inside a repeated block is not written")
        note = [shown] if (shown := source_note.show(node.source)) else []
        types = [":", ", ".join(str(scope.types[v]) for v in node.outputs)]
        if node.op == "send":
            if self.mesh[_dims(node)[0]] == 1 or self.here[_dims(node)[0]] == node.attrs["src"]:
                head = f"send {value(node.inputs[0])} {{to={self.peer(node, 'dst')}}}"
                yield " ".join([head, "async", *note])
            return
        names = ", ".join(map(value, node.outputs))
        if node.op == "recv":
            head = f"{names} = recv {{from={self.peer(node, 'src')}}}"
            yield " ".join([head, *_timing(node), *types, *note])
            return
        head = f"{indent}{names} = {node.op}"
        words = [", ".join(map(value, node.inputs))] if node.inputs else []
        order = {name: i for i, name in enumerate(lookup(node.op).attrs)}
        named = sorted(node.attrs.items(), key=lambda item: order.get(item[0], len(order)))
        attrs = ", ".join(self.attr(node, name, attr) for name, attr in named)
        words += [f"{{{attrs}}}"] if attrs else []
        words += _timing(node)
        words += types if node.body is None else ["body", word(node.body.name), "{"]
        yield " ".join([head, *words, *note])
        if node.body is not None:
            yield from self.lines(node.body, indent + "  ")
            yield f"{indent}}}"

    def attr(self, node: Node, name: str, attr: Attr) -> str:
        """An attribute on this rank: its group for mesh dims, a number for what is affine."""
        if name == "mesh_dim":
            dims = _dims(node)
            if dims not in self.groups:
                groups = process_groups(self.mesh, dims)
                self.groups[dims] = next(tuple(g) for g in groups if self.rank in g)
            return f"ranks={show_attr(self.groups[dims])}"
        return f"{name}={attr.at(self.here) if isinstance(attr, Affine) else show_attr(attr)}"

    def peer(self, node: Node, key: str) -> int:
        """The other rank of a message."""
        (name, *_), dims = _dims(node), self.mesh.dims
        if self.mesh[name] == 1:
            return self.rank
        stride = prod(size for _, size in dims[self.mesh.names.index(name) + 1 :])
        return self.rank + (node.number(key) - self.here[name]) * stride


def _path(path: str, name: str) -> str:
    return "" if path == name else f" {quote(path)}"


def _dims(node: Node) -> tuple[str, ...]:
    return named_mesh_dims("mesh_dim", node.attrs["mesh_dim"])


def _timing(node: Node) -> list[str]:
    words = ["async"] if node.timing.asynchronous else []
    words += [f"stream({word(node.timing.stream)})"] if node.timing.stream else []
    return words + ([f"into({word(node.timing.buffer)})"] if node.timing.buffer else [])
