"""Runs programs on all ranks of a mesh, equal computations once.

Every array is known by a number, equal arrays by the same one. An op on operands that it was run
on before gives the result it gave then, whichever rank, block or micro-batch that was. So what
thousands of ranks do alike is done once; the results are those of `evaluate.simulate`.
"""

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verifier.domains.base import Array, Domain
from verifier.kernel.live import leading_to
from verifier.kernel.ops import Op, lookup
from verifier.kernel.ops.control import scan_parts
from verifier.kernel.program.errors import IRError
from verifier.kernel.program.program import Node, Program
from verifier.kernel.program.types import Affine, mesh_dims
from verifier.kernel.program.where import Where, contains
from verifier.kernel.rank_sets import Regions, regions
from verifier.ops import facets
from verifier.refute.evaluate import at

Ids = NDArray[np.int64]
"""For each rank the number of its array, -1 where it has none."""
ABSENT = -1
BUDGET = 300_000
"""Unlike computations of one program in one run."""


class BudgetError(Exception):
    """More unlike computations than were allowed."""


class Arrays:
    """Arrays by number, and what each computation on them gave, in one run or in several.

    Args:
        domain: what the ops compute on.
        budget: how many unlike computations are done.
    """

    def __init__(self, domain: Domain, budget: int) -> None:
        self.domain, self.left = domain, budget
        self.bodies: dict[int, Program] = {}
        """Blocks are told apart by identity; here they stay alive."""
        self.arrays: list[Array] = []
        self.numbers: dict[Hashable, int] = {}
        self.known: dict[Hashable, Any] = {}
        self.calls: dict[Hashable, int] = {}

    def number(self, array: Array) -> int:
        """The number of an array."""
        key = array.shape, array.dtype.str, array.tobytes()
        found = self.numbers.get(key)
        if found is None:
            found = self.numbers[key] = len(self.arrays)
            self.arrays.append(array)
        return found

    def call(self, op: str, attrs: Mapping[str, Any]) -> int:
        """A number for an op with its attributes."""
        key = op, tuple((k, type(v).__name__, v) for k, v in sorted(attrs.items()))
        return self.calls.setdefault(key, len(self.calls))

    def once(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """What `make` gives, made once for each key. Raises BudgetError."""
        if key not in self.known:
            self.left -= 1
            if self.left < 0:
                raise BudgetError
            self.known[key] = make()
        return self.known[key]


def simulate(
    program: Program,
    ranks: Sequence[Mapping[str, Array]],
    known: Arrays,
    wanted: Collection[str] | None = None,
) -> list[dict[str, Array]]:
    """The outputs of a program in primitive ops on all ranks of its mesh, by value.

    Args:
        program: in primitive ops (`verifier.kernel.inline`).
        ranks: the inputs of each rank.
        known: what was computed before, in runs of programs on the same mesh.
        wanted: the values that are asked for, where not all outputs are.

    Raises:
        IRError: a node that some rank cannot run.
        BudgetError: more unlike computations than `known` has left.
    """
    places = regions(program)
    for fault in places.faults():
        raise IRError(f"{program.name}: {fault.node.op} {fault.reason}  {fault.node.source}")
    run = _Run(program, known)
    values: dict[str, Ids] = {}
    for item in program.inputs:
        values[item.name] = run.absent()
        for rank in run.members(item.where):
            array = np.asarray(ranks[int(rank)][item.name])
            values[item.name][rank] = run.arrays.number(array)
    ends = {o.value for o in program.outputs} if wanted is None else set(wanted)
    nodes = leading_to(ends, program.nodes)
    last = _last_reads(nodes, ends)
    for i, node in enumerate(nodes):
        run.node(node, values, places)
        for name in last.get(i, ()):
            values.pop(name, None)
    out: list[dict[str, Array]] = [{} for _ in ranks]
    for name in ends:
        for local, found in zip(out, values[name], strict=True):
            if found != ABSENT:
                local[name] = run.arrays.arrays[found]
    return out


def run_once(
    program: Program,
    ranks: Sequence[Mapping[str, Array]],
    domain: Domain,
    *,
    wanted: Collection[str],
) -> list[dict[str, Array]]:
    """As `evaluate.simulate`.

    Raises:
        BudgetError: more unlike computations than `BUDGET`.
    """
    return simulate(program, ranks, Arrays(domain, BUDGET), wanted)


def _last_reads(nodes: Sequence[Node], kept: Collection[str]) -> dict[int, list[str]]:
    """By node, the values that nobody reads after it."""
    last: dict[str, int] = {}
    for i, node in enumerate(nodes):
        last |= dict.fromkeys((*node.inputs, *node.outputs), i)
    out: dict[int, list[str]] = {}
    for name, i in last.items():
        if name not in kept:
            out.setdefault(i, []).append(name)
    return out


@dataclass(frozen=True, slots=True)
class _Still:
    op: Op
    kind: str
    attrs: dict[str, Any]
    affine: bool
    call: int
    here: Ids
    """The ranks that hold the result."""


class _Run:
    def __init__(self, program: Program, arrays: Arrays) -> None:
        self.mesh, self.arrays = program.mesh, arrays
        self.coords: list[dict[str, int]] = program.mesh.coords()
        self.size = len(self.coords)
        self.places: dict[Where, Ids] = {}
        self.groups: dict[tuple[str, ...], Ids] = {}
        self.stills: dict[tuple[int, int], _Still] = {}
        self.bodies: dict[tuple[int, int], Regions] = {}
        self.regions: dict[int, int] = {}

    def absent(self) -> Ids:
        return np.full(self.size, ABSENT, np.int64)

    def members(self, where: Where) -> Ids:
        """The ranks of a region."""
        if where not in self.places:
            found = [r for r, c in enumerate(self.coords) if contains(where, c)]
            self.places[where] = np.array(found, np.int64)
        return self.places[where]

    def grouped(self, names: tuple[str, ...]) -> Ids:
        """Ranks of each group of the named mesh dims: one row a group, last name fastest."""
        if names not in self.groups:
            sizes = tuple(n for _, n in self.mesh.dims)
            moving = [self.mesh.names.index(n) for n in names]
            still = [i for i in range(len(sizes)) if i not in moving]
            every = np.arange(self.size).reshape(sizes).transpose(*still, *moving)
            count = int(np.prod([sizes[i] for i in moving], dtype=np.int64))
            self.groups[names] = every.reshape(-1, count)
        return self.groups[names]

    def still(self, node: Node, places: Regions) -> _Still:
        """What does not change from one run of a node to the next."""
        key = id(node), id(places)
        found = self.stills.get(key)
        if found is None:
            op = lookup(node.op)
            attrs = op.with_defaults(node.attrs)
            kind = op.kind
            if kind == "collective" or (kind == "movement" and "mesh_dim" in attrs):
                kind = "together"
            affine = any(isinstance(v, Affine) for v in attrs.values())
            call = 0 if affine or kind == "control" else self.arrays.call(node.op, attrs)
            here = self.members(places.values[node.outputs[0]])
            found = self.stills[key] = _Still(op, kind, attrs, affine, call, here)
        return found

    def inside(self, node: Node, places: Regions) -> Regions:
        """The ranks of the values in a body; the same object for the same body and region."""
        key = id(node.body), id(places.bodies.get(node.outputs[0]))
        if key not in self.bodies:
            self.bodies[key] = places.inside(node)
        return self.bodies[key]

    def alike(self, inside: Regions) -> int:
        """A number for the ranks of the values in a body, which say those of all inner ones."""
        if id(inside) not in self.regions:
            key = "regions", frozenset(inside.values.items())
            self.regions[id(inside)] = self.arrays.calls.setdefault(key, len(self.arrays.calls))
        return self.regions[id(inside)]

    def node(self, node: Node, values: dict[str, Ids], places: Regions) -> None:
        """Run one node on all ranks, adding its results to `values`."""
        still = self.still(node, places)
        if still.kind == "control":
            self._scan(node, values, places)
        elif still.kind == "together":
            values[node.outputs[0]] = self._together(node, still, values)
        elif still.kind == "movement":
            values[node.outputs[0]] = out = self.absent()
            here = still.here
            for name in reversed(node.inputs):
                given = values[name][here]
                out[here] = np.where(given == ABSENT, out[here], given)
        else:
            values[node.outputs[0]] = self._local(node, still, values)

    def _local(self, node: Node, still: _Still, values: dict[str, Ids]) -> Ids:
        arrays, out, here = self.arrays, self.absent(), still.here
        columns = [values[v][here].tolist() for v in node.inputs]
        rows: list[tuple[int, ...]] = list(zip(*columns, strict=True)) or [()] * len(here)

        def result(chosen: dict[str, Any], row: tuple[int, ...]) -> int:
            given = (arrays.arrays[k] for k in row)
            made: Array = np.asarray(facets(still.op.name).meaning(arrays.domain, *given, **chosen))
            return arrays.number(made)

        found: dict[Hashable, int] = {}
        made: list[int] = []
        if still.affine:
            for rank, row in zip(map(int, here), rows, strict=True):
                chosen: dict[str, Any] = at(still.attrs, self.coords[rank])
                one: Callable[[], int] = partial(result, chosen, row)
                made.append(arrays.once((arrays.call(node.op, chosen), row), one))
        else:
            for row in rows:
                if row not in found:
                    key = still.call, row
                    found[row] = arrays.once(key, lambda r=row: result(still.attrs, r))
                made.append(found[row])
        out[here] = made
        return out

    def _together(self, node: Node, still: _Still, values: dict[str, Ids]) -> Ids:
        arrays, out = self.arrays, self.absent()
        groups = self.grouped(mesh_dims(still.attrs["mesh_dim"]))
        given = values[node.inputs[0]][groups]
        here = np.zeros(self.size, bool)
        here[still.here] = True

        def result(row: tuple[int, ...]) -> list[int]:
            parts = [None if k == ABSENT else arrays.arrays[k] for k in row]
            made: list[Array | None] = facets(still.op.name).meaning(
                arrays.domain, parts, **still.attrs
            )
            return [ABSENT if x is None else arrays.number(np.asarray(x)) for x in made]

        for group, ids in zip(groups, given.tolist(), strict=True):
            row = tuple(ids)
            if any(k != ABSENT for k in row):
                out[group] = arrays.once((still.call, row), lambda r=row: result(r))
        out[~here] = ABSENT
        return out

    def _scan(self, node: Node, values: dict[str, Ids], places: Regions) -> None:
        body = node.block
        given = [values[v] for v in node.inputs]
        attrs = tuple(sorted(node.attrs.items()))
        inside = self.inside(node, places)
        self.arrays.bodies[id(body)] = body
        key = id(body), self.alike(inside), attrs, tuple(ids.tobytes() for ids in given)
        made = self.arrays.known.get(key)
        if made is None:
            made = self.arrays.known[key] = self._steps(node, body, given, inside)
        values |= zip(node.outputs, made, strict=True)

    def _steps(self, node: Node, body: Program, given: list[Ids], inside: Regions) -> list[Ids]:
        arrays, length, carries = self.arrays, node.number("length"), node.number("carry")
        xs = range(len(given))[scan_parts(node.attrs, len(given))[1]]
        entering: list[Ids] = []
        for item, ids in zip(body.inputs, given, strict=True):
            entering.append(self.absent())
            here = self.members(inside.values[item.name])
            entering[-1][here] = ids[here]
        carry, slices = entering[:carries], list[list[Ids]]()
        steps = range(length - 1, -1, -1) if node.attrs.get("reverse") else range(length)
        for step in steps:
            local = {item.name: carry[k] for k, item in enumerate(body.inputs[:carries])}
            for k in range(carries, len(given)):
                ids = self._each(entering[k], "step", step) if k in xs else entering[k]
                local[body.inputs[k].name] = ids
            for child in body.nodes:
                self.node(child, local, inside)
            results = [local[o.value] for o in body.outputs]
            carry = [
                np.where(old == ABSENT, ABSENT, new)
                for old, new in zip(carry, results[:carries], strict=True)
            ]
            slices.append(results[carries:])
        if node.attrs.get("reverse"):
            slices.reverse()
        stacked: list[Ids] = []
        for k in range(len(body.outputs) - carries):
            rows = np.stack([step[k] for step in slices], axis=1)
            out = self.absent()
            for rank in np.flatnonzero((rows != ABSENT).all(axis=1)):
                row: tuple[int, ...] = tuple(rows[rank].tolist())
                out[rank] = arrays.once(("stack", row), lambda r=row: self._stacked(r))
            stacked.append(out)
        return [*carry, *stacked]

    def _stacked(self, row: tuple[int, ...]) -> int:
        return self.arrays.number(np.stack([self.arrays.arrays[i] for i in row]))

    def _each(self, ids: Ids, what: str, step: int) -> Ids:
        """One slice of the arrays of all ranks."""
        arrays, out = self.arrays, self.absent()
        for found in np.unique(ids):
            if found != ABSENT:
                part = arrays.once(
                    (what, step, int(found)),
                    lambda n=int(found): arrays.number(np.asarray(arrays.arrays[n][step])),
                )
                out[ids == found] = part
        return out
