"""Runs the classes side by side and unites what they do: one node for what several do alike.

Every class runs its steps in order. A message is received once it was sent, by channel, tag and
order; a collective runs once every rank of its groups is at the same one. Where classes bring
different values to one collective, a merge stands before it; and before any op, where all classes
run the same ops one after the other.
"""

from collections.abc import Hashable, Iterator, Sequence

import numpy as np

from shardproof.synthesis.frontends.rank_programs.groups import Regions, union
from shardproof.synthesis.frontends.rank_programs.repeated import bodies
from shardproof.synthesis.frontends.rank_programs.symbolic import ClassProgram, LineError, Step
from shardproof.synthesis.frontends.rank_programs.whole import (
    BlockedError,
    ClassError,
    Piece,
    United,
    Value,
    Whole,
    alike,
    by_value,
    joins,
)
from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.kernel.program.errors import MalformedError
from shardproof.verifier.kernel.program.program import IN_ORDER, Node
from shardproof.verifier.kernel.program.shape import frozen, shape
from shardproof.verifier.kernel.program.types import Attr, TensorType

Channel = tuple[str, int, int, int | None]
"""Mesh dim, coordinate of the sender, of the receiver, tag."""
"""Ops whose operands may stand in either order on different ranks."""


class Uniting:
    """The state while classes run side by side."""

    def __init__(self, programs: Sequence[ClassProgram], regions: Regions) -> None:
        self.programs, self.regions = programs, regions
        self.masks = [regions.bits(p.owner.ranks) for p in programs]
        self.whole = Whole()
        self.env: list[dict[str, int]] = [{} for _ in programs]
        self.at = [0] * len(programs)
        self.known: dict[Hashable, list[United]] = {}
        self.merged: dict[tuple[Piece, ...], int] = {}
        self.sent: dict[tuple[int, Channel], list[tuple[int, int]]] = {}
        """By class and channel: the values that were sent, each with its line."""
        self.received: dict[tuple[int, int, Channel], int] = {}
        """By class that sent, class that received, and channel: how many were received."""
        self.together: dict[tuple[str, ...], list[frozenset[int]]] = {}
        self.returned: list[set[tuple[str, str]]] = [set() for _ in programs]
        self.last = [-1] * len(programs)
        """The last node of each class."""
        self.timed = any(
            n.timing != IN_ORDER for p in programs for _, n in p.program.walk()
        ) or any(s.timing != IN_ORDER for p in programs for s in p.steps)
        """Whether nodes run out of order: then a node is shared only where the order of every
        class is kept."""
        self.abreast = not self.timed and len(programs) > 1 and _same_ops(programs)
        self.joins: dict[str, set[int]] = {}
        for i, p in enumerate(programs):
            for step in p.steps:
                if step.kind == "join" and step.node is not None:
                    self.joins.setdefault(step.node.outputs[0], set()).add(i)
        order = {id(p.owner): i for i, p in enumerate(programs)}
        self.family = [order.get(id(p.owner.host), i) for i, p in enumerate(programs)]

    def run(self) -> Whole:
        """Raises BlockedError, ClassError."""
        while True:
            moved = False
            for i in range(len(self.programs)):
                moved |= self._advance(i)
            moved = self._meet() or moved
            left = {i: s.line for i, s in self._waiting()}
            if not left:
                self._left_over()
                return self.whole
            if not moved and not self._alone():
                raise BlockedError(left)

    def _waiting(self) -> Iterator[tuple[int, Step]]:
        for i, p in enumerate(self.programs):
            if self.at[i] < len(p.steps):
                yield i, p.steps[self.at[i]]

    def _advance(self, i: int) -> bool:
        """Run a class up to where it must wait for others."""
        steps = self.programs[i].steps
        moved = False
        while self.at[i] < len(steps):
            step = steps[self.at[i]]
            if step.kind in ("collective", "join") or (step.kind == "local" and self.abreast):
                break
            if step.kind == "recv" and not self._receive(i, step):
                break
            if step.kind == "input":
                self._input(i, step)
            elif step.kind == "local":
                assert step.node is not None
                self._local(i, step, step.node)
            elif step.kind == "send":
                self._send(i, step)
            elif step.kind == "return":
                for out in step.outputs:
                    key = (out.role, out.path)
                    if key in self.returned[i]:
                        raise _wrong(i, step.line, f"{out.role}:{out.path} is returned twice")
                    self.returned[i].add(key)
                    value = self._read(i, step, out.value)
                    self.whole.outputs.setdefault(key, []).append((value, self.masks[i]))
            self.at[i] += 1
            moved = True
        return moved

    def _read(self, i: int, step: Step, name: str) -> int:
        value = self.env[i].get(name)
        if value is None:
            what, expected = f"%{name} is not defined here", "a value defined above"
            raise _wrong(i, step.line, what, expected=expected)
        missing = self.masks[i] & ~self.whole.values[value].region
        if missing:
            rank = int(self.regions.ranks(missing)[0])
            what = f"%{name} is read on rank {rank}, which does not hold it"
            raise _wrong(i, step.line, what, "mismatch")
        return value

    def _value(self, name: str, type: TensorType, region: int) -> int:
        self.whole.values.append(Value(name, type, region))
        return len(self.whole.values) - 1

    def _input(self, i: int, step: Step) -> None:
        item = step.input
        assert item is not None
        found = self.whole.inputs.get(item.name)
        if found is None:
            value = self._value(item.name, item.type, self.masks[i])
            self.whole.inputs[item.name] = (item, value, self.masks[i])
        else:
            first, value, mask = found
            if first != item:
                what = f"%{item.name} is another input on other ranks"
                expected, got = (f"{x.role} {x.type} {x.path!r}" for x in (first, item))
                raise _wrong(i, step.line, what, "unsupported", expected=expected, got=got)
            self.whole.inputs[item.name] = (item, value, mask | self.masks[i])
            self.whole.values[value].region |= self.masks[i]
        self.env[i][item.name] = value

    def _local(self, i: int, step: Step, node: Node) -> None:
        operands = tuple(self._read(i, step, v) for v in node.inputs)
        types = tuple(self.programs[i].program.types[v] for v in node.outputs)
        outputs = self._unite((i,), node, operands, types, self.masks[i], self.masks[i])
        self.env[i] |= zip(node.outputs, outputs, strict=True)

    def _all_run(self, waiting: dict[int, Step]) -> None:
        """The next op of every class: one node where they differ in operands alone."""
        nodes = [step.node for step in waiting.values() if step.node is not None]
        known = [self.programs[i].program.types for i in waiting]
        types = tuple(known[0][v] for v in nodes[0].outputs)
        kinds = {
            (frozen(n.attrs), shape(n.body), *(t[v] for v in (*n.inputs, *n.outputs)))
            for n, t in zip(nodes, known, strict=True)
        }
        for i, (step, node) in enumerate(zip(waiting.values(), nodes, strict=True)):
            if len(kinds) > 1:
                self._local(i, step, node)
            self.at[i] += 1
        if len(kinds) > 1:
            return
        operands = tuple(
            self._join(
                [
                    (self._read(i, step, n.inputs[k]), self.masks[i])
                    for (i, step), n in zip(waiting.items(), nodes, strict=True)
                ],
                name,
            )
            for k, name in enumerate(nodes[0].inputs)
        )
        runs = union(self.masks)
        outputs = self._unite(tuple(waiting), nodes[0], operands, types, runs, runs)
        for i, node in enumerate(nodes):
            self.env[i] |= zip(node.outputs, outputs, strict=True)

    def _unite(
        self,
        members: Sequence[int],
        node: Node,
        operands: tuple[int, ...],
        types: tuple[TensorType, ...],
        runs: int,
        region: int,
        more: Hashable = None,
        dims: tuple[str, ...] = (),
    ) -> tuple[int, ...]:
        """The same node of other classes, with the ranks of these added; else a new one."""
        read = tuple(sorted(operands)) if lookup(node.op).traits.symmetric else operands
        key = (node.op, read, frozen(node.attrs), types, node.timing, shape(node.body), more)
        begun = max(self.last[i] for i in members)
        for other in self.known.get(key, ()):
            if (
                other.classes.isdisjoint(members)
                and (other.names == node.outputs or self._kin(members, other.classes))
                and (other.index > begun or not self.timed)
            ):
                other.classes.update(members)
                other.runs |= runs
                for value in other.outputs:
                    self.whole.values[value].region |= region
                for i in members:
                    self.last[i] = other.index
                return other.outputs
        outputs = tuple(self._value(n, t, region) for n, t in zip(node.outputs, types, strict=True))
        made = United(node, operands, runs, outputs, types, node.outputs, set(members), dims=dims)
        self.known.setdefault(key, []).append(made)
        self._append(made)
        return outputs

    def _append(self, made: United) -> None:
        made.index = len(self.whole.nodes)
        self.whole.nodes.append(made)
        for i in made.classes:
            self.last[i] = made.index

    def _kin(self, members: Sequence[int], others: set[int]) -> bool:
        families = {self.family[i] for i in members}
        return any(self.family[k] in families for k in others)

    def _moved(self, mask: int, name: str, coordinate: int) -> int:
        """The ranks across a mesh dim from these, at one coordinate of it."""
        grid = self.regions.grid
        k = grid.mesh.names.index(name)
        ranks = self.regions.ranks(mask)
        shift = (coordinate - grid.coords[ranks, k]) * grid.strides[k]
        return self.regions.bits(np.unique(ranks + shift))

    def _send(self, i: int, step: Step) -> None:
        assert step.peer is not None
        assert step.operand is not None
        name, mine, theirs = step.peer
        value = self._read(i, step, step.operand)
        kind = self.whole.values[value].type
        hint = f"sent.{step.operand}"
        attrs: dict[str, Attr] = {"mesh_dim": name, "src": mine, "dst": theirs}
        place = self.programs[i].place(step.line)
        node = Node("send", (), (hint,), attrs, place, timing=step.timing)
        region = self._moved(self.masks[i], name, theirs)
        channel = (name, mine, theirs, step.tag)
        (out,) = self._unite((i,), node, (value,), (kind,), self.masks[i], region, step.tag)
        self.sent.setdefault((i, channel), []).append((out, step.line))

    def _receive(self, i: int, step: Step) -> bool:
        """Whether every rank of the class has a message to receive; then it is received."""
        assert step.peer is not None
        assert step.input is not None
        name, mine, theirs = step.peer
        channel = (name, theirs, mine, step.tag)
        sources = self._moved(self.masks[i], name, theirs)
        pieces: dict[int, int] = {}
        """By message, the ranks that receive it."""
        taken: list[tuple[int, int, Channel]] = []
        for k, mask in enumerate(self.masks):
            if not mask & sources:
                continue
            queue = self.sent.get((k, channel), [])
            key = (k, i, channel)
            at = self.received.get(key, 0)
            if at >= len(queue):
                return False
            taken.append(key)
            value, _ = queue[at]
            pieces[value] = pieces.get(value, 0) | self._moved(mask & sources, name, mine)
        for value in pieces:
            kind = self.whole.values[value].type
            if kind != step.input.type:
                what, expected = "the message has another type", str(step.input.type)
                raise _wrong(i, step.line, what, "mismatch", expected=expected, got=str(kind))
        for key in taken:
            self.received[key] = self.received.get(key, 0) + 1
        attrs: dict[str, Attr] = {"mesh_dim": name, "src": theirs, "dst": mine}
        place = self.programs[i].place(step.line)
        node = Node("recv", (), (step.input.name,), attrs, place, timing=step.timing)
        got: list[Piece] = []
        for value, mask in pieces.items():
            (out,) = self._unite((i,), node, (value,), (step.input.type,), mask, mask)
            got.append((out, mask))
        self.env[i][step.input.name] = self._join(got, step.input.name)
        return True

    def _left_over(self) -> None:
        """Every message must have been received."""
        for (k, channel), queue in self.sent.items():
            name, _, theirs, _ = channel
            targets = self._moved(self.masks[k], name, theirs)
            for i, mask in enumerate(self.masks):
                count = self.received.get((k, i, channel), 0)
                if mask & targets and count < len(queue):
                    rank = int(self.regions.ranks(mask & targets)[0])
                    what = f"sends a message that rank {rank} never receives"
                    raise _wrong(k, queue[count][1], what, "mismatch")

    def _join(self, pieces: Sequence[Piece], hint: str) -> int:
        """One value from pieces on different ranks."""
        key = tuple(sorted(by_value(pieces).items()))
        if len(key) == 1:
            return key[0][0]
        found = self.merged.get(key)
        return self._merge(key, f"{hint}.merged", set()) if found is None else found

    def _merge(self, key: tuple[Piece, ...], name: str, classes: set[int]) -> int:
        kind = self.whole.values[key[0][0]].type
        region = union(mask for _, mask in key)
        out = self._value(name, kind, region)
        node = Node("merge", (), (name,))
        operands = tuple(v for v, _ in key)
        self._append(United(node, operands, region, (out,), (kind,), (name,), classes, key))
        self.merged[key] = out
        return out

    def _meet(self) -> bool:
        """Run the collectives and joins that everyone has come to."""
        moved = False
        waiting = dict(self._waiting())
        if self.abreast and waiting and all(s.kind == "local" for s in waiting.values()):
            self._all_run(waiting)
            return True
        for i in list(waiting):
            step = waiting.get(i)
            if step is None:
                continue
            if step.kind == "collective":
                members = self._tied(i, step, waiting)
                same = [k for k in members if k in waiting and alike(step, waiting[k])]
                if len(same) == len(members):
                    self._collective(sorted(members), waiting)
                    moved = True
                    for k in members:
                        del waiting[k]
            elif step.kind == "join":
                assert step.node is not None
                name = step.node.outputs[0]
                members = self.joins[name]
                if all(
                    k in waiting and waiting[k].kind == "join" and joins(waiting[k]) == name
                    for k in members
                ):
                    self._rejoin(sorted(members), waiting)
                    moved = True
                    for k in members:
                        del waiting[k]
        return moved

    def _tied(self, i: int, step: Step, waiting: dict[int, Step]) -> frozenset[int]:
        """The classes that come to a collective together; to a block, all that any of them asks."""
        dims, members = set(step.dims), frozenset[int]()
        while True:
            members = self._members(tuple(sorted(dims)))[i]
            more = {d for k in members if k in waiting for d in waiting[k].dims} - dims
            if not more or step.node is None or step.node.body is None:
                return members
            dims |= more

    def _members(self, dims: tuple[str, ...]) -> list[frozenset[int]]:
        """For each class, the classes that are tied to it by groups over these mesh dims."""
        key = tuple(sorted(dims))
        if key not in self.together:
            base = self.regions.grid.bases(key)
            owner = np.full(self.regions.grid.size, -1, np.int64)
            for i, p in enumerate(self.programs):
                owner[p.owner.ranks] = i
            pairs = np.stack([owner[base], owner], axis=1)
            pairs = pairs[(pairs >= 0).all(axis=1)]
            tied = [frozenset({k}) for k in range(len(self.programs))]
            met: list[list[int]] = np.unique(pairs, axis=0).tolist()
            for a, b in met:
                both = tied[a] | tied[b]
                for k in both:
                    tied[k] = both
            self.together[key] = tied
        return self.together[key]

    def _collective(self, members: list[int], waiting: dict[int, Step]) -> None:
        runs = union(self.masks[i] for i in members)
        pieces: list[list[Piece]] = []
        for i in members:
            step, mask = waiting[i], self.masks[i]
            assert step.node is not None
            given = [(self._read(i, step, v), mask) for v in step.node.inputs]
            if given and pieces and len(given) != len(pieces):
                what = "a repeated block with other operands than on other ranks"
                raise _wrong(i, step.line, what, "unsupported")
            if given:
                pieces = pieces or [[] for _ in given]
                for part, piece in zip(pieces, given, strict=True):
                    part.append(piece)
        leader = next((i for i in members if waiting[i].operand is not None), members[0])
        node = waiting[leader].node
        assert node is not None
        if not pieces:
            what = f"no rank brings a value to the {node.op}"
            raise _wrong(leader, waiting[leader].line, what, "mismatch")
        operands = tuple(self._join(p, node.outputs[0]) for p in pieces)
        region = runs
        if node.op in ("reduce_to", "gather"):
            index = lookup(node.op).with_defaults(node.attrs)["index"]
            region = self._moved(runs, waiting[leader].dims[0], index) & runs
        types = tuple(self.programs[leader].program.types[v] for v in node.outputs)
        dims = tuple(dict.fromkeys(d for i in members for d in waiting[i].dims))
        inner = self._inner(members, waiting)
        if inner is None:
            outputs = self._unite(members, node, operands, types, runs, region, "together", dims)
        else:
            outputs = tuple(
                self._value(n, t, region) for n, t in zip(node.outputs, types, strict=True)
            )
            made = United(node, operands, runs, outputs, types, node.outputs, set(members))
            made.dims, made.inner = dims, inner
            self._append(made)
        for i in members:
            mine = waiting[i].node
            assert mine is not None
            theirs = tuple(self.programs[i].program.types[v] for v in mine.outputs)
            if theirs != types:
                what = f"the {node.op} has another type than on other ranks"
                expected, got = (", ".join(map(str, kinds)) for kinds in (types, theirs))
                raise _wrong(i, waiting[i].line, what, "mismatch", expected=expected, got=got)
            self.env[i] |= zip(mine.outputs, outputs, strict=True)
            self.at[i] += 1

    def _inner(self, members: list[int], waiting: dict[int, Step]) -> Whole | None:
        """The united body of a repeated block; None where all classes have the same."""
        steps = [waiting[i] for i in members]
        if len({shape(step.node.body) for step in steps if step.node is not None}) == 1:
            return None
        try:
            inner = Uniting(bodies([self.programs[i] for i in members], steps), self.regions)
            leader = inner.programs[0].program
            everyone = union(inner.masks)
            for k, item in enumerate(leader.inputs):
                value = inner._value(item.name, item.type, everyone)
                inner.whole.inputs[item.name] = (item, value, everyone)
                for env, p in zip(inner.env, inner.programs, strict=True):
                    env[p.program.inputs[k].name] = value
            inner.family = [self.family[i] for i in members]
            return inner.run()
        except ClassError as error:
            raise ClassError(members[error.index], error.error) from None
        except BlockedError as blocked:
            raise BlockedError({members[k]: at for k, at in blocked.waiting.items()}) from None

    def _rejoin(self, members: list[int], waiting: dict[int, Step]) -> None:
        """A merge whose pieces are on different classes."""
        nodes = {i: node for i in members if (node := waiting[i].node) is not None}
        name = nodes[members[0]].outputs[0]
        parts = by_value(
            (self._read(i, waiting[i], node.inputs[0]), self.masks[i]) for i, node in nodes.items()
        )
        kinds = {self.whole.values[v].type for v in parts}
        if len(kinds) > 1:
            line, what = waiting[members[0]].line, "pieces of different types are merged"
            raise _wrong(members[0], line, what, "unsupported")
        out = self._merge(tuple(sorted(parts.items())), name, set(members))
        for i in members:
            self.env[i][name] = out
            self.at[i] += 1

    def _alone(self) -> bool:
        """Where nothing else goes on: a class that waits to join goes on with its own value."""
        for i, step in self._waiting():
            if step.kind == "join" and step.node is not None:
                name = step.node.outputs[0]
                self.env[i][name] = self._read(i, step, step.node.inputs[0])
                self.joins[name].discard(i)
                self.at[i] += 1
                return True
        return False


def _same_ops(programs: Sequence[ClassProgram]) -> bool:
    """Whether all run the same ops one after the other, and send no messages."""
    ran = [
        [(s.kind, s.node and s.node.op) for s in p.steps if s.kind not in ("input", "return")]
        for p in programs
    ]
    return all(r == ran[0] for r in ran) and {k for k, _ in ran[0]} <= {"local", "collective"}


def _wrong(
    index: int, line: int, what: str, kind: str = "malformed", *, expected: str = "", got: str = ""
) -> ClassError:
    error = MalformedError(what, expected=expected, got=got)
    return ClassError(index, LineError(line, error, kind))
