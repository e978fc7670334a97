"""Runs programs on a domain: one device, or every rank of a mesh in lock step.

What ranks compute from the very same arrays is computed once. Arrays are never written to.
"""

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any

import numpy as np

from shardproof.verifier.domains.base import Array, Domain
from shardproof.verifier.domains.floats import Floats
from shardproof.verifier.kernel.inline import inline
from shardproof.verifier.kernel.ops import Op, lookup
from shardproof.verifier.kernel.ops.control import scan_parts
from shardproof.verifier.kernel.program.errors import IRError
from shardproof.verifier.kernel.program.program import Node, Program, leading_to
from shardproof.verifier.kernel.program.types import Affine, Mesh, mesh_dims
from shardproof.verifier.kernel.program.where import EVERYWHERE, Where, contains, process_groups
from shardproof.verifier.kernel.rank_sets import Regions, regions
from shardproof.verifier.ops import facets

Values = dict[str, Array]
Ranks = list[Values]
Coords = Sequence[Mapping[str, int]]
Exchange = Callable[
    [Node, Sequence[Array | None], Sequence[int], Mapping[str, Any]], Sequence[Array | None]
]
"""What the ranks of a group hold after a node: node, their values (None where one has none), the
ranks, attributes."""


class Work:
    """What ops compute on, and where: here, each node of a program for itself.

    Args:
        exchange: runs the nodes of groups in place of what they mean.
    """

    def __init__(self, domain: Domain, exchange: Exchange | None = None) -> None:
        self.domain, self.exchange = domain, exchange

    def once(self, key: Hashable, make: Callable[[], Any], about: object = None) -> Any:
        """What `make` gives; `key` says all that this depends on, arrays and `about` by `id`."""
        return make()

    def held(self, array: Array) -> Array:
        """The array, or one that is equal and known."""
        return array

    def meant(
        self,
        call: Hashable,
        meaning: Callable[..., Any],
        attrs: Mapping[str, Any],
        given: Sequence[Array],
        ids: Hashable,
    ) -> Array:
        """What an op makes of operands, of which `ids` are the identities."""

        def make() -> Array:
            return self.held(np.asarray(meaning(self.domain, *given, **attrs)))

        return self.once((call, ids), make)


Run = Callable[[Ranks, Work], None]
"""Runs one node on all ranks, adding its results."""
Step = tuple[Run, Sequence[str]]
"""What runs a node, and the values that nobody reads after it."""
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
    work: Work | None = None,
) -> Ranks:
    """Run a program on all ranks of its mesh; `ranks[i]` holds the inputs of rank i.

    Returns every value of every rank, in rank order (last mesh dim fastest); a rank has no entry
    for a value that lives on others. `exchange` runs the nodes of groups in place of what they
    mean. With `wanted`, nodes that these values do not depend on are not run, and others that
    nobody reads any more are left out. `work` stands for domain and exchange.

    Raises:
        IRError: a node that some rank cannot run.
    """
    ready = _prepared(_Same(program))
    work, coords = work or Work(domain or Floats(), exchange), ready.coords
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
            local[item.name] = work.held(array)
        state.append(local)
    for run, read in ready.steps(None if wanted is None else frozenset(wanted)):
        run(state, work)
        for name in read:
            for local in state:
                local.pop(name, None)
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
    chosen: dict[frozenset[str], list[Step]] = field(
        default_factory=dict[frozenset[str], list[Step]]
    )

    def steps(self, wanted: frozenset[str] | None) -> list[Step]:
        """What runs the nodes, or those that some values depend on."""
        if wanted is None:
            return [(run, ()) for run in self.runs]
        if wanted not in self.chosen:
            ends = {self.renamed.get(v, v) for v in wanted}
            kept = leading_to(ends, self.program.nodes)
            runs = dict(zip(map(id, self.program.nodes), self.runs, strict=True))
            last = _last_reads(kept, ends)
            self.chosen[wanted] = [(runs[id(node)], last.get(id(node), ())) for node in kept]
        return self.chosen[wanted]


