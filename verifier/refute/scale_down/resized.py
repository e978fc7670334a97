"""`resize(problem)`: the same pair of programs at small extents.

The extents of both programs are the unknowns of one system (`collect`), tied by what the ops ask
of their operands and by the contract. It is solved for small values and both programs are written
again. The given extents are one solution, the small ones another; nothing is known of how the
programs were made. What is not understood is declined, never guessed.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import cast

from shardproof.verifier.kernel.contract import Contract, ContractError, check, output_key
from shardproof.verifier.kernel.inline import inline
from shardproof.verifier.kernel.layout import Dim
from shardproof.verifier.kernel.program.errors import IRError
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.problem import Problem
from shardproof.verifier.refute.scale_down.bounds import saturated
from shardproof.verifier.refute.scale_down.collect import Sizes, collect
from shardproof.verifier.refute.scale_down.coordinates import Kept, kept_coordinates, told_apart
from shardproof.verifier.refute.scale_down.eliminate import simplify
from shardproof.verifier.refute.scale_down.kept_coordinates import (
    keep_coincidences,
    keep_cuts,
    keep_places,
    keep_ratios,
    keep_unanchored,
    name_loose,
)
from shardproof.verifier.refute.scale_down.literals import Literals, doubts
from shardproof.verifier.refute.scale_down.reading import Dims
from shardproof.verifier.refute.scale_down.rebuild import Atoms, Value, contract_at, rebuild
from shardproof.verifier.refute.scale_down.solve import Values, determined, solve, spread
from shardproof.verifier.refute.scale_down.system import Declined, System
from shardproof.verifier.refute.search import too_large

Held = Counter[tuple[int, ...]]
"""How many values have a shape, by its unknowns."""
KEEP_RANKS = 16
"""Meshes of up to this many ranks are kept."""
SMALL = 4
"""Extents up to this are kept where the mesh is."""
ENOUGH = 600_000
"""Numbers in one run of both programs: a solution with no more is taken."""


@dataclass(frozen=True, slots=True)
class Size:
    """One extent, named by the first input that has it, before and after."""

    name: str
    before: int
    after: int

    def __str__(self) -> str:
        return f"{self.name} {self.before} -> {self.after}"


@dataclass(frozen=True)
class Resized:
    """A pair of programs and their contract at other extents."""

    problem: Problem
    sizes: tuple[Size, ...]
    caveats: tuple[str, ...] = ()
    """Why a difference at these extents need not be one at the given extents."""
    kept: Kept = field(default_factory=dict[str, tuple[int, ...]])
    """By mesh dim the given coordinates that are left, in order."""
    counted: Mapping[Fraction, Fraction] = field(default_factory=dict[Fraction, Fraction])
    """Factors that count ranks of the given mesh, with what they are on this one."""
    extents: Mapping[int, frozenset[int]] = field(default_factory=dict[int, frozenset[int]])
    """What the extents of each size became."""
    large: bool = False
    """Whether they are still too large to be run as small programs are."""

    def __str__(self) -> str:
        return ", ".join(map(str, self.sizes)) or "the extents given"


def resize(
    problem: Problem, mesh: Mesh | None = None, *, smallest: bool = False
) -> Resized | Declined:
    """The programs at small extents, or why that cannot be done.

    Args:
        mesh: the mesh to resize to, with the same names; by default the given one where it has up
            to 16 ranks, else the smallest that has every coordinate the program names.
        smallest: let every extent shrink, and unlike extents become alike; else extents that are
            unlike stay unlike where they can, and the smallest are kept.
    """
    try:
        one, many = inline(problem.sequential), inline(problem.distributed)
        check(one, many, problem.contract)
    except (IRError, ContractError) as error:
        return Declined(str(error))
    reason = Declined("no mesh to resize to")
    given = replace(problem, sequential=one, distributed=many)
    for to in [mesh] if mesh is not None else _meshes(many, problem.contract):
        for wholly in (False, True):
            try:
                return _Pair(given, to, wholly).resized(smallest)
            except Declined as declined:
                reason = declined
            except (IRError, ContractError) as error:
                reason = Declined(f"at the extents solved for: {error}")
    return reason


def _meshes(program: Program, contract: Contract) -> list[Mesh]:
    """Meshes to try where none is asked for, without repeats."""
    found = [smaller_mesh(program, contract, keep) for keep in (KEEP_RANKS, 1)]
    return list(dict.fromkeys([*found, program.mesh]))


def smaller_mesh(program: Program, contract: Contract, keep: int = KEEP_RANKS) -> Mesh:
    """The mesh of a program where it has up to `keep` ranks, else a smaller one.

    It has a coordinate for each that the program tells from others, and 2 or, where `keep` allows,
    3 on each dim.
    """
    if program.mesh.size <= keep:
        return program.mesh
    told = told_apart(program, contract)
    least = {n: min(size, max(2, len(told[n]))) for n, size in program.mesh.dims}
    for name, size in program.mesh.dims:
        more = {**least, name: min(size, max(3, least[name]))}
        if math.prod(more.values()) <= keep:
            least = more
    return Mesh(tuple((n, least[n]) for n in program.mesh.names))


class _Pair:
    """Both programs as sizes over one system."""

    def __init__(self, problem: Problem, mesh: Mesh, wholly: bool) -> None:
        sequential, distributed = problem.sequential, problem.distributed
        contract = problem.contract
        if mesh.names != distributed.mesh.names:
            raise Declined(f"the mesh {mesh} has not the dims of {distributed.mesh}")
        self.contract, self.mesh = contract, mesh
        self.kept = kept_coordinates(distributed, contract, mesh)
        self.changed = mesh != distributed.mesh
        self.system = System()
        self.ranks: dict[str, int] = {}
        for name, size in distributed.mesh.dims:
            unknown = self.ranks[name] = self.system.new(size)
            self.system.pinned[unknown] = mesh[name]
            self.system.ranks.add(unknown)
        self.one = collect(self.system, sequential, {})
        before = len(self.system.cuts)
        self.many = collect(self.system, distributed, self.ranks)
        cuts = self.system.cuts[before:]
        self.atoms: Atoms = {}
        self.unlike: dict[str, Dims] = {}
        """Outputs whose shape on a rank is not what the contract asks for."""
        self.held = self._held()
        self._tie()
        name_loose(self.system)
        keep_places(self.system)
        keep_ratios(self.system)
        keep_cuts(self.system, wholly=wholly)
        self._doubt_cuts(cuts, told_apart(distributed, contract))
        simplify(self.system)
        keep_unanchored(self.system, determined(self.system))
        self.held = _by_classes(self.held, self.system)

    def _held(self) -> Held:
        """The unknowns of every value that a run holds, and how many ranks and values have them."""
        out: Held = Counter()

        def collect(sizes: Sizes, times: tuple[int, ...], copies: int) -> None:
            for dims in sizes.dims.values():
                out[(*times, *dims)] += copies
            for sized, body in zip(sizes.attrs, sizes.bodies, strict=True):
                if body is not None:
                    collect(body, (*times, cast(int, sized["length"])), copies)

        collect(self.one, (), 1)
        collect(self.many, (), self.mesh.size)
        return out

    def _doubt_cuts(
        self, cuts: Iterable[tuple[int, int]], told: Mapping[str, Sequence[int]]
    ) -> None:
        """Where a rank has a text of its own, and a dim of all ranks' entries is cut: on a smaller
        mesh another part of it is left, which may be that of the rank."""
        s = self.system
        shrunk = {
            s.root(self.ranks[name]): name
            for name, size in self.ranks.items()
            if s.values[size] != self.mesh[name] and len(told[name]) > 1
        }
        rows: dict[int, list[int]] = defaultdict(list)
        for p in s.products if shrunk else ():
            if len(p.left) == 1:
                rows[s.root(p.left[0])] += map(s.root, p.right)
        for extent, number in cuts if shrunk else ():
            if s.values[number] in (0, s.values[extent]):
                continue
            open_, seen = [s.root(extent)], set[int]()
            while open_:
                v = open_.pop()
                if v not in seen:
                    seen.add(v)
                    open_ += rows.get(v, ())
            for v in seen & set(shrunk):
                name = shrunk[v]
                s.caveats.append(f"a dim of what all ranks of {name} hold is cut, and they differ")

    def _tie(self) -> None:
        """The contract ties the dims of both programs to the atoms of its layouts."""
        theirs = {i.name for i in self.many.program.inputs}
        for name in self.contract.inputs:
            local = self.many.dims[name] if name in theirs else None
            self._layout(
                f"input {name}", self.contract.inputs[name].dims, self.one.dims[name], local
            )
        ours = {output_key(o): o.value for o in self.one.program.outputs}
        local_of = {output_key(o): o.value for o in self.many.program.outputs}
        for key, layout in self.contract.outputs.items():
            if key not in ours:
                raise Declined(f"the contract speaks of {key}, which no program returns")
            local = self.many.dims[local_of[key]]
            if tuple(self.system.values[v] for v in local) != layout.local_shape:
                self.unlike[key] = local
            fits = local if key not in self.unlike else None
            self._layout(f"output {key}", layout.dims, self.one.dims[ours[key]], fits)

    def _layout(self, key: str, dims: tuple[Dim, ...], whole: Dims, local: Dims | None) -> None:
        s = self.system
        atoms: list[tuple[tuple[int, str | None], ...]] = []
        for i, (dim, extent) in enumerate(zip(dims, whole, strict=True)):
            mine = [
                (self.ranks[a.mesh_dim] if a.mesh_dim else s.new(a.size), a.mesh_dim) for a in dim
            ]
            free = [v for v, name in mine if name is None]
            s.anchored.update((extent, *free))
            s.multiply((extent,), [v for v, _ in mine])
            if local is not None:
                s.multiply((local[i],), free)
                s.anchored.add(local[i])
            atoms.append(tuple(mine))
        self.atoms[key] = tuple(atoms)

    def resized(self, smallest: bool) -> Resized:
        found: list[tuple[int, int, System, Values, Callable[[Values], int]]] = []
        for order, system in enumerate(self._readings(smallest)):
            values = solve(system)
            if values is None:
                continue
            count_at = self._counter(system)
            found.append((count_at(values), order, system, values, count_at))
            if not smallest and found[-1][0] <= ENOUGH:
                break
        if not found:
            raise Declined("no smaller extents were found")
        enough = [one for one in found if one[0] <= ENOUGH and not smallest]
        count, _, system, values, count_at = min(enough or found, key=lambda one: one[:2])
        if not smallest:
            most = max(ENOUGH, count * 3 // 2)
            values = spread(system, values, lambda v: count_at(v) <= most)
        return self._at(system, values)

    def _counter(self, system: System) -> Callable[[Values], int]:
        """How many numbers one run of both programs holds, by the values of the unknowns."""
        products = _by_classes(self.held, system)
        return lambda values: sum(
            copies * math.prod(values[v] for v in unknowns) for unknowns, copies in products.items()
        )

    def _readings(self, smallest: bool) -> Iterator[System]:
        """Systems to solve, the most faithful first."""
        for close in (True, False):
            for kept in (False,) if smallest else (True, False):
                reading = self.system.copy()
                if kept:
                    for v in reading.free():
                        if reading.values[v] <= SMALL:
                            reading.pin(v)
                try:
                    if close:
                        keep_coincidences(reading, determined(reading))
                except Declined:
                    continue
                yield reading

    def _at(self, system: System, values: Values) -> Resized:
        def value(unknown: int) -> int:
            return values[system.root(unknown)]

        after: dict[int, set[int]] = defaultdict(set)
        for v, before in enumerate(system.values):
            after[before].add(value(v))
        literals = Literals(lambda n: set(after.get(n, ())))
        one = rebuild(self.one, Mesh(), value, literals, {})
        many = rebuild(self.many, self.mesh, value, literals, self.kept)
        contract = contract_at(self.contract, self.mesh, self.atoms, value, self.kept)
        check(one, many, contract)
        for key, dims in self.unlike.items():
            if tuple(map(value, dims)) == contract.outputs[key].local_shape:
                raise Declined(f"the shape of {key} is wrong, and right at these extents")
        caveats = [*self.system.caveats, *literals.caveats, *doubts(one, many, self.changed)]
        caveats += saturated(self.one.program, one) + saturated(self.many.program, many)
        doubtful = tuple(dict.fromkeys(caveats))
        became = {n: frozenset(found) for n, found in after.items()}
        large, sizes = too_large(one, many), self._sizes(value)
        return Resized(Problem(one, many, contract), sizes, doubtful, self.kept, {}, became, large)

    def _sizes(self, value: Value) -> tuple[Size, ...]:
        out: dict[tuple[int, int], Size] = {}
        for name, before in self.many.program.mesh.dims:
            if before != self.mesh[name]:
                out[(-before, self.mesh[name])] = Size(name, before, self.mesh[name])
        for item in self.one.program.inputs:
            for i, (v, before) in enumerate(
                zip(self.one.dims[item.name], item.type.shape, strict=True)
            ):
                after = value(v)
                if after != before:
                    name = f"{item.path or item.name} dim {i}"
                    out.setdefault((before, after), Size(name, before, after))
        return tuple(out.values())


def _by_classes(held: Held, system: System) -> Held:
    """The same counts by classes of unknowns, sorted."""
    roots = [system.root(v) for v in range(len(system.values))]
    out: Held = Counter()
    for unknowns, copies in held.items():
        out[tuple(sorted([roots[v] for v in unknowns]))] += copies
    return out
