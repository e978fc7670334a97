"""Counterexamples of programs too large to run, and smaller ones of programs that are not."""

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product

import numpy as np

from shardproof.verifier.analysis.garbage import no_collection
from shardproof.verifier.domains.base import Array
from shardproof.verifier.domains.floats import Floats
from shardproof.verifier.kernel.inline import inline
from shardproof.verifier.kernel.program.errors import IRError
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.problem import Problem
from shardproof.verifier.refute.compare import Difference, compare
from shardproof.verifier.refute.dedup import BudgetError, run_once
from shardproof.verifier.refute.evaluate import elements, simulate
from shardproof.verifier.refute.premises import Premises
from shardproof.verifier.refute.roots import under_roots
from shardproof.verifier.refute.sampling import (
    edge_draws,
    index_bounds,
    sample,
    sized,
    states,
    to_edge,
)
from shardproof.verifier.refute.scale_down.mesh_constants import (
    counting as counted,
    entries,
    rescaled,
    rescaled_all,
)
from shardproof.verifier.refute.scale_down.resized import Resized, resize, smaller_mesh
from shardproof.verifier.refute.scale_down.system import Declined
from shardproof.verifier.refute.search import Tried, apart_on_numbers, refute

Relates = Callable[[Problem], Collection[str]]
"""The values of a distributed program for which a relation to the one-device program is found."""
BRIEF = 20_000
"""One-device programs of more numbers than this keep the witness as it was found."""
TRIALS = 4
"""Random inputs that must all agree: small programs look up few rows each time."""
LARGE_DRAWS = (
    (0.25, False, False, True),
    (0.25, False, False, False),
    (0.0625, False, False, False),
    (1.0, False, False, False),
    (0.125, False, True, False),
    (0.5, True, False, False),
)
"""Inputs of programs in which much repeats, as in `refute.search`: size, marks, positive; and
whether what is shaped like a parameter, as moments are, starts from 0. Small ones and those that
start from 0 come first: beside a large number, what one layer of many adds to it is lost."""
MAX_EDGES = 3
"""Further inputs where a choice may be a guard, with rows of zeros and of equal numbers."""
FEW_OPS = 500
"""Programs of more ops than this are not made small to be compared once more."""
MAX_MESHES = 12
"""Meshes tried when a counterexample is made smaller."""


@dataclass(frozen=True)
class SmallDifference:
    """A difference between the programs at other extents."""

    difference: Difference
    resized: Resized
    caveats: tuple[str, ...] = ()
    """Why it need not be a difference at the given extents. Where there is one, it is evidence and
    no counterexample."""

    def __str__(self) -> str:
        """For example `at reduced sizes tp 8 -> 2, x dim 1 4096 -> 8`."""
        return f"at reduced sizes {self.resized}" if self.resized.sizes else "at the sizes given"


def primitive(problem: Problem) -> Problem:
    """The same in primitive ops."""
    one, many = inline(problem.sequential), inline(problem.distributed)
    return replace(problem, sequential=one, distributed=many)


