"""Whether lookups of a traced module stay inside their tables, for all integers it may be given.

PyTorch raises where an index is out of range; the language gives zero there. So a module whose
index leaves its table must not be read as one that masks.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from shardproof.synthesis.frontends.torch.request import InputSpec
from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.kernel.program.program import Input, Node, Output, Program
from shardproof.verifier.kernel.program.types import NO_MESH, Source
from shardproof.verifier.ops.classes import SCATTERS
from shardproof.verifier.refute.evaluate import evaluate

MOST = 1 << 22
"""Entries of indices that are computed for one lookup."""


@dataclass(frozen=True)
class Outside:
    """A lookup outside of its table, or one of which that is not known."""

    op: str
    size: int
    """Entries that there are."""
    index: int | None
    """What is looked up; None: not known."""
    given: str
    """For which integer of which input; empty where the index needs none."""
    source: Source

    @property
    def leaves(self) -> bool:
        """Whether an entry is looked up that is behind the last."""
        return self.index is not None and self.index >= self.size


def outside(program: Program, specs: Sequence[InputSpec]) -> list[Outside]:
    """Every lookup that leaves its table for some integers, or of which it is not known."""
    producers = program.producers()
    limits = {s.name: s for s in specs}
    out: list[Outside] = []
    seen: set[tuple[str, int]] = set()
    for node in program.nodes:
        if lookup(node.op).kind != "index":
            continue
        size = _size(program, node)
        key = (node.inputs[1], size)
        if key in seen:
            continue
        seen.add(key)
        needed = _before(producers, node.inputs[1])
        found = _first(program, node, size, needed, limits)
        if found is not None:
            out.append(found)
    return out


def _size(program: Program, node: Node) -> int:
    if node.op in SCATTERS:
        return node.number("size")
    dim: int = lookup(node.op).with_defaults(node.attrs)["dim"]
    return program.types[node.inputs[0]].shape[dim]


def _before(producers: dict[str, Node], value: str) -> list[str]:
    """The value and all that it is made from."""
    found: dict[str, None] = {}
    todo = [value]
    while todo:
        name = todo.pop()
        if name not in found:
            found[name] = None
            node = producers.get(name)
            todo += node.inputs if node is not None else ()
    return list(found)


def _first(
    program: Program, node: Node, size: int, needed: list[str], limits: dict[str, InputSpec]
) -> Outside | None:
    """The first integer for which the index is out of range."""
    names = set(needed)
    nodes = [n for n in program.nodes if n.outputs[0] in names]
    given = [i for i in program.inputs if i.name in names]
    unknown = Outside(node.op, size, None, "", node.source)
    if len(given) > 1 or any(i.role != "input" for i in given) or not _one_entry(nodes, given):
        return unknown
    index = node.inputs[1]
    types = {v: t for v, t in program.types.items() if v in names}
    part = Program(program.name, tuple(given), tuple(nodes), (Output(index),), types, NO_MESH)
    if not given:
        values = np.asarray(evaluate(part, {})[index])
        bad = values[(values < 0) | (values >= size)]
        return Outside(node.op, size, int(bad[0]), "", node.source) if bad.size else None
    name, shape = given[0].name, given[0].type.shape
    spec = limits.get(given[0].path)
    below = 0 if spec is None else spec.below
    if spec is None or not below or given[0].type.dtype not in ("i64", "i32"):
        return unknown
    alike = any(n.op not in ("full", "reshape") and lookup(n.op).kind != "map" for n in nodes)
    steps = below if alike else below // max(given[0].type.size, 1) + 1
    if steps * max(given[0].type.size, types[index].size) > MOST:
        return unknown
    for held in _fillings(shape, spec, alike):
        values = np.asarray(evaluate(part, {name: held})[index])
        bad = (values < 0) | (values >= size)
        if bad.any():
            at = int(held[bad][0]) if held.shape == values.shape else int(held.reshape(-1)[0])
            said = f"{given[0].path} = {at}"
            return Outside(node.op, size, int(values[bad][0]), said, node.source)
    return None


def _one_entry(nodes: Sequence[Node], given: Sequence[Input]) -> bool:
    """Whether each entry of what is computed depends on at most one entry of what is given."""
    paths: dict[str, tuple[str, ...]] = {i.name: () for i in given}
    for node in nodes:
        ways = {paths[v] for v in node.inputs if v in paths}
        kind = lookup(node.op).kind
        one = kind in ("map", "create") or (kind == "view" and len(node.inputs) == 1)
        if len(ways) > 1 or not one:
            return False
        if ways:
            (way,) = ways
            step = () if kind == "map" else (f"{node.op} {sorted(node.attrs.items())}",)
            paths[node.outputs[0]] = (*way, *step)
    return True


def _fillings(
    shape: tuple[int, ...], spec: InputSpec, alike: bool
) -> Iterator[np.ndarray[tuple[int, ...], np.dtype[np.int64]]]:
    """Arrays that hold every value; `alike`: in every entry."""
    below = spec.below
    if spec.ignored is not None:
        yield np.full(shape, spec.ignored, np.int64)
    if alike:
        for value in range(below):
            yield np.full(shape, value, np.int64)
        return
    entries = int(np.prod(shape)) if shape else 1
    for first in range(0, below, entries):
        yield (np.minimum(np.arange(entries) + first, below - 1)).reshape(shape)
