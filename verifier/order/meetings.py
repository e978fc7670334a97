"""What of a program matters in time: where ranks meet, and how few of them stand for all."""

from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.kernel.program.errors import IRError
from shardproof.verifier.kernel.program.program import IN_ORDER, Node, Program
from shardproof.verifier.kernel.program.types import Mesh, mesh_dims
from shardproof.verifier.kernel.rank_sets import Regions

LIMIT = 400_000
"""More events than these are refused."""
MOVING = ("movement", "collective")


def is_local(node: Node) -> bool:
    """Whether a collective in name exchanges nothing."""
    op = lookup(node.op)
    return op.kind == "collective" and not op.traits.meets


def is_quiet(program: Program) -> bool:
    """Whether nothing but messages and collectives can go wrong in time.

    No storage is named, no stream, and only sends are asynchronous: every value has storage of its
    own and is there when it is read, so what a rank computes for itself is left out. A collective
    along a mesh dim on which all ranks do the same is left out too: where one rank of them comes to
    its end, all do, each step taken by all of them together.
    """
    return all(
        not node.timing.stream
        and not node.timing.buffer
        and (not node.timing.asynchronous or node.op == "send")
        for _, node in program.distinct()
    )


def dims_of(node: Node) -> tuple[str, ...]:
    return mesh_dims(lookup(node.op).with_defaults(node.attrs)["mesh_dim"])


def enough(program: Program, few: int) -> Mesh:
    """The mesh, with a few ranks for all along dims on which all ranks do the same."""
    kept = {name for item in program.inputs for name, _ in item.where}
    for _, node in program.distinct():
        kept.update(name for name, _ in node.where)
        if node.body is not None:
            kept.update(name for item in node.body.inputs for name, _ in item.where)
        if lookup(node.op).kind == "movement" and "mesh_dim" in node.attrs:
            kept.update(dims_of(node))
    return Mesh(tuple((n, size if n in kept else min(size, few)) for n, size in program.mesh.dims))


def meeting_coordinates(program: Program, places: Regions) -> dict[str, tuple[int, ...]]:
    """By mesh dim the coordinates that stand for all: one of those that meet others in the same
    nodes, and every one where a message goes along the dim."""
    kept: set[str] = set()
    sets: dict[str, set[tuple[int, ...]]] = {name: set() for name in program.mesh.names}

    def visit(inner: Program, held: Regions) -> None:
        for node in inner.nodes:
            if node.body is not None:
                visit(node.body, held.inside(node))
                continue
            kind = lookup(node.op).kind
            if kind not in MOVING or is_local(node) or lookup(node.op).traits.alias:
                continue
            if kind == "movement":
                kept.update(dims_of(node))
            for where in (node.where, *(held.values[v] for v in (*node.inputs, *node.outputs))):
                for name, coords in where:
                    sets[name].add(coords)

    visit(program, places)
    out: dict[str, tuple[int, ...]] = {}
    for name, size in program.mesh.dims:
        first: dict[tuple[bool, ...], int] = {}
        for c in range(size):
            first.setdefault(tuple(c in coords for coords in sorted(sets[name])), c)
        out[name] = tuple(range(size)) if name in kept else tuple(first.values())
    return out


class Meetings:
    """Where ranks of a mesh meet, worked out once for each body."""

    def __init__(self, mesh: Mesh) -> None:
        self.mesh = mesh
        self._plain: dict[int, bool] = {}
        self._timed: dict[int, list[Node]] = {}

    def is_plain(self, program: Program) -> bool:
        """Whether nothing in it has to do with time or with other ranks."""
        found = self._plain.get(id(program))
        if found is None:
            found = self._plain[id(program)] = all(
                node.timing == IN_ORDER and not self._meets(node) for node in program.nodes
            )
        return found

    def _meets(self, node: Node) -> bool:
        return meets(node, self.mesh) if node.body is None else not self.is_plain(node.body)

    def timed(self, program: Program) -> list[Node]:
        """The nodes in which ranks meet, and the blocks that hold such nodes."""
        found = self._timed.get(id(program))
        if found is None:
            found = self._timed[id(program)] = [
                n for n in program.nodes if self._meets(n) and not lookup(n.op).traits.alias
            ]
        return found

    def within_limit(self, program: Program, quiet: bool) -> None:
        """Raises IRError where there are too many events to judge."""

        def count(inner: Program) -> int:
            return sum(map(events_of, self.timed(inner) if quiet else inner.nodes))

        def events_of(node: Node) -> int:
            if node.body is None or self.is_plain(node.body):
                return 1
            return node.number("length") * (count(node.body) + 1)

        events = count(program) * self.mesh.size
        if events > LIMIT:
            raise IRError(
                f"{program.name} makes {events} events on {self.mesh.size} ranks, more than "
                f"{LIMIT}; give fewer ranks or steps of its scans"
            )


class Messages:
    """Sent values by the names that they are received under."""

    def __init__(self) -> None:
        self.other: dict[int, dict[str, str]] = {}

    def __call__(self, program: Program, value: str) -> str:
        other = self.other.get(id(program))
        if other is None:
            pairs = (
                (n.outputs[0], n.inputs[0]) for n in program.nodes if lookup(n.op).traits.alias
            )
            other = self.other[id(program)] = dict(pairs)
        while value in other:
            value = other[value]
        return value


def meets(node: Node, mesh: Mesh) -> bool:
    """Whether a rank of the mesh meets another one there."""
    if lookup(node.op).kind not in MOVING or is_local(node):
        return False
    return not lookup(node.op).traits.meets or any(mesh[name] > 1 for name in dims_of(node))
