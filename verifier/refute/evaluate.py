"""Runs programs on a domain: one device, or every rank of a mesh in lock step.

What ranks compute from the very same arrays is computed once. Arrays are never written to.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from verifier.domains.base import Array, Domain
from verifier.domains.floats import Floats
from verifier.kernel.inline import inline
from verifier.kernel.live import leading_to
from verifier.kernel.ops import Op, lookup
from verifier.kernel.ops.control import scan_parts
from verifier.kernel.program.errors import IRError
from verifier.kernel.program.groups import process_groups
from verifier.kernel.program.program import Node, Program
from verifier.kernel.program.types import Affine, Mesh, mesh_dims
from verifier.kernel.program.where import EVERYWHERE, Where, contains
from verifier.kernel.rank_sets import Regions, regions
from verifier.ops import facets

Values = dict[str, Array]
Ranks = list[Values]
Coords = Sequence[Mapping[str, int]]
Exchange = Callable[
    [Node, Sequence[Array | None], Sequence[int], Mapping[str, Any]], Sequence[Array | None]
]
"""What the ranks of a group hold after a node: node, their values (None where one has none), the
ranks, attributes."""
Run = Callable[[Ranks, Domain, Exchange | None], None]
"""Runs one node on all ranks, adding its results."""
PREPARED = 8
"""Programs that are kept ready to be run once more."""


def evaluate(program: Program, values: Mapping[str, Array], domain: Domain | None = None) -> Values:
    """Run a one-device program. `values` gives an array for each input; returns every value.

    Raises:
        KeyError: an input is missing.
        ValueError: an input has another shape than the program says.
    """
    return simulate(program, [values], domain)[0]


def simulate(
    program: Program,
    ranks: Sequence[Mapping[str, Array]],
    domain: Domain | None = None,
    exchange: Exchange | None = None,
    *,
    wanted: Collection[str] | None = None,
) -> Ranks:
    """Run a program on all ranks of its mesh; `ranks[i]` holds the inputs of rank i.

    Returns every value of every rank, in rank order (last mesh dim fastest); a rank has no entry
    for a value that lives on others. `exchange` runs the nodes of groups in place of what they
    mean. With `wanted`, nodes that these values do not depend on are not run.

    Raises:
        IRError: a node that some rank cannot run.
    """
    ready = _prepared(_Same(program))
    domain, coords = domain or Floats(), ready.coords
    if len(ranks) != len(coords):
        raise ValueError(f"{len(ranks)} sets of inputs for a mesh of {len(coords)} ranks")
    state: Ranks = []
    for given, where in zip(ranks, coords, strict=True):
        local: Values = {}
        for item in ready.program.inputs:
            if not contains(item.where, where):
                continue
            array = np.asarray(given[item.name])
            if array.shape != item.type.shape:
                raise ValueError(f"%{item.name} is {item.type}, got shape {list(array.shape)}")
            local[item.name] = array
        state.append(local)
    for run in ready.runs if wanted is None else ready.leading_to(frozenset(wanted)):
        run(state, domain, exchange)
    for composite, value in ready.renamed.items():
        for local in state:
            if value in local:
                local[composite] = local[value]
    return state


@dataclass(frozen=True, eq=False)
class _Ready:
    """A program in primitive ops, with what runs each of its nodes."""

    program: Program
    coords: Coords
    runs: tuple[Run, ...]
    renamed: Mapping[str, str]
    """What results of composite ops are called in it."""
    chosen: dict[frozenset[str], list[Run]] = field(default_factory=dict[frozenset[str], list[Run]])

    def leading_to(self, wanted: frozenset[str]) -> list[Run]:
        """What runs the nodes that some values depend on."""
        if wanted not in self.chosen:
            nodes = self.program.nodes
            kept = leading_to([self.renamed.get(v, v) for v in wanted], nodes)
            ids = set(map(id, kept))
            runs = zip(nodes, self.runs, strict=True)
            self.chosen[wanted] = [run for node, run in runs if id(node) in ids]
        return self.chosen[wanted]


@dataclass(frozen=True)
class _Same:
    """A program, told from others by identity."""

    program: Program = field(compare=False)
    id: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "id", id(self.program))


@lru_cache(PREPARED)
def _prepared(given: _Same) -> _Ready:
    """Raises IRError: a node that some rank cannot run."""
    names: dict[int, dict[str, str]] = {}
    program = inline(given.program, names=names)
    places = regions(program)
    for fault in places.faults():
        raise IRError(f"{program.name}: {fault.node.op} {fault.reason}  {fault.node.source}")
    make = _Maker(program.mesh, program.mesh.coords())
    renamed = names.get(id(given.program), {})
    return _Ready(program, make.coords, make.runs(program, places), renamed)


def at(attrs: Mapping[str, Any], coords: Mapping[str, int]) -> dict[str, Any]:
    """Attributes with their affine values taken at one rank."""
    return {k: v.at(coords) if isinstance(v, Affine) else v for k, v in attrs.items()}


def run_node(
    node: Node,
    state: Ranks,
    mesh: Mesh,
    coords: Coords,
    domain: Domain,
    places: Regions | None = None,
    exchange: Exchange | None = None,
) -> None:
    """Run one node on all ranks, adding its results to `state`."""
    _Maker(mesh, coords).run(node, places)(state, domain, exchange)


class _Maker:
    """Makes what runs nodes on the ranks of a mesh: all that is the same for all numbers is worked
    out once."""

    def __init__(self, mesh: Mesh, coords: Coords) -> None:
        self.mesh, self.coords = mesh, coords
        self.groups: dict[tuple[str, ...], list[list[int]]] = {}
        self.held: dict[Where, tuple[int, ...]] = {}
        self.bodies: dict[tuple[int, int], tuple[Program, Regions | None, tuple[Run, ...]]] = {}
        """By identity of a body and of its regions, which stay alive here."""

    def members(self, where: Where) -> tuple[int, ...]:
        """The ranks of a region."""
        if where not in self.held:
            found = (r for r, c in enumerate(self.coords) if contains(where, c))
            self.held[where] = tuple(found)
        return self.held[where]

    def runs(self, program: Program, places: Regions | None) -> tuple[Run, ...]:
        key = id(program), id(places)
        if key not in self.bodies:
            made = tuple(self.run(node, places) for node in program.nodes)
            self.bodies[key] = program, places, made
        return self.bodies[key][2]

    def run(self, node: Node, places: Regions | None) -> Run:
        op = lookup(node.op)
        attrs = op.with_defaults(node.attrs)
        if op.kind == "control":
            return self._scan(node, places)
        here = self.members(_place(places, node.outputs[0]))
        if op.kind == "collective" or (op.kind == "movement" and "mesh_dim" in attrs):
            return self._together(node, op, attrs, here)
        if op.kind == "movement":
            return _moved(node, here)
        if any(isinstance(v, Affine) for v in attrs.values()):
            return self._by_rank(node, op, attrs, here)
        return _local(node, op, attrs, here)

    def _together(self, node: Node, op: Op, attrs: dict[str, Any], here: tuple[int, ...]) -> Run:
        (name,), (out,), names = node.inputs, node.outputs, mesh_dims(attrs["mesh_dim"])
        if names not in self.groups:
            self.groups[names] = process_groups(self.mesh, names)
        groups, held = self.groups[names], frozenset(here)

        def run(state: Ranks, domain: Domain, exchange: Exchange | None) -> None:
            known: dict[tuple[int, ...], Sequence[Array | None]] = {}
            for group in groups:
                given = [state[r].get(name) for r in group]
                if all(x is None for x in given):
                    continue
                if exchange is None:
                    key = tuple(map(id, given))
                    if key not in known:
                        known[key] = facets(op.name).meaning(domain, given, **attrs)
                    results = known[key]
                else:
                    results = exchange(node, given, group, attrs)
                for rank, value in zip(group, results, strict=True):
                    if value is not None and rank in held:
                        state[rank][out] = value

        return run

    def _by_rank(self, node: Node, op: Op, attrs: dict[str, Any], here: tuple[int, ...]) -> Run:
        chosen = [(rank, at(attrs, self.coords[rank])) for rank in here]
        out, names = node.outputs[0], node.inputs

        def run(state: Ranks, domain: Domain, exchange: Exchange | None) -> None:
            for rank, mine in chosen:
                local = state[rank]
                local[out] = np.asarray(
                    facets(op.name).meaning(domain, *(local[v] for v in names), **mine)
                )

        return run

    def _scan(self, node: Node, places: Regions | None) -> Run:
        body = node.block
        length, carries = node.number("length"), node.number("carry")
        xs = range(len(node.inputs))[scan_parts(node.attrs, len(node.inputs))[1]]
        inside = places.inside(node) if places else None
        enter: list[tuple[int, str, str, tuple[int, ...]]] = []
        for k, (item, value) in enumerate(zip(body.inputs, node.inputs, strict=True)):
            enter.append((k, item.name, value, self.members(_place(inside, item.name))))
        steps = range(length - 1, -1, -1) if node.attrs.get("reverse") else range(length)
        runs, ends = self.runs(body, inside), [o.value for o in body.outputs]
        stacked = list(zip(node.outputs[carries:], ends[carries:], strict=True))

        def run(state: Ranks, domain: Domain, exchange: Exchange | None) -> None:
            carried = {k: [state[r][v] for r in held] for k, _, v, held in enter[:carries]}
            made: list[list[Values]] = []
            for step in steps:
                inner: Ranks = [{} for _ in state]
                for k, name, value, held in enter:
                    given = carried[k] if k < carries else [state[r][value] for r in held]
                    parts: dict[int, Array] = {}
                    for rank, array in zip(held, given, strict=True):
                        if k in xs:
                            if id(array) not in parts:
                                parts[id(array)] = array[step]
                            array = parts[id(array)]
                        inner[rank][name] = array
                for child in runs:
                    child(inner, domain, exchange)
                for k, _, _, held in enter[:carries]:
                    carried[k] = [inner[r][ends[k]] for r in held]
                made.append([{v: local[v] for _, v in stacked if v in local} for local in inner])
            for k, _, _, held in enter[:carries]:
                for rank, array in zip(held, carried[k], strict=True):
                    state[rank][node.outputs[k]] = array
            for name, value in stacked:
                _stack(name, value, made[:: steps.step], state)

        return run


def _stack(name: str, value: str, made: Sequence[Ranks], state: Ranks) -> None:
    """Gives each rank that has a value at every step all of them as one array."""
    known: dict[tuple[int, ...], Array] = {}
    for rank, local in enumerate(state):
        rows = [step[rank][value] for step in made if value in step[rank]]
        if len(rows) == len(made):
            key = tuple(map(id, rows))
            if key not in known:
                known[key] = np.stack(rows)
            local[name] = known[key]


def _local(node: Node, op: Op, attrs: dict[str, Any], here: tuple[int, ...]) -> Run:
    out, names, meaning = node.outputs[0], node.inputs, facets(op.name).meaning

    def alone(state: Ranks, domain: Domain, exchange: Exchange | None) -> None:
        local = state[here[0]]
        local[out] = np.asarray(meaning(domain, *[local[v] for v in names], **attrs))

    def run(state: Ranks, domain: Domain, exchange: Exchange | None) -> None:
        known: dict[tuple[int, ...], Array] = {}
        for rank in here:
            local = state[rank]
            given = [local[v] for v in names]
            key = tuple(map(id, given))
            found = known.get(key)
            if found is None:
                found = known[key] = np.asarray(meaning(domain, *given, **attrs))
            local[out] = found

    return alone if len(here) == 1 else run


def _moved(node: Node, here: tuple[int, ...]) -> Run:
    out, names = node.outputs[0], node.inputs

    def run(state: Ranks, domain: Domain, exchange: Exchange | None) -> None:
        for rank in here:
            local = state[rank]
            local[out] = next(local[v] for v in names if v in local)

    return run


def _place(places: Regions | None, value: str) -> Where:
    return places.values[value] if places is not None else EVERYWHERE


def elements(program: Program, copies: int = 1, bodies: dict[int, int] | None = None) -> int:
    """Numbers that one run of a program holds. `bodies` are those counted before."""
    bodies = {} if bodies is None else bodies
    total = sum(t.size for t in program.types.values())
    for node in program.nodes:
        if node.body is not None:
            length = node.number("length")
            if id(node.body) not in bodies:
                bodies[id(node.body)] = elements(node.body, bodies=bodies)
            total += length * bodies[id(node.body)]
    return total * copies
