"""`rank_texts(program)`: the concrete program of every rank of a distributed program.

Ranks that run the same nodes share one template; ranks and affine numbers are put in.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from math import prod

import numpy as np
from numpy.typing import NDArray

from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.kernel.program.errors import IRError
from shardproof.verifier.kernel.program.program import Node, Program
from shardproof.verifier.kernel.program.types import Affine, named_mesh_dims
from shardproof.verifier.kernel.program.where import Where, common, contains, process_groups
from shardproof.verifier.kernel.rank_sets import Regions, regions
from shardproof.verifier.text import source_note
from shardproof.verifier.text.printing import show_attr
from shardproof.verifier.text.tokens import quote, value, word

Hole = Callable[[int], str]
"""What a rank has in one place of its text."""
ROOTED = ("broadcast", "scatter")


def rank_texts(program: Program) -> Iterator[tuple[int, bytes]]:
    """The text of every rank, in rank order."""
    writer = _Writer(program)
    templates: dict[bytes, _Template] = {}
    for rank in range(program.mesh.size):
        key = writer.flags[rank].tobytes()
        template = templates.get(key)
        if template is None:
            template = templates[key] = writer.template(rank)
        holes = tuple(hole(rank) for hole in template.holes)
        yield rank, f"rank {rank}\n{template.text % holes}end\n".encode()


@dataclass
class _Template:
    text: str = ""
    holes: list[Hole] = field(default_factory=list[Hole])


class _Writer:
    def __init__(self, program: Program) -> None:
        self.program, self.mesh = program, program.mesh
        self.coords = program.mesh.coords()
        self.places = regions(program)
        for fault in self.places.faults():
            raise IRError(f"{program.name}: {fault.node.op} {fault.reason}  {fault.node.source}")
        self.groups: dict[tuple[str, ...], list[str]] = {}
        sends = [n.outputs[0] for n in program.nodes if n.op == "send"]
        self.tags = {name: i for i, name in enumerate(sends)}
        """Messages by number."""
        self.received: dict[str, list[Node]] = {}
        """For each message, the nodes that receive it."""
        self.read_unreceived: set[str] = {o.value for o in program.outputs} & set(self.tags)
        for node in program.nodes:
            for name in node.inputs:
                if name in self.tags and node.op == "recv":
                    self.received.setdefault(name, []).append(node)
                elif name in self.tags:
                    self.read_unreceived.add(name)
        self.flags = self._flags()

    def _flags(self) -> NDArray[np.bool_]:
        """Which ranks are in which region: one column for each region that is named."""
        wheres: set[Where] = set()

        def visit(scope: Program, places: Regions) -> None:
            wheres.update(places.values.values())
            for item in scope.inputs:
                wheres.add(item.where)
            for node in scope.nodes:
                wheres.update((node.where, self._runs(node, places)))
                if node.body is not None:
                    visit(node.body, places.inside(node))

        visit(self.program, self.places)
        return np.array(
            [[contains(w, c) for w in sorted(wheres)] for c in self.coords], bool
        ).reshape(len(self.coords), len(wheres))

    def _runs(self, node: Node, places: Regions) -> Where:
        """The ranks that run a node."""
        if node.op == "recv" or node.op in ROOTED:
            return places.values[node.outputs[0]]
        if lookup(node.op).kind != "movement" or "mesh_dim" not in node.attrs:
            return places.values[node.outputs[0]]
        held = node.where or places.values[node.inputs[0]]
        if node.op != "send" or self.mesh[_dim(node)] == 1:
            return held
        source = node.number("src")
        return common(held, ((_dim(node), (source,)),)) or held

    def template(self, rank: int) -> _Template:
        out = _Template()
        here = self.coords[rank]
        inputs = tuple(i for i in self.program.inputs if contains(i.where, here))
        held, returned = self.places.values, self.program.outputs
        outputs = tuple(o for o in returned if contains(held[o.value], here))
        mine = replace(self.program, inputs=inputs, outputs=outputs)
        self._scope(out, mine, self.places, rank)
        return out

    def _scope(
        self, out: _Template, scope: Program, places: Regions, rank: int, indent: str = ""
    ) -> None:
        """The statements of a program, or of the body of a repeated block."""
        for item in scope.inputs:
            path = "" if item.path == item.name else f" {quote(item.path)}"
            out.text += _escaped(f"{indent}{item.role} {value(item.name)}: {item.type}{path}\n")
        for node in scope.nodes:
            self._node(out, node, scope, places, rank, indent)
        shown: list[str] = []
        for item in scope.outputs:
            role = "" if item.role == "output" else f"{item.role} "
            path = "" if item.path == item.value else f" {quote(item.path)}"
            shown.append(f"{role}{value(item.value)}{path}")
        out.text += _escaped(f"{indent}return {', '.join(shown)}".rstrip() + "\n")

    def _node(
        self, out: _Template, node: Node, scope: Program, places: Regions, rank: int, indent: str
    ) -> None:
        here = self.coords[rank]
        if node.op in ("send", "recv") and indent:
            raise IRError(f"{scope.name}: {node.op} inside a repeated block is not written")
        if node.op == "send":
            self._send(out, node, rank)
            return
        if not contains(self._runs(node, places), here):
            return
        if node.op == "recv":
            self._recv(out, node, rank)
            return
        names = ", ".join(value(v) for v in node.outputs)
        operands = [v for v in node.inputs if contains(places.values[v], here)]
        if node.op not in (*ROOTED, "merge"):
            operands = list(node.inputs)
        out.text += _escaped(f"{indent}{names} = {node.op}")
        out.text += _escaped(f" {', '.join(map(value, operands))}" if operands else "")
        self._attrs(out, node)
        words = _timing(node)
        if node.body is None:
            words += [":", ", ".join(str(scope.types[v]) for v in node.outputs)]
        else:
            words += ["body", word(node.body.name), "{"]
        note = source_note.show(node.source)
        out.text += _escaped(" ".join(["", *words, *([note] if note else [])]) + "\n")
        if node.body is not None:
            self._scope(out, node.body, places.inside(node), rank, indent + "  ")
            out.text += f"{indent}}}\n"

    def _attrs(self, out: _Template, node: Node) -> None:
        order = {name: i for i, name in enumerate(lookup(node.op).attrs)}
        named = sorted(node.attrs.items(), key=lambda item: order.get(item[0], len(order)))
        for i, (name, attr) in enumerate(named):
            out.text += ", " if i else " {"
            if name == "mesh_dim":
                out.text += "ranks=%s"
                out.holes.append(self._members(_dims(node)))
            elif isinstance(attr, Affine):
                out.text += _escaped(name) + "=%s"
                out.holes.append(self._affine(attr))
            else:
                out.text += _escaped(f"{name}={show_attr(attr)}")
        out.text += "}" if named else ""

    def _members(self, dims: tuple[str, ...]) -> Hole:
        if dims not in self.groups:
            shown = [""] * self.mesh.size
            for group in process_groups(self.mesh, dims):
                text = f"[{', '.join(map(str, group))}]"
                for rank in group:
                    shown[rank] = text
            self.groups[dims] = shown
        return self.groups[dims].__getitem__

    def _affine(self, attr: Affine) -> Hole:
        return lambda rank: str(attr.at(self.coords[rank]))

    def _peer(self, node: Node, key: str) -> Hole:
        name, target = _dim(node), node.attrs[key]
        assert isinstance(target, int)
        stride = prod(size for _, size in self.mesh.dims[self.mesh.names.index(name) + 1 :])
        if self.mesh[name] == 1:
            return str
        return lambda rank: str(rank + (target - self.coords[rank][name]) * stride)

    def _send(self, out: _Template, node: Node, rank: int) -> None:
        sent, here = node.outputs[0], self.coords[rank]
        if contains(self._runs(node, self.places), here):
            out.text += _escaped(f"send {value(node.inputs[0])}") + " {to=%s"
            out.text += _escaped(" ".join([f"{self._tag(sent)}}}", *_timing(node)])) + "\n"
            out.holes.append(self._peer(node, "dst"))
        if sent in self.read_unreceived and contains(self.places.values[sent], here):
            self._received(out, sent, sent, node)

    def _received(self, out: _Template, name: str, sent: str, node: Node) -> None:
        out.text += _escaped(value(name)) + " = recv {from=%s"
        words = _timing(node) if node.op == "recv" else []
        words += [":", str(self.program.types[sent])]
        out.text += _escaped(" ".join([f"{self._tag(sent)}}}", *words])) + "\n"
        out.holes.append(self._peer(node, "src"))

    def _tag(self, sent: str) -> str:
        return f", tag={self.tags[sent]}"

    def _recv(self, out: _Template, node: Node, rank: int) -> None:
        sent, name, here = node.inputs[0], node.outputs[0], self.coords[rank]
        if sent not in self.tags:
            raise IRError(f"{self.program.name}: a recv of %{sent}, which no send puts on its way")
        if sent in self.read_unreceived:
            kind = self.program.types[name]
            out.text += _escaped(f"{value(name)} = only {value(sent)} : {kind}\n")
            return
        for other in self.received[sent]:
            if other is node:
                self._received(out, name, sent, node)
                return
            if contains(self._runs(other, self.places), here):
                first, kind = other.outputs[0], self.program.types[name]
                out.text += _escaped(f"{value(name)} = only {value(first)} : {kind}\n")
                return


def _timing(node: Node) -> list[str]:
    words = ["async"] if node.timing.asynchronous else []
    words += [f"stream({word(node.timing.stream)})"] if node.timing.stream else []
    return words + ([f"into({word(node.timing.buffer)})"] if node.timing.buffer else [])


def _escaped(text: str) -> str:
    return text.replace("%", "%%")


def _dims(node: Node) -> tuple[str, ...]:
    return named_mesh_dims("mesh_dim", node.attrs["mesh_dim"])


def _dim(node: Node) -> str:
    return _dims(node)[0]