def _last_reads(nodes: Sequence[Node], kept: Collection[str]) -> dict[int, list[str]]:
    """By node, the values that nobody reads after it."""
    last: dict[str, int] = {}
    for node in nodes:
        last |= dict.fromkeys((*node.inputs, *node.outputs), id(node))
    out: dict[int, list[str]] = {}
    for name, at_last in last.items():
        if name not in kept:
            out.setdefault(at_last, []).append(name)
    return out


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
) -> None:
    """Run one node on all ranks, adding its results to `state`."""
    _Maker(mesh, coords).run(node, places)(state, Work(domain))


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

        call = _call(op, attrs)

        def results(work: Work, given: Sequence[Array | None]) -> Sequence[Array | None]:
            made = facets(op.name).meaning(work.domain, given, **attrs)
            return [x if x is None else work.held(np.asarray(x)) for x in made]

        def run(state: Ranks, work: Work) -> None:
            known: dict[tuple[int, ...], Sequence[Array | None]] = {}
            for group in groups:
                given = [state[r].get(name) for r in group]
                if all(x is None for x in given):
                    continue
                if work.exchange is None:
                    key = tuple(map(id, given))
                    if key not in known:
                        known[key] = work.once((call, key), partial(results, work, given))
                    made = known[key]
                else:
                    made = work.exchange(node, given, group, attrs)
                for rank, value in zip(group, made, strict=True):
                    if value is not None and rank in held:
                        state[rank][out] = value

        return run

    def _by_rank(self, node: Node, op: Op, attrs: dict[str, Any], here: tuple[int, ...]) -> Run:
        chosen = [(rank, at(attrs, self.coords[rank])) for rank in here]
        calls = [(rank, mine, _call(op, mine)) for rank, mine in chosen]
        out, names, meaning = node.outputs[0], node.inputs, facets(op.name).meaning

        def run(state: Ranks, work: Work) -> None:
            for rank, mine, call in calls:
                given = [state[rank][v] for v in names]
                state[rank][out] = work.meant(call, meaning, mine, given, tuple(map(id, given)))

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
        regions_key = frozenset(inside.values.items()) if inside else None
        call = id(body), regions_key, tuple(sorted(node.attrs.items()))

        def run(state: Ranks, work: Work) -> None:
            ids = tuple(id(state[r][value]) for _, _, value, held in enter for r in held)
            names, made = work.once((call, ids), partial(results, state, work), (body, inside))
            same = list(zip(node.outputs, names, strict=True))
            for local, mine in zip(state, made, strict=True):
                local |= {ours: mine[theirs] for ours, theirs in same if theirs in mine}

        def results(state: Ranks, work: Work) -> tuple[Sequence[str], Ranks]:
            out: Ranks = [{} for _ in state]
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
                                key = "step", id(array), step
                                one = partial(_row, work, array, step)
                                parts[id(array)] = work.once(key, one)
                            array = parts[id(array)]
                        inner[rank][name] = array
                for child in runs:
                    child(inner, work)
                for k, _, _, held in enter[:carries]:
                    carried[k] = [inner[r][ends[k]] for r in held]
                made.append([{v: local[v] for _, v in stacked if v in local} for local in inner])
            for k, _, _, held in enter[:carries]:
                for rank, array in zip(held, carried[k], strict=True):
                    out[rank][node.outputs[k]] = array
            for name, value in stacked:
                _stack(name, value, made[:: steps.step], out, work)
            return node.outputs, out

        return run


def _row(work: Work, array: Array, step: int) -> Array:
    return work.held(array[step])


def _stack(name: str, value: str, made: Sequence[Ranks], state: Ranks, work: Work) -> None:
    """Gives each rank that has a value at every step all of them as one array."""
    known: dict[tuple[int, ...], Array] = {}
    for rank, local in enumerate(state):
        rows = [step[rank][value] for step in made if value in step[rank]]
        if len(rows) == len(made):
            key = tuple(map(id, rows))
            if key not in known:
                known[key] = work.once(("stack", key), lambda r=rows: work.held(np.stack(r)))
            local[name] = known[key]


def _call(op: Op, attrs: Mapping[str, Any]) -> Hashable:
    """An op with its attributes."""
    return op.name, tuple((k, type(v).__name__, v) for k, v in sorted(attrs.items()))


def _local(node: Node, op: Op, attrs: dict[str, Any], here: tuple[int, ...]) -> Run:
    out, names, call = node.outputs[0], node.inputs, _call(op, attrs)
    meaning = facets(op.name).meaning

    def run(state: Ranks, work: Work) -> None:
        known: dict[tuple[int, ...], Array] = {}
        for rank in here:
            local = state[rank]
            given = [local[v] for v in names]
            key = tuple(map(id, given))
            found = known.get(key)
            if found is None:
                found = known[key] = work.meant(call, meaning, attrs, given, key)
            local[out] = found

    return run


def _moved(node: Node, here: tuple[int, ...]) -> Run:
    out, names = node.outputs[0], node.inputs

    def run(state: Ranks, work: Work) -> None:
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
