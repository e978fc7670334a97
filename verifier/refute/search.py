"""Looks for a difference on numbers.

Both programs run over a prime field at random inputs; a difference there is replayed in float64
with the real functions, and only what differs again is a counterexample. It is then shrunk: whole
inputs are replaced by zeros or ones as long as the difference stays.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from shardproof.verifier.domains.base import Array
from shardproof.verifier.domains.field import Field, apart
from shardproof.verifier.domains.floats import Bounded, Floats
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.kernel.program.types import KINDS, RATIONAL
from shardproof.verifier.kernel.program.where import Where
from shardproof.verifier.kernel.rank_sets import Regions, regions
from shardproof.verifier.ops import compares, facets
from shardproof.verifier.problem import Problem
from shardproof.verifier.refute.compare import Difference, compare, differs, run_both
from shardproof.verifier.refute.evaluate import elements, evaluate
from shardproof.verifier.refute.premises import Premises
from shardproof.verifier.refute.roots import under_roots
from shardproof.verifier.refute.sampling import (
    bring_near,
    edge_draws,
    rooted,
    sample,
    sized,
    to_edge,
)
from shardproof.verifier.refute.scatter import gather, scatter

MAX_ELEMENTS = 3_000_000
SMALL = 200_000
"""Numbers that all ranks hold in programs that are run."""
ALONE = 6
"""Inputs each of which is below 0 somewhere where the others are not."""
DRAWS = (
    *((size, True, False) for size in (1.0, 1.0, 1.0, 0.5, 0.125)),
    (1.0, False, True),
    (0.125, False, True),
    (0.03125, False, True),
)
"""Random inputs of a replay: their size (large ones saturate, or are clipped to one norm), whether
some are constants that the program compares them with, whether all floats are positive (roots and
logarithms of others are undefined)."""
LARGE_DRAWS = ((16.0, False, True), (16.0, True, False))
"""Further inputs on which an output may have a value that has none on those."""
SEEN = 3
"""Inputs without a value from which on an output is taken to have none anywhere."""
CLOSE = 12
"""Further inputs where numbers are compared: single ones near what other inputs hold."""
LARGE, MAX_SIZES = 10**6, 3
"""Constants of the programs that inputs are drawn as large as, to pass a limit: which, how many.
What overflows at such inputs, as the exponential of a sum does, says nothing of real numbers."""
MAX_SHRINKS = 48
"""Runs that are spent on simpler inputs of a witness."""


@dataclass
class Tried:
    """What a search for a difference has looked at."""

    samples: int = 0
    """Inputs of which the contract speaks; where there are none, nothing was shown."""


def elements_of(sequential: Program, distributed: Program) -> int:
    """Numbers that one run of both programs holds, on all ranks."""
    return elements(sequential) + held_elements(distributed)


def too_large(sequential: Program, distributed: Program) -> bool:
    """Whether running both programs would take too long or too much memory."""
    return elements_of(sequential, distributed) > MAX_ELEMENTS


def held_elements(program: Program) -> int:
    """Numbers that all ranks hold in one run, each value on the ranks where it lives."""
    sizes: dict[Where, int] = {}
    counted: dict[tuple[int, int], int] = {}

    def ranks(where: Where) -> int:
        if where not in sizes:
            chosen = dict(where)
            sizes[where] = math.prod(len(chosen.get(n, range(s))) for n, s in program.mesh.dims)
        return sizes[where]

    def count(inner: Program, places: Regions) -> int:
        total = sum(t.size * ranks(places.values[v]) for v, t in inner.types.items())
        for node in inner.nodes:
            if node.body is not None:
                length = node.number("length")
                inside = places.inside(node)
                key = id(node.body), id(inside)
                if key not in counted:
                    counted[key] = count(node.body, inside)
                total += length * counted[key]
        return total

    return count(program, regions(program))


def refute(
    problem: Problem,
    seed: int = 0,
    trials: int = 2,
    simpler: bool = True,
    tried: Tried | None = None,
    only: str | None = None,
    few: bool = False,
) -> Difference | None:
    """A replayed difference between the programs, or None where none was found.

    With `only` no other output is compared. With `few`, inputs near limits and near each other,
    which tell apart what differs at few places, are left out.

    With `simpler`, whole inputs of the witness are replaced by zeros, ones or rounded numbers as
    long as the difference stays; that takes several runs for each input. `tried` is told what was
    looked at.
    """
    sequential, distributed, consts = problem.sequential, problem.distributed, problem.consts
    tried, rng = tried or Tried(), np.random.default_rng(seed)
    premises = Premises(sequential, problem.contract, distributed.mesh, consts)
    literals = _literals(sequential, distributed)
    suspicious = any(facets(n.op).steps for p in (sequential, distributed) for _, n in p.distinct())
    fields = apart(_constants(sequential, distributed), 2)
    edges = edge_draws(sequential, distributed)
    asked = None if only is None else {only}
    compared = _compared(sequential, distributed)
    suspicious |= bool(edges) and not all(facets(op).rises for op in compared)
    for trial in range(trials):
        domain = Field(seed + trial, fields[trial % len(fields)])
        drawn = sample(sequential, domain, rng, consts, True, literals)
        inputs = premises.met(drawn, domain, rng)
        if inputs is None:
            continue
        tried.samples += 1
        pairs = run_both(problem, inputs, domain, rng, keys=asked)
        if any(differs(p, k, problem, domain) for k, p in pairs.items()):
            suspicious = True
            break
    if not suspicious:
        return None
    floats = Floats()

    def replayed(drawn: dict[str, Array]) -> tuple[dict[str, Array], Difference] | None:
        inputs = premises.met(drawn, floats, rng)
        if inputs is None:
            return None
        tried.samples += 1
        with np.errstate(all="ignore"):
            found = compare(problem, inputs, only=only)
        return None if found is None else (inputs, found)

    def shown(at: tuple[dict[str, Array], Difference]) -> Difference:
        return _shrink(problem, *at) if simpler else at[1]

    for drawn in rooted(sequential, consts, seed) if under_roots(sequential) else ():
        at = replayed(drawn)
        if at is not None and not math.isfinite(at[1].witness.got):
            at = replayed(sized(drawn, 1.0, True, consts))
        if at is not None and math.isfinite(at[1].witness.got):
            return shown(at)
    limits = [abs(n) for n in literals if abs(n) < LARGE][:MAX_SIZES]
    sizes = [n / share for n in limits for share in (1, 1, 2, 2)]
    close = CLOSE if compared else 0
    if few:
        sizes, close, edges = [], 0, 0
    plain = (1.0, True, False)
    draws = (*DRAWS, *((n, True, False) for n in sizes), *(plain,) * (close + edges))
    for count, (size, special, positive) in enumerate(draws):
        drawn = sized(
            sample(sequential, floats, rng, consts, special, literals), size, positive, consts
        )
        if count >= len(draws) - edges:
            to_edge(drawn, consts, rng, len(draws) - 1 - count)
        elif count >= len(draws) - edges - close:
            bring_near(drawn, consts, rng)
        at = replayed(drawn)
        if at is not None and (size <= 1 or math.isfinite(at[1].witness.got)):
            return shown(at)
    return None


def differ(problem: Problem) -> str:
    """An output of which one device and the ranks have other numbers, or an input whose pieces are
    not those of one tensor; nothing where none is found, or the programs are too large."""
    sequential, distributed, contract = problem.sequential, problem.distributed, problem.contract
    if elements_of(sequential, distributed) > SMALL:
        return ""
    found = apart_on_numbers(problem)
    mesh, rng, floats = distributed.mesh, np.random.default_rng(3), Floats()
    for name, layout in contract.inputs.items():
        whole = np.arange(math.prod(layout.global_shape)).reshape(layout.global_shape)
        pieces = scatter(whole, layout, mesh, floats, rng)
        if not np.array_equal(gather(pieces, layout, mesh, floats), whole):
            return f"input {name}"
    return "" if found is None else f"output {found.witness.output}"


def overflows(problem: Problem, inputs: Mapping[str, Array]) -> bool:
    """Whether an integer of the programs needs more than 64 bits on these inputs."""
    domain = Bounded()
    with np.errstate(all="ignore"):
        run_both(problem, inputs, domain, np.random.default_rng(0))
    return domain.exceeded


def nowhere_defined(problem: Problem) -> bool:
    """Whether some output of one device has no entry with a value on any of the inputs drawn.

    Nothing is said where no inputs are found of which the contract speaks.
    """
    sequential, consts = problem.sequential, problem.consts
    floats, rng = Floats(), np.random.default_rng(2)
    premises = Premises(sequential, problem.contract, problem.distributed.mesh, consts)
    values = {
        o.value
        for o in sequential.outputs
        if o.role != "grad"
        and sequential.types[o.value].is_float
        and sequential.types[o.value].size
    }
    seen = 0
    for size, special, positive in (*DRAWS, *LARGE_DRAWS) if values else ():
        drawn = sized(sample(sequential, floats, rng, consts, special), size, positive, consts)
        inputs = premises.met(drawn, floats, rng)
        if inputs is None:
            continue
        seen += 1
        with np.errstate(all="ignore"):
            whole = evaluate(sequential, inputs, floats)
        values = {v for v in values if not np.isfinite(whole[v]).any()}
        if not values:
            return False
    return seen >= SEEN


def _compared(*programs: Program) -> set[str]:
    """The ops that compare numbers; to be equal is what random ones never are."""
    return {
        node.op
        for program in programs
        for scope, node in program.distinct()
        if compares(node.op) and scope.types[node.inputs[0]].is_float
    }


def _constants(*programs: Program) -> set[Fraction]:
    """Numbers that the programs add and multiply with."""
    return {
        Fraction(value)
        for program in programs
        for _, node in program.distinct()
        for name, value in node.attrs.items()
        if KINDS[name] is RATIONAL and isinstance(value, int | Fraction)
    }


def _literals(*programs: Program) -> list[int]:
    """Integers beyond the smallest that the programs reckon with."""
    values = {node.attrs.get("value") for program in programs for _, node in program.distinct()}
    numbers = {Fraction(v) for v in values if isinstance(v, int | Fraction) and v}
    found = numbers | {1 / n for n in numbers}
    return sorted(int(n) for n in found if n.denominator == 1 and 4 < abs(n) < 2**31)


def _shrink(problem: Problem, inputs: dict[str, Array], found: Difference) -> Difference:
    """Simpler inputs that show the same, after at most `MAX_SHRINKS` runs."""
    left = MAX_SHRINKS
    for item in problem.sequential.inputs:
        if not item.type.is_float:
            continue
        for simple in (np.zeros, np.ones, None):
            if not left:
                return found
            left -= 1
            value = simple(item.type.shape) if simple else np.round(inputs[item.name] * 2)
            trial = {**inputs, item.name: value}
            with np.errstate(all="ignore"):
                smaller = compare(problem, trial)
            if smaller is not None and found.witness.output in smaller.outputs:
                inputs, found = trial, smaller
                break
    return found


def apart_on_numbers(problem: Problem) -> Difference | None:
    """A difference of programs, on numbers of all signs and on whole ones too."""
    sequential, distributed, contract = problem.sequential, problem.distributed, problem.contract
    found = refute(replace(problem, consts={}), simpler=False)
    rng, floats = np.random.default_rng(3), Floats()
    premises = Premises(sequential, contract, distributed.mesh)
    every = {i.name for i in sequential.inputs}
    signs = (set[str](), every, *(every - {name} for name in sorted(every)[:ALONE]))
    for above, tied in (*((above, False) for above in signs), (signs[0], True)):
        drawn = sized(sample(sequential, floats, rng, {}), 1.0, above, {})
        if tied:
            drawn = {n: np.rint(a) if a.dtype.kind == "f" else a for n, a in drawn.items()}
        inputs = premises.met(drawn, floats, rng) if found is None else None
        if inputs is not None:
            with np.errstate(all="ignore"):
                found = compare(problem, inputs)
    return found
