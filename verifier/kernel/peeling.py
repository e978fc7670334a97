"""Repeated blocks with some of their steps written out: the same values, other text.

A scan of n steps is its first k steps, then the next ones, and so on: each run of steps is a scan
of its own over its slices of the xs, or is written out step by step. What one run leaves in the
carries the next one starts from; the ys are joined in the order of the slices. This is the
definition of a scan (`verifier/refute/evaluate.py`) read in parts, and holds for every body.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.kernel.ops.control import scan_parts
from shardproof.verifier.kernel.program.program import Node, Output, Program, unused
from shardproof.verifier.kernel.program.types import Attr, TensorType
from shardproof.verifier.kernel.program.where import Where, common
from shardproof.verifier.kernel.rank_sets import Regions, regions

Interval = tuple[int, int]
"""From a step on, up to but without another."""


@dataclass(frozen=True, slots=True)
class Peel:
    """Which steps of a repeated block stay repeated; all others are written out."""

    block: str
    """The first output of the scan; with the labels of the scans around it before it, `a/b`."""
    kept: tuple[Interval, ...]
    """Disjoint, in order."""

    def __str__(self) -> str:
        return f"%{self.block} but for the steps {', '.join(f'{a}:{b}' for a, b in self.kept)}"


class PeelError(ValueError):
    """A block, or steps of it, that the program does not have."""


def peeled(program: Program, peels: Iterable[Peel]) -> Program:
    """The program with steps written out, one peel after the other.

    A later peel may name a block by what it is called after earlier ones.

    Raises:
        PeelError: a peel that names no block, or steps that it does not have.
    """
    for peel in peels:
        program = _peeled(program, peel.block.split("/"), peel.kept, None)
    return program


def _peeled(
    program: Program, path: Sequence[str], kept: Sequence[Interval], places: Regions | None
) -> Program:
    places = places or regions(program)
    index, node = _scan(program, path[0])
    if len(path) > 1:
        body = _peeled(node.block, path[1:], kept, places.inside(node))
        nodes = list(program.nodes)
        nodes[index] = replace(node, body=body)
        return replace(program, nodes=tuple(nodes))
    return _Writer(program, index, kept, places).written()


def _scan(program: Program, label: str) -> tuple[int, Node]:
    for index, node in enumerate(program.nodes):
        if node.body is not None and node.outputs[0] == label:
            return index, node
    raise PeelError(f"{program.name} has no repeated block %{label}")


class _Writer:
    """Puts the runs of one scan in its place."""

    def __init__(
        self, program: Program, index: int, kept: Sequence[Interval], places: Regions
    ) -> None:
        self.program, self.index = program, index
        self.node = node = program.nodes[index]
        self.body, self.label = node.block, node.outputs[0]
        self.length = node.number("length")
        ends = [0, *(end for interval in kept for end in interval), self.length]
        rising = all(a <= b for a, b in pairwise(ends))
        if not rising or any(a == b for a, b in kept):
            raise PeelError(f"%{self.label} has {self.length} steps, not {list(kept)}")
        self.kept = tuple(kept)
        self.places = places
        self.inside = places.inside(node)
        self.carries, self.xs, self.consts = scan_parts(node.attrs, len(node.inputs))
        self.types = dict(program.types)
        self.nodes: list[Node] = []
        self.cuts = _cuts(program.nodes[:index])
        """What was cut along dim 0 before: (value, start, stop) -> its name."""
        self.joins = {
            n.outputs[0]: n.inputs
            for n in program.nodes[:index]
            if n.op == "concat" and n.attrs.get("dim") == 0
        }
        """What was joined along dim 0 before."""

    def written(self) -> Program:
        node = self.node
        carries = self.carries.stop
        state = list(node.inputs[self.carries])
        made: dict[int, list[str]] = {}
        runs = self._runs()
        for start, stop in reversed(runs) if node.attrs.get("reverse") else runs:
            repeated = (start, stop) in self.kept
            results = (self._repeated if repeated else self._step)(start, stop, state)
            state, made[start] = results[:carries], results[carries:]
        for k, name in enumerate(node.outputs[carries:]):
            pieces = [made[start][k] for start, _ in runs]
            if len(pieces) == 1:
                self._add("reshape", pieces, name, {"shape": self.types[name].shape})
            else:
                self._add("concat", pieces, name, {"dim": 0})
        became = dict(zip(node.outputs[:carries], state, strict=True))
        for name in became:
            del self.types[name]
        before, after = self.program.nodes[: self.index], self.program.nodes[self.index + 1 :]
        later = [replace(n, inputs=tuple(became.get(v, v) for v in n.inputs)) for n in after]
        outputs: list[Output] = [
            replace(o, value=became.get(o.value, o.value)) for o in self.program.outputs
        ]
        return replace(
            self.program,
            nodes=(*before, *self.nodes, *later),
            outputs=tuple(outputs),
            types=self.types,
        )

    def _runs(self) -> list[Interval]:
        """All steps in order of their index: those repeated together, and each other one alone."""
        out: list[Interval] = []
        for start, stop in (*self.kept, (self.length, self.length)):
            at = out[-1][1] if out else 0
            out += [(step, step + 1) for step in range(at, start)]
            if start < stop:
                out.append((start, stop))
        return out

    def _add(
        self, op: str, inputs: Sequence[str], name: str, attrs: dict[str, Attr], where: Where = ()
    ) -> str:
        self.nodes.append(Node(op, tuple(inputs), (name,), attrs, self.node.source, None, where))
        return name

    def _cut(self, value: str, start: int, stop: int) -> str:
        """Slices of a value along its first dim; what was cut or joined before is read as it is."""
        if (start, stop) == (0, self.length):
            return value
        at = 0
        for part in self.joins.get(value, ()):
            extent = self.types[part].shape[0]
            if (at, at + extent) == (start, stop):
                return part
            at += extent
        key = (value, start, stop)
        if key not in self.cuts:
            kind = self.types[value]
            name = unused(f"{value}.{start}to{stop}", self.types, ".")
            self.types[name] = TensorType((stop - start, *kind.shape[1:]), kind.dtype)
            self.cuts[key] = name
            self._add("slice", [value], name, {"dim": 0, "start": start, "stop": stop})
        return self.cuts[key]

    def _repeated(self, start: int, stop: int, state: list[str]) -> list[str]:
        node, count = self.node, stop - start
        xs = [self._cut(v, start, stop) for v in node.inputs[self.xs]]
        names: list[str] = []
        for k, old in enumerate(node.outputs):
            kind = self.program.types[old]
            names.append(unused(f"{old}.{start}to{stop}", self.types, "."))
            shape = kind.shape if k < self.carries.stop else (count, *kind.shape[1:])
            self.types[names[-1]] = TensorType(shape, kind.dtype)
        self.nodes.append(
            replace(
                node,
                inputs=(*state, *xs, *node.inputs[self.consts]),
                outputs=tuple(names),
                attrs={**node.attrs, "length": count},
            )
        )
        return names

    def _step(self, step: int, stop: int, state: list[str]) -> list[str]:
        node, body = self.node, self.body
        given = list(state)
        for value in node.inputs[self.xs]:
            cut = self._cut(value, step, stop)
            kind = self.types[cut]
            name = unused(f"{value}.{step}", self.types, ".")
            self.types[name] = TensorType(kind.shape[1:], kind.dtype)
            given.append(self._add("reshape", [cut], name, {"shape": kind.shape[1:]}))
        given += node.inputs[self.consts]
        names: dict[str, str] = {}
        for item, value in zip(body.inputs, given, strict=True):
            names[item.name] = value
            held = self.inside.values[item.name]
            if item.where and held != self.places.values.get(value, held):
                name = unused(f"{self.label}.{step}.{item.name}", self.types, ".")
                self.types[name] = item.type
                names[item.name] = self._add("only", [value], name, {}, held)
        region = () if any(i.where for i in body.inputs) else self._region()
        for inner in body.nodes:
            outputs: list[str] = []
            for old in inner.outputs:
                outputs.append(unused(f"{self.label}.{step}.{old}", self.types, "."))
                self.types[outputs[-1]] = body.types[old]
            names.update(zip(inner.outputs, outputs, strict=True))
            where = inner.where
            if region and lookup(inner.op).kind != "movement":
                where = common(region, where) or where
            self.nodes.append(
                replace(
                    inner,
                    inputs=tuple(names[v] for v in inner.inputs),
                    outputs=tuple(outputs),
                    where=where,
                )
            )
        results = [names[o.value] for o in body.outputs]
        carries = self.carries.stop
        for k in range(carries, len(results)):
            kind = self.types[results[k]]
            name = unused(f"{node.outputs[k]}.{step}", self.types, ".")
            self.types[name] = TensorType((1, *kind.shape), kind.dtype)
            results[k] = self._add("reshape", [results[k]], name, {"shape": (1, *kind.shape)})
        return results

    def _region(self) -> Where:
        """The ranks that run the block, where its inputs say nothing."""
        first = self.body.inputs[:1]
        return self.inside.values[first[0].name] if first else self.node.where


def _cuts(nodes: Iterable[Node]) -> dict[tuple[str, int, int], str]:
    out: dict[tuple[str, int, int], str] = {}
    for node in nodes:
        attrs = lookup(node.op).with_defaults(node.attrs) if node.op == "slice" else {}
        start, stop = attrs.get("start"), attrs.get("stop")
        if attrs.get("dim") == 0 and attrs.get("step") == 1 and not node.where:
            assert isinstance(start, int)
            assert isinstance(stop, int)
            out[node.inputs[0], start, stop] = node.outputs[0]
    return out
