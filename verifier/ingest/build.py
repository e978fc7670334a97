"""The united nodes as one Program: sets of ranks become `on(...)`, cut into products."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from verifier.ingest.groups import Regions
from verifier.ingest.unite import Piece, United, Whole
from verifier.ir.program import Input, Node, Output, Program
from verifier.ir.types import TensorType
from verifier.ir.where import EVERYWHERE, Where, joined, moved

MAX_BOXES = 64


class Unwritten(Exception):
    """Ranks that are no union of few products, where one value must live on all of them."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A value of the program that is written: where it lives, and its name."""

    name: str
    where: Where
    bits: int


class _Writer:
    def __init__(self, whole: Whole, regions: Regions) -> None:
        self.whole, self.regions = whole, regions
        self.mesh = regions.grid.mesh
        self.types: dict[str, TensorType] = {}
        self.nodes: list[Node] = []
        self.parts: dict[int, list[_Part]] = {}
        self.bodies: dict[Where, int] = {}
        self.made: dict[tuple[tuple[Piece, ...], Where], str] = {}
        self.boxed: dict[tuple[int, tuple[str, ...]], list[Where]] = {}

    def boxes(self, bits: int, uncut: tuple[str, ...] = ()) -> list[Where]:
        key = (bits, uncut)
        if key not in self.boxed:
            self.boxed[key] = self.regions.boxes(bits, uncut)
        found = self.boxed[key]
        if not found or len(found) > MAX_BOXES:
            raise Unwritten("a set of ranks is no union of few products of coordinates")
        return found

    def members(self, where: Where) -> int:
        if where not in self.bodies:
            self.bodies[where] = self.regions.members(where)
        return self.bodies[where]

    def fresh(self, hint: str) -> str:
        name, count = hint, 1
        while name in self.types:
            count += 1
            name = f"{hint}.v{count}"
        return name

    def emit(
        self,
        op: Node,
        operands: Sequence[str],
        hints: Sequence[str],
        types: Sequence[TensorType],
        where: Where,
    ) -> tuple[str, ...]:
        names: list[str] = []
        for hint, type in zip(hints, types, strict=True):
            names.append(self.fresh(hint))
            self.types[names[-1]] = type
        self.nodes.append(
            replace(op, inputs=tuple(operands), outputs=tuple(names), where=where)
        )
        return tuple(names)

    def local(self, op: str, operands: Sequence[str], hint: str, where: Where) -> str:
        type = self.types[operands[0]]
        return self.emit(Node(op, (), ()), operands, [hint], [type], where)[0]

    def operand(self, value: int, where: Where) -> str:
        """The name of a value that lives on all ranks of a product."""
        return self.gathered([(value, self.members(where))], where)

    def gathered(self, pieces: Sequence[Piece], where: Where) -> str:
        """One name on all ranks of a product, from pieces that make it up."""
        key = (tuple(pieces), where)
        if key not in self.made:
            self.made[key] = self._gather(pieces, where)
        return self.made[key]

    def _gather(self, pieces: Sequence[Piece], where: Where) -> str:
        need = self.members(where)
        taken: list[_Part] = []
        for value, mask in pieces:
            hint = self.whole.values[value].name
            for part in self.parts[value]:
                shared = part.bits & mask & need
                if not shared:
                    continue
                if shared == need:
                    return part.name
                if shared == part.bits:
                    taken.append(part)
                    continue
                for box in self.boxes(shared):
                    name = self.local("only", [part.name], hint, box)
                    taken.append(_Part(name, box, self.members(box)))
        hint = self.whole.values[pieces[0][0]].name
        order = self._order(taken)
        return self.local("merge", [p.name for p in order], hint, EVERYWHERE)

    def _order(self, parts: list[_Part]) -> list[_Part]:
        """The parts in an order in which each union is a product."""
        for start in parts:
            order, whole, left = [start], start.where, [p for p in parts if p is not start]
            while left:
                found = next(
                    ((p, w) for p in left if (w := joined(whole, p.where, self.mesh)) is not None),
                    None,
                )
                if found is None:
                    break
                order.append(found[0])
                whole = found[1]
                left.remove(found[0])
            if not left:
                return order
        raise Unwritten("a value is made up of pieces whose ranks make no product one by one")

    def node(self, item: United) -> None:
        out = item.outputs[0]
        if item.pieces:
            parts: list[_Part] = []
            for box in self.boxes(item.runs):
                bits = self.members(box)
                name = self.gathered(item.pieces, box)
                parts.append(_Part(name, box, bits))
            self.parts[out] = parts
            return
        for value in item.outputs:
            self.parts[value] = []
        for box in self.boxes(item.runs, item.dims):
            operands = [self._given(v, box, item) for v in item.operands]
            names = self.emit(item.node, operands, item.names, item.types, box)
            held = self._result(item, box)
            bits = self.members(held)
            for value, name in zip(item.outputs, names, strict=True):
                self.parts[value].append(_Part(name, held, bits))

    def _given(self, value: int, box: Where, item: United) -> str:
        """An operand: the root of a broadcast may be the only one that has it."""
        region = self.whole.values[value].region
        need = self.members(box) & region
        if need == self.members(box):
            return self.operand(value, box)
        found = self.boxes(need)
        if len(found) != 1:
            raise Unwritten(f"the ranks that give a value to the {item.node.op} are no product")
        return self.operand(value, found[0])

    def _result(self, item: United, box: Where) -> Where:
        """Where the result of a node lives."""
        node = item.node
        if node.op == "send":
            name, target = node.attrs["mesh_dim"], node.attrs["dst"]
            assert isinstance(name, str)
            assert isinstance(target, int)
            return moved(box, self.mesh, name, target)
        region = self.whole.values[item.outputs[0]].region & self.members(box)
        found = self.boxes(region)
        if len(found) != 1:
            raise Unwritten(f"the ranks that hold the result of the {node.op} are no product")
        return found[0]

    def input(self, item: Input, value: int, mask: int) -> Input:
        where = self.regions.hull(mask)
        self.types[item.name] = item.type
        self.parts[value] = [_Part(item.name, where, self.members(where))]
        return replace(item, where=where)

    def output(self, role: str, path: str, pieces: Sequence[Piece]) -> Output:
        asked = 0
        for _, mask in pieces:
            asked |= mask
        boxes = self.boxes(asked)
        if len(boxes) != 1:
            raise Unwritten(f"{role}:{path} is returned on ranks that are no product")
        (where,) = boxes
        name = self.gathered(pieces, where)
        held = next(
            (p.where for parts in self.parts.values() for p in parts if p.name == name), where
        )
        if held != where:
            name = self.local("only", [name], f"{name}.out", where)
        return Output(name, role, path)


def build(whole: Whole, regions: Regions, name: str) -> Program:
    """The program that all ranks run.

    Raises:
        Unwritten: ranks that no product, and no short union of products, describes.
    """
    writer = _Writer(whole, regions)
    inputs = tuple(writer.input(*found) for found in whole.inputs.values())
    for item in whole.nodes:
        writer.node(item)
    outputs = tuple(writer.output(*key, pieces) for key, pieces in whole.outputs.items())
    return Program(
        name, inputs, tuple(writer.nodes), outputs, writer.types, regions.grid.mesh
    )