@no_collection()
def refute_resized(
    problem: Problem,
    *,
    relates: Relates | None = None,
    proved: Collection[str] = (),
    counting: Collection[Fraction] = (),
) -> SmallDifference | Declined | None:
    """A difference of the programs at small extents, None where there is none.

    Args:
        problem: constants of it whose extents change are cut to their first entries; a difference
            must then show at random constants as well.
        relates: finds relations. What is related at the given extents must be related at the small
            ones, or the small programs are not the same ones.
        proved: keys of the outputs that are related at the given extents; none of them may differ.
        counting: factors of the distributed program that count ranks. They follow the mesh; which
            became what is told in `Resized.counted`.
    """
    problem, consts = primitive(problem), problem.consts
    distributed = problem.distributed
    small = resize(problem)
    if isinstance(small, Resized) and small.large:
        least = smaller_mesh(distributed, problem.contract, keep=1)
        if least != small.problem.distributed.mesh:
            small = resize(problem, least)
    if isinstance(small, Declined):
        return small
    if counting:
        others = counted(distributed.mesh, small.problem.distributed.mesh, counting)
        changed = rescaled_all(small.problem.distributed, others)
        pair = replace(small.problem, distributed=changed)
        small = replace(small, problem=pair, counted=others)
    if relates is not None:
        lost = set(relates(problem)) - set(relates(small.problem))
        if lost:
            return Declined(f"%{min(lost)} is related at the given extents and not at small ones")
    brief, tried = elements(small.problem.sequential) > BRIEF, Tried()
    try:
        found = _refuted(small, not brief, tried=tried)
    except IRError as error:
        return Declined(f"the programs cannot be run: {error}")
    except BudgetError:
        return Declined(f"the programs are too large to run at any extents found: {small}")
    if not tried.samples:
        return Declined("no input was found on which what the contract assumes holds")
    if found is None:
        return None
    both = set(proved) & set(found.outputs)
    if both:
        return Declined(f"{min(both)} is related at the given extents and differs at small ones")
    caveats = list(small.caveats)
    if consts:
        cut, doubts = cut_constants(small.problem.sequential, consts)
        caveats += doubts
        again = _refuted(small, not brief, cut)
        if again is None:
            caveats.append("the difference shows only at constants other than the given ones")
        else:
            found = again
    if not caveats:
        caveats += _counted(found, small, distributed.mesh)
        caveats += _entries(found, small, problem) if not caveats else []
    return SmallDifference(found, small, tuple(caveats))


def differ_resized(problem: Problem) -> str:
    """An output of programs in primitive ops that differs at small extents, on numbers of all
    signs, where no constant may depend on a shape; nothing where none is found."""
    if sum(1 for _ in problem.distributed.distinct()) > FEW_OPS:
        return ""
    small = resize(problem)
    if isinstance(small, Declined) or small.large or small.caveats:
        return ""
    found = apart_on_numbers(small.problem)
    if found is None or _counted(found, small, problem.distributed.mesh):
        return ""
    if _entries(found, small, problem):
        return ""
    return f"output {found.witness.output} at reduced sizes {small}"


def _counted(found: Difference, small: Resized, mesh: Mesh) -> list[str]:
    """A caveat where a factor that may count the ranks of the given mesh makes the difference."""
    for factor, other in rescaled(small.problem.distributed, mesh):
        if not _shows_there(found, _with(small, distributed=other)):
            return [f"the factor {factor} may count ranks, and the mesh is smaller"]
    return []


def _with(small: Resized, **programs: Program) -> Resized:
    return replace(small, problem=replace(small.problem, **programs))


def _entries(found: Difference, small: Resized, given: Problem) -> list[str]:
    """A caveat where the difference goes away once factors that may count entries count those of
    the small programs: a mean is no mean where its factor counts more entries than it adds up."""
    one, many = small.problem.sequential, small.problem.distributed
    pairs = (given.sequential, one), (given.distributed, many)
    for ways in entries(small.extents, *pairs):
        scaled = {"sequential": rescaled_all(one, ways), "distributed": rescaled_all(many, ways)}
        other = _with(small, **scaled)
        if not _shows_there(found, other) and not _shows(found, other):
            shown = ", ".join(map(str, ways))
            return [f"the factors {shown} may count entries, and there are fewer"]
    return []


def _shows_there(found: Difference, other: Resized) -> bool:
    """Whether the output of the witness differs in other programs on the inputs of the witness."""
    only, run = found.witness.output, run_once if other.large else simulate
    try:
        with np.errstate(all="ignore"):
            left = compare(other.problem, found.inputs, run, other.large, only, found.rounding)
    except BudgetError:
        left = None
    return left is not None


def _shows(found: Difference, other: Resized) -> bool:
    """Whether the output of the witness differs in other programs on some inputs."""
    try:
        return _refuted(other, False, only=found.witness.output) is not None
    except BudgetError:
        return False


