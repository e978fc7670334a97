"""What a broadcast sends as all ranks compute it, where its root alone does.

A broadcast gives what its root holds, whatever the other ranks pass. So these may as well compute
what the root does, from what they have at the same places: then all ranks run the same ops.
"""

from collections.abc import Mapping
from dataclasses import replace

from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.kernel.program.program import Node, Program, in_order, leading_to
from shardproof.verifier.kernel.program.types import TensorType
from shardproof.verifier.ops.classes import MESSAGES


def as_roots_do(programs: Mapping[int, Program]) -> Mapping[int, Program] | None:
    """The programs with the operand of each broadcast computed as its root computes it; None where
    some root is not given, or what ranks run beside that differs in its ops."""
    ranks = {number: _Rank(program) for number, program in programs.items()}
    spines = [[n.op for n in rank.spine] for rank in ranks.values()]
    if "broadcast" not in spines[0] or any(s != spines[0] for s in spines):
        return None
    if not all(in_order(p) and p.inputs for p in programs.values()):
        return None
    coords = next(iter(programs.values())).mesh.coords()
    out: dict[int, Program] = {}
    for number, rank in ranks.items():
        made = _Made(rank)
        for at, node in enumerate(rank.spine):
            if node.op != "broadcast":
                made.nodes.append(node)
                continue
            dim, index = str(node.attrs["mesh_dim"]), node.number("index")
            root = coords.index({**coords[number], dim: index})
            if root not in ranks or ranks[root].spine[at].attrs != node.attrs:
                return None
            made.broadcast(node, root, ranks[root], at)
        out[number] = made.program()
    return out


class _Rank:
    """A rank's program, and what of it runs even if nothing is broadcast."""

    def __init__(self, program: Program) -> None:
        self.program = program
        cut = [replace(n, inputs=()) if n.op == "broadcast" else n for n in program.nodes]
        sent = [v for n in cut if _exchanges(n) for v in n.outputs]
        kept = {n.outputs for n in leading_to({*sent, *(o.value for o in program.outputs)}, cut)}
        self.spine = [n for n in program.nodes if n.outputs in kept]
        self.beside = [n for n in program.nodes if n.outputs not in kept]
        self.places = {
            v: (at, k) for at, n in enumerate(self.spine) for k, v in enumerate(n.outputs)
        }


def _exchanges(node: Node) -> bool:
    return node.body is not None or node.op in MESSAGES or bool(lookup(node.op).traits.meets)


class _Made:
    """A rank's program as it is written anew."""

    def __init__(self, rank: _Rank) -> None:
        self.rank = rank
        self.nodes: list[Node] = []
        self.types: dict[str, TensorType] = dict(rank.program.types)
        self.copies: dict[tuple[int, str], str] = {}

    def broadcast(self, node: Node, number: int, root: _Rank, at: int) -> None:
        """The broadcast, behind what its root computes for it alone."""
        (value,) = root.spine[at].inputs
        for other in leading_to({value}, root.beside):
            if (number, other.outputs[0]) in self.copies:
                continue
            inputs = tuple(self._own(number, root, v) for v in other.inputs)
            outputs = tuple(f"{v}.of{number}" for v in other.outputs)
            self.copies |= {(number, v): o for v, o in zip(other.outputs, outputs, strict=True)}
            self.types |= {
                o: root.program.types[v] for v, o in zip(other.outputs, outputs, strict=True)
            }
            self.nodes.append(replace(other, inputs=inputs, outputs=outputs))
        self.nodes.append(replace(node, inputs=(self._own(number, root, value),)))

    def _own(self, number: int, root: _Rank, value: str) -> str:
        """What this rank has for a value of the root's."""
        if value in root.places:
            at, result = root.places[value]
            return self.rank.spine[at].outputs[result]
        return self.copies.get((number, value), value)

    def program(self) -> Program:
        return replace(self.rank.program, nodes=tuple(self.nodes), types=self.types)
