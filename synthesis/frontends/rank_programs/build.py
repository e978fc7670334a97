"""The united nodes as one Program: sets of ranks become `on(...)`, cut into products."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from shardproof.synthesis.frontends.rank_programs.groups import Regions, union
from shardproof.synthesis.frontends.rank_programs.repeated import in_order
from shardproof.synthesis.frontends.rank_programs.whole import Piece, United, Whole, by_value
from shardproof.verifier.kernel.program.program import Input, Node, Output, Program, unused
from shardproof.verifier.kernel.program.types import TensorType
from shardproof.verifier.kernel.program.where import EVERYWHERE, Where, joined, moved

MAX_BOXES = 64


class UnwrittenError(Exception):
    """Ranks that are no union of few products, where one value must live on all of them."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A value of the program that is written, on some of the ranks that hold it."""

    name: str
    bits: int


class _Writer:
    def __init__(self, whole: Whole, regions: Regions, limit: int | None = None) -> None:
        self.whole, self.regions = whole, regions
        self.limit = regions.members(EVERYWHERE) if limit is None else limit
        """The ranks for which the program is written."""
        self.mesh = regions.grid.mesh
        self.types: dict[str, TensorType] = {}
        self.nodes: list[Node] = []
        self.parts: dict[int, list[_Part]] = {}
        self.held: dict[str, Where] = {}
        """Where each name lives."""
        self.bodies: dict[Where, int] = {}
        self.made: dict[tuple[tuple[Piece, ...], Where], str] = {}
        self.boxed: dict[tuple[int, tuple[str, ...]], list[Where]] = {}

    def boxes(self, bits: int, uncut: tuple[str, ...] = ()) -> list[Where]:
        key = (bits, uncut)
        if key not in self.boxed:
            self.boxed[key] = self.regions.boxes(bits, uncut)
        found = self.boxed[key]
        if not found or len(found) > MAX_BOXES:
            raise UnwrittenError("a set of ranks is not a union of few products of coordinates")
        return found

    def members(self, where: Where) -> int:
        if where not in self.bodies:
            self.bodies[where] = self.regions.members(where)
        return self.bodies[where]

    def fresh(self, hint: str) -> str:
        return unused(hint, self.types, ".v")

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
        self.nodes.append(replace(op, inputs=tuple(operands), outputs=tuple(names), where=where))
        return tuple(names)

    def local(
        self, op: str, operands: Sequence[str], hint: str, where: Where, held: Where | None = None
    ) -> str:
        type = self.types[operands[0]]
        (name,) = self.emit(Node(op, (), ()), operands, [hint], [type], where)
        self.held[name] = where if held is None else held
        return name

    def operand(self, value: int, where: Where) -> str:
        """The name of a value that lives on all ranks of a product."""
        return self.gathered([(value, self.members(where))], where)

    def gathered(self, pieces: Sequence[Piece], where: Where, hint: str = "") -> str:
        """One name on all ranks of a product, from pieces that make it up."""
        key = (tuple(by_value(pieces).items()), where)
        if key not in self.made:
            self.made[key] = self._gather(key[0], where, hint)
        return self.made[key]

    def _gather(self, pieces: Sequence[Piece], where: Where, hint: str) -> str:
        need = self.members(where)
        shared: dict[str, int] = {}
        for value, mask in pieces:
            for part in self.parts[value]:
                found = part.bits & mask & need
                if found:
                    shared[part.name] = shared.get(part.name, 0) | found
        whole = next((name for name, bits in shared.items() if bits == need), None)
        if whole is not None:
            return whole
        taken: list[str] = []
        for name, bits in shared.items():
            if bits == self.members(self.held[name]):
                taken.append(name)
                continue
            for box in self.boxes(bits):
                taken.append(self.local("only", [name], name, box))
        hint = hint or self.whole.values[pieces[0][0]].name
        order = self._order(taken)
        while order is None:
            taken = self._paired(taken, hint)
            order = self._order(taken)
        return self.local("merge", order, hint, EVERYWHERE, where)

    def _order(self, names: list[str]) -> list[str] | None:
        """The pieces in an order in which each union is a product, if there is one."""
        for start in names:
            order, whole = [start], self.held[start]
            left = [n for n in names if n != start]
            while left:
                grown = ((n, joined(whole, self.held[n], self.mesh)) for n in left)
                found = next(((n, w) for n, w in grown if w is not None), None)
                if found is None:
                    break
                order.append(found[0])
                whole = found[1]
                left.remove(found[0])
            if not left:
                return order
        return None

    def _paired(self, names: list[str], hint: str) -> list[str]:
        """The pieces with two of them merged, those that make up the fewest ranks."""
        best: tuple[int, str, str, Where] | None = None
        for i, a in enumerate(names):
            for b in names[i + 1 :]:
                both = joined(self.held[a], self.held[b], self.mesh)
                if both is not None:
                    size = self.members(both).bit_count()
                    best = min(best, (size, a, b, both)) if best else (size, a, b, both)
        if best is None:
            raise UnwrittenError("a value is made up of pieces whose ranks make no product")
        _, a, b, both = best
        made = self.local("merge", [a, b], hint, EVERYWHERE, both)
        return [n for n in names if n not in (a, b)] + [made]

    def node(self, item: United) -> None:
        out, runs = item.outputs[0], item.runs & self.limit
        if not runs:
            return
        if item.pieces:
            parts: list[_Part] = []
            for box in self.boxes(runs):
                name = self.gathered(item.pieces, box, item.names[0])
                parts.append(_Part(name, self.members(box)))
            self.parts[out] = parts
            return
        for value in item.outputs:
            self.parts[value] = []
        for box in self.boxes(runs, item.dims):
            operands = [self._given(v, box, item) for v in item.operands]
            node = item.node if item.inner is None else self._block(item.node, item.inner, box)
            names = self.emit(node, operands, item.names, item.types, box)
            held = self._result(item, box)
            bits = self.members(held)
            for value, name in zip(item.outputs, names, strict=True):
                self.held[name] = held
                self.parts[value].append(_Part(name, bits))

    def _block(self, node: Node, inner: Whole, box: Where) -> Node:
        """A repeated block that is not the same on all the ranks that run it."""
        body = node.block
        writer = _Writer(inner, self.regions, self.members(box))
        for item in body.inputs:
            _, value, _ = inner.inputs[item.name]
            writer.types[item.name] = item.type
            writer.held[item.name] = box
            writer.parts[value] = [_Part(item.name, writer.limit)]
        for item in inner.nodes:
            writer.node(item)
        found = [writer.output(*key, pieces) for key, pieces in inner.outputs.items()]
        outputs = in_order(found, body.outputs)
        made = Program(
            body.name, body.inputs, tuple(writer.nodes), outputs, writer.types, body.mesh
        )
        return replace(node, body=made)

    def _given(self, value: int, box: Where, item: United) -> str:
        """An operand: the root of a broadcast may be the only one that has it."""
        region = self.whole.values[value].region
        need = self.members(box) & region
        if need == self.members(box):
            return self.operand(value, box)
        what = f"the ranks that give a value to the {item.node.op} are not a product"
        return self.operand(value, self._box(need, what))

    def _result(self, item: United, box: Where) -> Where:
        """Where the result of a node lives."""
        node = item.node
        if node.op == "send":
            name, target = node.attrs["mesh_dim"], node.attrs["dst"]
            assert isinstance(name, str)
            assert isinstance(target, int)
            return moved(box, self.mesh, name, target)
        region = self.whole.values[item.outputs[0]].region & self.members(box)
        what = f"the ranks that hold the result of the {node.op} are not a product"
        return self._box(region, what)

    def _box(self, bits: int, otherwise: str) -> Where:
        """The one product that a set of ranks is. Raises UnwrittenError."""
        found = self.boxes(bits)
        if len(found) != 1:
            raise UnwrittenError(otherwise)
        return found[0]

    def input(self, item: Input, value: int, mask: int) -> Input:
        where = self.regions.hull(mask)
        self.types[item.name] = item.type
        self.held[item.name] = where
        self.parts[value] = [_Part(item.name, self.members(where))]
        return replace(item, where=where)

    def output(self, role: str, path: str, pieces: Sequence[Piece]) -> Output:
        asked = union(mask for _, mask in pieces) & self.limit
        where = self._box(asked, f"{role}:{path} is returned on ranks that are not a product")
        name = self.gathered(pieces, where)
        if self.held[name] != where:
            name = self.local("only", [name], f"{name}.out", where)
        return Output(name, role, path)


def build(whole: Whole, regions: Regions, name: str) -> Program:
    """The program that all ranks run.

    Raises:
        UnwrittenError: ranks that no product, and no short union of products, describes.
    """
    writer = _Writer(whole, regions)
    inputs = tuple(writer.input(*found) for found in whole.inputs.values())
    for item in whole.nodes:
        writer.node(item)
    outputs = tuple(writer.output(*key, pieces) for key, pieces in whole.outputs.items())
    return Program(name, inputs, tuple(writer.nodes), outputs, writer.types, regions.grid.mesh)
