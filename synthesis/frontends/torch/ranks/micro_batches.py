"""Micro-batches as data parallelism in time: what a rank runs once for each part of its batch, as
one body that every place of a mesh dim of time runs for its own part.

With k parts of a value along a dim, copy i runs the same ops as copy 1, each on what stands at
its place there or on what all copies have. Place i of the dim stands for copy i:

    part i of x                     shard_slice of x
    part i among zeros              shard_pad
    a sum of what all copies made   all_reduce
    what all made, in a row         all_gather
    a sum over such a row           all_reduce of the sum of the part

Where an op has operands of several copies otherwise, or one copy runs what another does not, the
program stays as it is.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, product

from shardproof.verifier.analysis.rewrite import Rewriting, rewrite
from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.program import Node, Program, live
from shardproof.verifier.kernel.program.types import Attr, Mesh
from shardproof.verifier.ops.classes import REARRANGING

TIME = "micro"
"""The mesh dim, by this name or one that the mesh does not have."""
Key = tuple[object, ...]


@dataclass(frozen=True)
class Part:
    """What a copy has: which value of the body, and in which copy."""

    value: int
    copy: int


@dataclass(frozen=True)
class Sum:
    """A sum of values of the body, each in some copies, and of values that all copies have."""

    parts: Counter[Part]
    wholes: tuple[str, ...] = ()

    def complete(self, copies: int) -> dict[int, int] | None:
        """How often each value of the body is in it; None where not every copy's is."""
        often = {p.value: n for p, n in self.parts.items()}
        same = all(self.parts[Part(v, i)] == n for v, n in often.items() for i in range(copies))
        return often if same else None


class UnlikeError(Exception):
    """The copies are not one body."""


def in_one_body(program: Program) -> Program:
    """The program with its micro-batches over a mesh dim of time; else as it is. It is innermost,
    or outermost where ranks take their rows of each micro-batch."""
    if any(n.body is not None or n.timing.buffer or n.timing.stream for n in program.nodes):
        return program  # what is in flight in one micro-batch may be written in the next
    needed = live(rewrite(program, {"add": _to_zeros}, some_ranks=True))
    for copies, at_once in product(_counts(needed), (False, True)):
        first = _Rolling(needed, copies, at_once)
        for rolling in (first, None):
            # What copy 1 puts first may be what all put first: only where they differ it is not.
            tried = rolling or _Rolling(needed, copies, at_once, frozenset(first.pads()))
            try:
                return tried.rolled()
            except UnlikeError:
                continue
    return program


def _to_zeros(r: Rewriting, node: Node) -> str | None:
    """What is added to zeros, as the first micro-batch is to cleared gradients."""
    for value, zeros in (node.inputs, node.inputs[::-1]):
        made = r.made(r.through(zeros, "expand", "reshape", "slice"), "full")
        if made is not None and made.attrs["value"] == 0:
            return value if r.type(value) == r.type(node.outputs[0]) else None
    return None