def _refuted(
    small: Resized,
    simpler: bool,
    consts: Mapping[str, Array] | None = None,
    tried: Tried | None = None,
    only: str | None = None,
) -> Difference | None:
    given = replace(small.problem, consts=consts or {})
    with np.errstate(all="ignore"):
        if small.large:
            return _repeating(given, tried or Tried(), only)
        return refute(given, trials=TRIALS, simpler=simpler, tried=tried, only=only)


def _repeating(problem: Problem, tried: Tried, only: str | None) -> Difference | None:
    """A difference of programs in which much repeats: equal computations are done once.

    Inputs along whose leading dims two slices repeat come first, so that micro-batches and replicas
    do alike.
    """
    sequential, distributed, consts = problem.sequential, problem.distributed, problem.consts
    rng, roots = np.random.default_rng(0), under_roots(sequential)
    premises = Premises(sequential, problem.contract, distributed.mesh, consts)
    zeros = states(sequential) - consts.keys()
    edges = edge_draws(sequential, distributed)
    for count, (size, special, positive, fresh) in enumerate(
        (*LARGE_DRAWS, *(LARGE_DRAWS[0],) * min(edges, MAX_EDGES))
    ):
        drawn = sample(sequential, Floats(), rng, consts, special)
        if count >= len(LARGE_DRAWS):
            to_edge(drawn, consts, rng, count - len(LARGE_DRAWS))
        for item in sequential.inputs:
            array: Array = drawn[item.name]
            if item.role == "input" and item.name not in consts:
                for axis, extent in enumerate(array.shape[:-1]):
                    array = array.take([i % 2 for i in range(extent)], axis=axis)
            drawn[item.name] = np.zeros_like(array) if fresh and item.name in zeros else array
        drawn = sized(drawn, size, positive or roots, consts)
        inputs = premises.met(drawn, Floats(), rng)
        if inputs is None:
            continue
        tried.samples += 1
        found = compare(problem, inputs, run_once, True, only)
        if found is not None:
            return found
    return None


def cut_constants(
    program: Program, consts: Mapping[str, Array]
) -> tuple[dict[str, Array], list[str]]:
    """Constants cut to the extents of a program, and caveats: indices that had to be moved."""
    bounds = index_bounds(program)
    out: dict[str, Array] = {}
    caveats: list[str] = []
    for item in program.inputs:
        if item.name not in consts:
            continue
        given = np.asarray(consts[item.name])
        value = given[tuple(slice(n) for n in item.type.shape)]
        top = bounds.get(item.name)
        if top and value.dtype.kind in "iu" and value.size and int(value.max()) >= top:
            value = value % top
            caveats.append(f"the constant %{item.name} holds indices of rows that are no more")
        out[item.name] = value
    return out, caveats


def shrink(problem: Problem, difference: Difference) -> SmallDifference | None:
    """The difference on the smallest mesh and at the smallest extents on which it persists.

    The output of the witness must differ there too, and without caveats. None where nothing smaller
    is found.
    """
    problem = primitive(problem)
    for mesh in _meshes(problem.distributed.mesh):
        small = resize(problem, mesh, smallest=True)
        if isinstance(small, Declined) or small.caveats or not small.sizes:
            continue
        if small.large:
            continue
        try:
            found = _refuted(small, True)
        except IRError:
            continue
        if found is not None and difference.witness.output in found.outputs:
            return SmallDifference(found, small)
    return None


def _meshes(mesh: Mesh) -> Iterator[Mesh]:
    """Meshes with the same dims, the fewest ranks first."""
    choices = [sorted({min(n, 2), min(n, 3), min(n, 4), n}) for _, n in mesh.dims]
    by_ranks = sorted(product(*choices), key=math.prod)
    for sizes in by_ranks[:MAX_MESHES]:
        yield Mesh(tuple(zip(mesh.names, sizes, strict=True)))