def cuts(program: Program) -> Iterator[tuple[Node, int]]:
    """Cuts of data, and of constants, into pieces of one extent, each with how many there are."""
    data = {i.name for i in program.inputs if i.role == "input"}
    constant = set[str]()
    cuts: dict[tuple[str, int, int], list[Node]] = {}
    for node in program.nodes:
        if (cut := _cut(program, node)) is not None and node.inputs[0] in data | constant:
            cuts.setdefault((node.inputs[0], *cut), []).append(node)
        elif constant.issuperset(node.inputs):
            constant.update(node.outputs)
        elif node.op in (*REARRANGING, "shard_slice") and data.issuperset(node.inputs):
            data.update(node.outputs)
    for (value, dim, extent), nodes in cuts.items():
        whole = program.types[value].shape[dim]
        if {n.number("start") for n in nodes} == set(range(0, whole, extent)):
            yield from ((node, whole // extent) for node in nodes)


def _before_ranks(program: Program) -> bool:
    """Whether ranks take their pieces of what was cut."""
    dims = {node.outputs[0]: node.attrs["dim"] for node, _ in cuts(program)}
    pieces = (n for n in program.nodes if n.op == "shard_slice")
    return any(dims.get(n.inputs[0]) == n.attrs["dim"] for n in pieces)


def _counts(program: Program) -> list[int]:
    return sorted({k for _, k in cuts(program)}, reverse=True)


def _cut(program: Program, node: Node) -> tuple[int, int] | None:
    """Of a slice that is one of several equal parts: its dim and its extent."""
    if node.op != "slice" or node.attrs["step"] != 1:
        return None
    dim, start, stop = (node.number(a) for a in ("dim", "start", "stop"))
    whole, extent = program.types[node.inputs[0]].shape[dim], stop - start
    even = 0 < extent < whole and not whole % extent and not start % extent
    return (dim, extent) if even else None


@dataclass
class _Rolling:
    program: Program
    copies: int
    at_once: bool
    """Whether reshapes of reshapes count as one: not all copies may have all of them."""
    placed: frozenset[str] = frozenset()
    """Results of pads that put a copy's part at its place."""
    parts: dict[str, Part] = field(default_factory=dict[str, Part])
    sums: dict[str, Sum] = field(default_factory=dict[str, Sum])
    same: dict[str, str] = field(default_factory=dict[str, str])
    """By a value that all copies have, the first that is equal."""
    shaped: dict[str, str] = field(default_factory=dict[str, str])
    """By the result of a reshape, what it is one of."""
    flat: dict[int, int] = field(default_factory=dict[int, int])
    """By a value of the body that reshapes made, what they were given."""
    known: dict[Key, str] = field(default_factory=dict[Key, str])
    values: dict[Key, int] = field(default_factory=dict[Key, int])
    made: dict[int, set[int]] = field(default_factory=dict[int, set[int]])
    """The copies in which each value of the body was seen."""
    names: dict[int, str] = field(default_factory=dict[int, str])
    whole: dict[str, tuple[str, int]] = field(default_factory=dict[str, tuple[str, int]])
    """By a part among zeros, the part and the dim."""
    rows: dict[str, tuple[str, int]] = field(default_factory=dict[str, tuple[str, int]])
    """By what all made in a row, the part and the dim."""

    def __post_init__(self) -> None:
        mesh = self.program.mesh
        free = (TIME if not n else f"{TIME}{n}" for n in count())
        self.dim = next(name for name in free if name not in mesh.names)
        time = (self.dim, self.copies)
        dims = (time, *mesh.dims) if _before_ranks(self.program) else (*mesh.dims, time)
        self.b = Builder(self.program.name, Mesh(dims))
        self.b.reserve(self.program.types)

    def rolled(self) -> Program:
        for item in self.program.inputs:
            self.b.input(item.name, item.type, item.role, item.path, item.where)
        first = {id(node) for node, k in cuts(self.program) if k == self.copies}
        for node in self.program.nodes:
            self._take(node, id(node) in first)
        for out in self.program.outputs:
            if out.value in self.parts or out.value in self.sums:
                raise UnlikeError
            self.b.output(self._whole(out.value), out.role, out.path)
        made = live(self.b.build())
        lacking = (self.names[v] for v, seen in self.made.items() if len(seen) != self.copies)
        if any(name in made.types for name in lacking):
            raise UnlikeError
        return made

    def pads(self) -> list[str]:
        """Results of pads that not all copies have alike."""
        return [
            node.outputs[0]
            for node in self.program.nodes
            if node.op == "pad"
            and (part := self.parts.get(node.outputs[0])) is not None
            and len(self.made[part.value]) != self.copies
        ]

    def _whole(self, value: str) -> str:
        return self.same.get(value, value)

    def _take(self, node: Node, first: bool) -> None:
        with self.b.at(node.source), self.b.on(**dict(node.where)):
            self._taken(node, first)

    def _taken(self, node: Node, first: bool) -> None:
        if self.at_once and node.op == "reshape":
            node = self._direct(node)
            value = node.inputs[0]
            if self.program.types[value].shape == node.attrs["shape"] and value not in self.sums:
                self._alias(node.outputs[0], value)
                return
        if first:
            extent = node.number("stop") - node.number("start")
            dim, copy = node.number("dim"), node.number("start") // extent
            self._body(node, copy, "shard_slice", (self._whole(node.inputs[0]),), dim=dim)
            return
        copies = {self.parts[v].copy for v in node.inputs if v in self.parts}
        if len(copies) > 1 or any(v in self.sums for v in node.inputs):
            self._join(node)
        elif not copies:
            self._shared(node)
        else:
            (copy,) = copies
            dim = self._at_place(node, copy)
            if dim is None:
                self._body(node, copy, node.op, node.inputs, **node.attrs)
                return
            self._body(node, copy, "shard_pad", node.inputs, dim=dim)
            part, padded = (self.names[self.parts[v].value] for v in (*node.inputs, *node.outputs))
            self.whole[padded] = part, dim

    def _direct(self, node: Node) -> Node:
        """A reshape of what reshapes made as one of what they were given."""
        value = self.shaped.get(node.inputs[0], node.inputs[0])
        self.shaped[node.outputs[0]] = value
        return replace(node, inputs=(value,))

    def _alias(self, name: str, value: str) -> None:
        if value in self.parts:
            self.parts[name] = self.parts[value]
        else:
            self.same[name] = self._whole(value)

    def _at_place(self, node: Node, copy: int) -> int | None:
        """The dim along which a copy's part is put among zeros, at its place."""
        if node.outputs[0] not in self.placed:
            return None
        dim, lo, hi = (node.number(a) for a in ("dim", "lo", "hi"))
        extent = self.program.types[node.inputs[0]].shape[dim]
        at_place = lo == copy * extent and hi == (self.copies - 1 - copy) * extent
        return dim if at_place else None

    def _shared(self, node: Node) -> None:
        inputs = tuple(map(self._whole, node.inputs))
        key = (node.op, inputs, _frozen(node.attrs), *_around(node))
        if key in self.known and len(node.outputs) == 1:
            self.same[node.outputs[0]] = self.known[key]
            return
        row = self.rows.get(inputs[0]) if node.op == "sum" else None
        if row is not None and row[1] in node.numbers("dims"):
            self.known[key] = self._over_time(self.b.add("sum", row[0], **node.attrs))
            self.same[node.outputs[0]] = self.known[key]
            return
        self.known[key] = node.outputs[0]
        self.b.append(replace(node, inputs=inputs))

    def _body(self, node: Node, copy: int, op: str, inputs: Sequence[str], **attrs: Attr) -> None:
        """An op of one copy: it is written down once, as all copies have it."""
        given = [self.parts[v].value if v in self.parts else self._whole(v) for v in inputs]
        key = (op, tuple(given), _frozen(attrs), *_around(node))
        for number, out in enumerate(node.outputs):
            value = self.values.setdefault((*key, number), len(self.values))
            self.parts[out] = Part(value, copy)
            self.made.setdefault(value, set()).add(copy)
        values = [self.parts[out].value for out in node.outputs]
        if op == "reshape" and isinstance(given[0], int):
            self.flat[values[0]] = self.flat.get(given[0], given[0])
        if values[0] in self.names:
            return
        named = [self.names[v] if isinstance(v, int) else v for v in given]
        placed = {"mesh_dim": self.dim} if op in ("shard_slice", "shard_pad") else {}
        outs = self.b.add_node(op, named, {**placed, **attrs}, timing=node.timing)
        self.names.update(zip(values, outs, strict=True))

    def _join(self, node: Node) -> None:
        if node.op == "add":
            total = self._added(node)
            often = total.complete(self.copies)
            if often is None:
                self.sums[node.outputs[0]] = total
            else:
                self.same[node.outputs[0]] = self._reduced(often, total.wholes)
        elif node.op == "concat":
            self.same[node.outputs[0]] = self._gathered(node)
        elif node.op == "reshape":
            self.sums[node.outputs[0]] = self._reshaped(node)
        else:
            raise UnlikeError

    def _reshaped(self, node: Node) -> Sum:
        """A sum of what some copies made, reshaped: that of each, reshaped."""
        (value,) = node.inputs
        total, parts = self.sums[value], Counter[Part]()
        for part, often in total.parts.items():
            base = self.flat.get(part.value, part.value) if self.at_once else part.value
            name, out = (f"{v}.{base}.{part.copy}" for v in (value, node.outputs[0]))
            self.parts[name] = self.parts[out] = Part(base, part.copy)
            if self.b.types[self.names[base]].shape != node.attrs["shape"]:
                self._body(replace(node, outputs=(out,)), part.copy, node.op, (name,), **node.attrs)
            parts[self.parts[out]] += often
        wholes = (self.b.add(node.op, v, **node.attrs) for v in total.wholes)
        return Sum(parts, tuple(wholes))

    def _added(self, node: Node) -> Sum:
        if len({self.program.types[v] for v in (*node.inputs, *node.outputs)}) > 1:
            raise UnlikeError
        parts, wholes = Counter[Part](), list[str]()
        for value in node.inputs:
            if value in self.sums:
                parts += self.sums[value].parts
                wholes += self.sums[value].wholes
            elif value in self.parts:
                parts[self.parts[value]] += 1
            else:
                wholes.append(self._whole(value))
        return Sum(parts, tuple(wholes))

    def _reduced(self, often: dict[int, int], wholes: Iterable[str]) -> str:
        terms = [self.names[v] for v, n in often.items() for _ in range(n)]
        apart = [self.whole[t] for t in terms if t in self.whole]
        total = [self.b.add("all_gather", v, mesh_dim=self.dim, dim=dim) for v, dim in apart]
        sent = [t for t in terms if t not in self.whole]
        if sent:
            total.append(self._over_time(self._sum(sent)))
        return self._sum([*total, *wholes])

    def _over_time(self, part: str) -> str:
        return self.b.add("all_reduce", part, mesh_dim=self.dim, reduce="sum")

    def _sum(self, terms: Sequence[str]) -> str:
        total = terms[0]
        for term in terms[1:]:
            total = self.b.add("add", total, term)
        return total

    def _gathered(self, node: Node) -> str:
        found = [self.parts.get(v) for v in node.inputs]
        values = {p.value for p in found if p is not None}
        if len(values) != 1 or [p and p.copy for p in found] != list(range(self.copies)):
            raise UnlikeError
        (value,) = values
        part, dim = self.names[value], node.number("dim")
        row = self.b.add("all_gather", part, mesh_dim=self.dim, dim=dim)
        self.rows[row] = part, dim
        return row


def _around(node: Node) -> Key:
    """Where an op runs. Layers of one kind stay apart: they are rolled up as what they are. What
    ranks send each other is of none, nor is its shape or dtype, nor a constant: each copy may begin
    it elsewhere."""
    sent = lookup(node.op).kind in ("collective", "movement") or node.op in ("reshape", "cast")
    return (node.where, node.timing, "" if sent or not node.inputs else node.source.module)


def _frozen(attrs: Mapping[str, Attr]) -> Key:
    return tuple(sorted((k, str(v)) for k, v in attrs.items()))
