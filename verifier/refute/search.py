"""Looks for a difference on numbers before anything is proved.

Both programs run over a prime field at random inputs; a difference there is replayed in float64
with the real functions, and only what differs again is a counterexample. It is then shrunk: whole
inputs are replaced by zeros or ones as long as the difference stays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, Protocol

import numpy as np

from verifier.analysis.definedness import in_scope
from verifier.analysis.sentinels import marks
from verifier.domains.base import Array, Domain
from verifier.domains.field import Field, P, apart
from verifier.domains.floats import Floats
from verifier.kernel.contract import Contract, output_key
from verifier.kernel.inline import live
from verifier.kernel.program.attrs import KINDS, RATIONAL
from verifier.kernel.program.program import Node, Program
from verifier.kernel.program.registry import compares, traits
from verifier.kernel.program.where import EVERYWHERE, Where, members
from verifier.kernel.rank_sets import Regions, regions
from verifier.refute.evaluate import evaluate, simulate
from verifier.refute.premises import Premises
from verifier.refute.roots import under_roots
from verifier.refute.scatter import copies, gather, piece, scatter
from verifier.verdict import Location, Witness

Pair = tuple[Array, list[Array | None]]
"""What one device computes, and what each rank holds (None: nothing)."""
Judged = Callable[[Mapping[str, Array]], Collection[str]]
"""The outputs that are compared, by what one device computes: those of ranks are worked out where
there is one."""
MAX_ELEMENTS = 3_000_000
TOLERANCE = 1e-6
NUDGE = 2.0**-46
"""Relative change of inputs that shows how much rounding matters."""
ROUNDING = 64.0
"""A difference up to this many such changes is rounding."""
DRAWS = (
    *((size, True, False) for size in (1.0, 1.0, 1.0, 0.5, 0.125)),
    (1.0, False, True),
    (0.125, False, True),
    (0.03125, False, True),
)
"""Random inputs of a replay: their size (large ones saturate, or are clipped to one norm), whether
some are constants that the program compares them with, whether all floats are positive (roots and
logarithms of others are undefined)."""
ROOTED = ((1.0, True), (0.25, True), (0.25, False), (1.0, False))
"""First inputs of a replay where one device takes roots of inputs, as of second moments, which are
not negative then: their size, and whether what is shaped like a parameter, as moments are, starts
from 0. Beside large moments and saturated functions, what a gradient adds is lost."""
LARGE_DRAWS = ((16.0, False, True), (16.0, True, False))
"""Further inputs on which an output may have a value that has none on those."""
SEEN = 3
"""Inputs without a value from which on an output is taken to have none anywhere."""
CLOSE = 12
"""Further inputs where numbers are compared: single ones near what other inputs hold."""
EDGES, MAX_ALONE = 6, 6
"""Further inputs where a choice may guard a function without a value everywhere: how many with rows
of zeros and of equal numbers, and at most so many with one input all zeros."""
LARGE, MAX_SIZES = 10**6, 3
"""Constants of the programs that inputs are drawn as large as, to pass a limit: which, how many.
What overflows at such inputs, as the exponential of a sum does, says nothing of real numbers."""
MARKED = 0.25
MAX_SHRINKS = 48
"""Runs that are spent on simpler inputs of a witness."""


@dataclass
class Tried:
    """What a search for a difference has looked at."""

    samples: int = 0
    """Inputs of which the contract speaks; where there are none, nothing was shown."""


@dataclass(frozen=True)
class Difference:
    """Where the programs differ: an output key with the rank and element of the witness."""

    witness: Witness
    outputs: tuple[str, ...]
    inputs: Mapping[str, Array] = field(default_factory=dict[str, Array])
    """Of the one-device program, all of them."""
    place: Location | None = None
    """What is wrong, where that is known for certain."""
    pair: tuple[Program, Program, Contract] | None = None
    """Smaller programs that show it, where those at hand are too large to run."""


def elements(program: Program, copies: int = 1) -> int:
    """Numbers that one run of a program holds."""
    total = sum(t.size for t in program.types.values())
    for node in program.nodes:
        if node.body is not None:
            length = node.attrs["length"]
            assert isinstance(length, int)
            total += elements(node.body, length)
    return total * copies


def elements_of(sequential: Program, distributed: Program) -> int:
    """Numbers that one run of both programs holds, on all ranks."""
    return elements(sequential) + held_elements(distributed)


def too_large(sequential: Program, distributed: Program) -> bool:
    """Whether running both programs would take too long or too much memory."""
    return elements_of(sequential, distributed) > MAX_ELEMENTS


def held_elements(program: Program) -> int:
    """Numbers that all ranks hold in one run, each value on the ranks where it lives."""
    sizes: dict[Where, int] = {}

    def ranks(where: Where) -> int:
        if where not in sizes:
            chosen = dict(where)
            sizes[where] = math.prod(len(chosen.get(n, range(s))) for n, s in program.mesh.dims)
        return sizes[where]

    def count(inner: Program, places: Regions) -> int:
        total = sum(t.size * ranks(places.values[v]) for v, t in inner.types.items())
        for node in inner.nodes:
            if node.body is not None:
                length = node.attrs["length"]
                assert isinstance(length, int)
                total += length * count(node.body, places.inside(node))
        return total

    return count(program, regions(program))


def index_bounds(program: Program) -> dict[str, int]:
    """For each integer input, one more than the largest index that every lookup accepts."""
    bounds: dict[str, int] = {}

    def visit(scope: Program, origin: dict[str, set[str]]) -> None:
        for node in scope.nodes:
            if node.body is not None:
                inner = {
                    i.name: origin.get(v, set())
                    for i, v in zip(node.body.inputs, node.inputs, strict=True)
                }
                visit(node.body, inner)
                continue
            at = traits(node.op).index
            if at is not None:
                for name in origin.get(node.inputs[at], ()):
                    bounds[name] = min(bounds.get(name, 1 << 30), _extent(scope, node))
            for out in node.outputs:
                if not scope.types[out].is_float and scope.types[out].dtype != "bool":
                    reach = {o for v in node.inputs for o in origin.get(v, ())}
                    origin[out] = origin.get(out, set()) | reach

    start = {
        i.name: {i.name} for i in program.inputs if not i.type.is_float and i.type.dtype != "bool"
    }
    visit(program, start)
    return bounds


def _extent(program: Program, node: Node) -> int:
    if "size" in node.attrs:
        size = node.attrs["size"]
        assert isinstance(size, int)
        return size
    dim = node.attrs.get("dim", 0)
    assert isinstance(dim, int)
    return program.types[node.inputs[0]].shape[dim]


def sample(
    program: Program,
    domain: Domain,
    rng: np.random.Generator,
    consts: Mapping[str, Array],
    marked: bool = True,
    literals: Sequence[int] = (),
) -> dict[str, Array]:
    """Random inputs of a one-device program: index inputs within the rows they look up.

    With `marked`, a fourth of them are constants that the program compares them with. Half of the
    integers that are no index are among `literals`, where there are any.
    """
    bounds = index_bounds(program)
    special = marks(program) if marked else {}
    out: dict[str, Array] = {}
    for item in program.inputs:
        shape = item.type.shape
        if item.name in consts and not item.type.is_float:
            out[item.name] = np.asarray(consts[item.name])
        elif item.name in consts and isinstance(domain, Floats):
            out[item.name] = np.asarray(consts[item.name], dtype=np.float64)
        elif item.type.dtype == "bool":
            out[item.name] = rng.integers(0, 2, shape).astype(bool)
        elif not item.type.is_float:
            top = min(bounds.get(item.name, 4), 1 << 20)
            drawn = rng.integers(0, max(top, 1), shape)
            if literals and item.name not in bounds:
                drawn = np.where(rng.random(shape) < 0.5, rng.choice(literals, shape), drawn)
            if item.name in special:
                chosen = rng.choice(sorted(special[item.name]), shape)
                drawn = np.where(rng.random(shape) < MARKED, chosen, drawn)
            out[item.name] = drawn
        elif isinstance(domain, Field):
            drawn = rng.integers(1, P, shape).astype(np.uint64)  # as many draws for every prime
            out[item.name] = (drawn - np.uint64(1)) % np.uint64(domain.prime - 1) + np.uint64(1)
        else:
            out[item.name] = rng.standard_normal(shape)
    return out


def run_both(
    sequential: Program,
    distributed: Program,
    contract: Contract,
    inputs: Mapping[str, Array],
    domain: Domain,
    rng: np.random.Generator,
    judged: Judged | None = None,
) -> dict[str, Pair]:
    """For each output key: the one-device value and the value on every rank.

    With `judged`, nothing where it asks for none of what one device computes.
    """
    mesh = distributed.mesh
    whole = evaluate(sequential, inputs, domain)
    values = {output_key(o): whole[o.value] for o in sequential.outputs}
    if judged is not None and not judged(values):
        return {}
    names = [i.name for i in distributed.inputs]
    pieces = {n: scatter(inputs[n], contract.inputs[n], mesh, domain, rng) for n in names}
    ranks = simulate(
        distributed, [{n: pieces[n][r] for n in names} for r in range(mesh.size)], domain
    )
    return {
        output_key(o): (values[output_key(o)], [local.get(o.value) for local in ranks])
        for o in distributed.outputs
        if output_key(o) in values
    }


class Run(Protocol):
    """Runs both programs, as `run_both` does."""

    def __call__(
        self,
        sequential: Program,
        distributed: Program,
        contract: Contract,
        inputs: Mapping[str, Array],
        domain: Domain,
        rng: np.random.Generator,
        judged: Judged | None = None,
    ) -> dict[str, Pair]: ...


def _differs(
    pair: Pair,
    key: str,
    contract: Contract,
    distributed: Program,
    domain: Domain,
) -> tuple[int, Array, Array] | None:
    """(rank, expected piece, got piece) of the first rank whose piece is wrong."""
    expected, got = pair
    layout, mesh = contract.outputs[key], distributed.mesh
    where = contract.wanted.get(key, EVERYWHERE)
    asked = members(where, mesh)
    held = [np.zeros(0) if g is None else g for g in got]
    for rank in asked:
        if held[rank].shape != layout.local_shape:
            return rank, np.zeros(layout.local_shape), held[rank]
    if layout.partial:
        whole = gather(held, layout, mesh, domain, where)
        if not _equal(whole, expected, expected, domain):
            return asked[0], expected, whole
        pairs = [(r, held[o], held[r]) for r, o in copies(layout, mesh, where)]
    else:
        coords = mesh.coords()
        pairs = [(r, piece(expected, layout, coords[r]), held[r]) for r in asked]
    for rank, want, have in pairs:
        if not _equal(have, want, expected, domain):
            return rank, want, have
    return None


def _equal(a: Array, b: Array, scale: Array, domain: Domain) -> bool:
    if not isinstance(domain, Floats) or a.dtype.kind in "ib":
        return bool(np.array_equal(a, b))
    if not np.all(np.isfinite(b)):
        return True
    size = max(1e-12, float(np.max(np.abs(scale), initial=0.0)))
    return bool(np.all(np.abs(a - b) <= TOLERANCE * size))


def refute(
    sequential: Program,
    distributed: Program,
    contract: Contract,
    consts: Mapping[str, Array] | None = None,
    seed: int = 0,
    trials: int = 2,
    simpler: bool = True,
    tried: Tried | None = None,
    only: str | None = None,
) -> Difference | None:
    """A replayed difference between the programs, or None where none was found.

    With `only` no other output is compared.

    With `simpler`, whole inputs of the witness are replaced by zeros, ones or rounded numbers as
    long as the difference stays; that takes several runs for each input. `tried` is told what was
    looked at.
    """
    consts, tried = consts or {}, tried or Tried()
    rng = np.random.default_rng(seed)
    premises = Premises(sequential, contract, distributed.mesh, consts)
    literals = _literals(sequential, distributed)
    suspicious = any(traits(n.op).steps for p in (sequential, distributed) for _, n in p.walk())
    fields = apart(_constants(sequential, distributed), 2)
    edges = edge_draws(sequential, distributed)
    many = distributed if only is None else narrowed(distributed, {only})
    suspicious = suspicious or bool(edges and _equates(sequential, distributed))
    for trial in range(trials):
        domain = Field(seed + trial, fields[trial % len(fields)])
        drawn = sample(sequential, domain, rng, consts, True, literals)
        inputs = premises.met(drawn, domain, rng)
        if inputs is None:
            continue
        tried.samples += 1
        pairs = run_both(sequential, many, contract, inputs, domain, rng)
        if any(_differs(p, k, contract, distributed, domain) for k, p in pairs.items()):
            suspicious = True
            break
    if not suspicious:
        return None
    floats = Floats()
    for drawn in rooted(sequential, consts, seed) if under_roots(sequential) else ():
        inputs = premises.met(drawn, floats, rng)
        if inputs is None:
            continue
        tried.samples += 1
        with np.errstate(all="ignore"):
            found = compare(sequential, distributed, contract, inputs, only=only)
        if found is not None and math.isfinite(found.witness.got):
            simple = sequential, distributed, contract, inputs, found
            return _shrink(*simple) if simpler else found
    limits = [abs(n) for n in literals if abs(n) < LARGE][:MAX_SIZES]
    sizes = [n / share for n in limits for share in (1, 1, 2, 2)]
    close = CLOSE if _compares(sequential) or _compares(distributed) else 0
    plain = (1.0, True, False)
    draws = (*DRAWS, *((n, True, False) for n in sizes), *(plain,) * (close + edges))
    for count, (size, special, positive) in enumerate(draws):
        drawn = sized(
            sample(sequential, floats, rng, consts, special, literals), size, positive, consts
        )
        if count >= len(draws) - edges:
            to_edge(drawn, consts, rng, len(draws) - 1 - count)
        elif count >= len(draws) - edges - close:
            _bring_near(drawn, consts, rng)
        inputs = premises.met(drawn, floats, rng)
        if inputs is None:
            continue
        tried.samples += 1
        with np.errstate(all="ignore"):
            found = compare(sequential, distributed, contract, inputs, only=only)
        if found is not None and (size <= 1 or math.isfinite(found.witness.got)):
            if not simpler:
                return found
            return _shrink(sequential, distributed, contract, inputs, found)
    return None


def sized(
    inputs: Mapping[str, Array],
    size: float,
    positive: bool | Collection[str],
    consts: Mapping[str, Array],
) -> dict[str, Array]:
    """Random inputs of this size, none negative or none of those named; constants are left as they
    are."""

    def changed(name: str, array: Array) -> Array:
        if array.dtype.kind != "f" or name in consts:
            return array
        above = positive if isinstance(positive, bool) else name in positive
        return (np.abs(array) if above else array) * size

    return {n: changed(n, a) for n, a in inputs.items()}


def rooted(
    program: Program,
    consts: Mapping[str, Array],
    seed: int,
    draws: Sequence[tuple[float, bool]] = ROOTED,
) -> Iterator[dict[str, Array]]:
    """Random inputs of which those that a root is taken of are not negative."""
    rng, roots, moments = np.random.default_rng((seed, 1)), under_roots(program), states(program)
    for size, fresh in draws:
        drawn = sized(sample(program, Floats(), rng, consts, False), size, roots, consts)
        zeros = (moments - consts.keys()) if fresh else ()
        yield {n: np.zeros_like(a) if n in zeros else a for n, a in drawn.items()}


def states(program: Program) -> set[str]:
    """Floats among the inputs that are shaped like a parameter and are none, as moments are."""
    shapes = {i.type.shape for i in program.inputs if i.role == "param"}
    return {
        i.name
        for i in program.inputs
        if i.role == "input" and i.type.is_float and i.type.shape in shapes
    }


def nowhere_defined(
    sequential: Program,
    distributed: Program,
    contract: Contract,
    consts: Mapping[str, Array] | None = None,
) -> bool:
    """Whether some output of one device has no entry with a value on any of the inputs drawn.

    Nothing is said where no inputs are found of which the contract speaks.
    """
    consts, floats, rng = consts or {}, Floats(), np.random.default_rng(2)
    premises = Premises(sequential, contract, distributed.mesh, consts)
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


def _equates(*programs: Program) -> bool:
    """Whether numbers are asked to be equal, which random ones never are."""
    return any(
        compares(node.op) and not traits(node.op).rises and scope.types[node.inputs[0]].is_float
        for program in programs
        for scope, node in program.walk()
    )


def _compares(program: Program) -> bool:
    return any(
        compares(node.op) and scope.types[node.inputs[0]].is_float for scope, node in program.walk()
    )


def edge_draws(*programs: Program) -> int:
    """How many inputs `to_edge` makes for programs: none where no choice can be a guard."""
    ops = [traits(node.op) for program in programs for _, node in program.walk()]
    guarded = any(op.needs for op in ops) and any(op.picks for op in ops)
    floats = sum(i.type.is_float for i in programs[0].inputs)
    return EDGES + min(floats, MAX_ALONE) if guarded else 0


def to_edge(
    inputs: dict[str, Array], consts: Mapping[str, Array], rng: np.random.Generator, count: int
) -> None:
    """Set rows to zeros or to equal integers, or all of one input to zeros: numbers on which sums
    of squares and variances vanish, exactly in floats too. `count` says which."""
    floats = [n for n, a in inputs.items() if a.dtype.kind == "f" and n not in consts]
    alone = count - EDGES
    for at, name in enumerate(floats):
        array = inputs[name]
        if alone >= 0:
            inputs[name] = np.zeros_like(array) if at == alone else array
            continue
        rows = (*array.shape[:-1], 1) if array.ndim > 1 else array.shape
        kind = rng.random(rows)
        equal = rng.integers(-2, 3, rows).astype(np.float64)
        inputs[name] = np.where(kind < 1 / 3, 0.0, np.where(kind < 2 / 3, equal, array))


def _bring_near(
    inputs: dict[str, Array], consts: Mapping[str, Array], rng: np.random.Generator
) -> None:
    """Set single numbers a little below magnitudes that other inputs have: limits, which some
    entries pass and some do not."""
    floats = [n for n, a in inputs.items() if a.dtype.kind == "f" and n not in consts and a.size]
    many = [n for n in floats if inputs[n].size > 1]
    for name in floats if many else ():
        if inputs[name].size == 1:
            other = np.abs(inputs[many[rng.integers(len(many))]].reshape(-1))
            near = float(other[rng.integers(len(other))]) * 0.99
            inputs[name] = np.full(inputs[name].shape, near)


def _constants(*programs: Program) -> set[Fraction]:
    """Numbers that the programs add and multiply with."""
    return {
        Fraction(value)
        for program in programs
        for _, node in program.walk()
        for name, value in node.attrs.items()
        if KINDS[name] is RATIONAL and isinstance(value, int | Fraction)
    }


def _literals(*programs: Program) -> list[int]:
    """Integers beyond the smallest that the programs reckon with."""
    found: set[int] = set()
    for program in programs:
        for _, node in program.walk():
            value = node.attrs.get("value")
            if isinstance(value, int | Fraction) and not isinstance(value, bool) and value:
                for number in (Fraction(value), 1 / Fraction(value)):
                    if number.denominator == 1 and 4 < abs(number) < 2**31:
                        found.add(int(number))
    return sorted(found)


def compare(
    sequential: Program,
    distributed: Program,
    contract: Contract,
    inputs: Mapping[str, Array],
    run: Run = run_both,
    alike: bool = False,
    only: str | None = None,
) -> Difference | None:
    """Where the programs differ on these inputs in float64, by more than rounding.

    How much rounding matters is seen on inputs that are moved a little; with `alike`, equal numbers
    of one input by the same, so that slices that repeat still do. With `only` no other output is
    compared. None too where the contract does not speak of these inputs.
    """
    floats = Floats()
    if not Premises(sequential, contract, distributed.mesh).hold(inputs, floats):
        return None
    keys, scope = {output_key(o) for o in distributed.outputs}, set[str]()

    def judged(values: Mapping[str, Array]) -> set[str]:
        scope.update(_in_scope(sequential, values, keys) & (keys if only is None else {only}))
        return scope

    many = distributed if only is None else narrowed(distributed, {only})
    rng = np.random.default_rng(0)
    pairs = run(sequential, many, contract, inputs, floats, rng, judged)
    coords = distributed.mesh.coords()
    found = {
        k: _differs(p, k, contract, distributed, floats) for k, p in pairs.items() if k in scope
    }
    differ = {k: at for k, at in found.items() if at is not None}
    if not differ:
        return None
    both = narrowed(sequential, differ), narrowed(many, differ)
    moved = _nearby(*both, contract, inputs, run, alike)
    wrong = {k: at for k, at in differ.items() if not _is_rounding(at, pairs[k], moved[k])}
    if not wrong:
        return None
    key, (rank, want, have) = next(iter(wrong.items()))
    return Difference(_witness(key, coords[rank], want, have, inputs), tuple(wrong), inputs)


def narrowed(program: Program, keys: Collection[str]) -> Program:
    """The program with only those of its outputs that have these keys."""
    outputs = tuple(o for o in program.outputs if output_key(o) in keys)
    return program if outputs == program.outputs else live(replace(program, outputs=outputs))


def _in_scope(sequential: Program, values: Mapping[str, Array], keys: Collection[str]) -> set[str]:
    """The outputs that one device must have on these inputs: those judged where all are defined.

    `keys` are those of the distributed program; `values` are what one device computes of them.
    """
    ours = {output_key(o): o for o in sequential.outputs}
    finite = {o.value for k, o in ours.items() if k not in keys or np.isfinite(values[k]).all()}
    return {
        k
        for k, o in ours.items()
        if finite.issuperset(in_scope(sequential, gradients=o.role == "grad"))
    }


def _nearby(
    sequential: Program,
    distributed: Program,
    contract: Contract,
    inputs: Mapping[str, Array],
    run: Run,
    alike: bool,
) -> dict[str, Pair]:
    """What both programs give on inputs that differ by a little more than rounding does."""
    rng = np.random.default_rng(1)

    def moved(array: Array) -> Array:
        if not alike:
            return array * (1 + NUDGE * rng.standard_normal(array.shape))
        numbers, places = np.unique(array, return_inverse=True)
        changes = rng.standard_normal(numbers.shape)[places.reshape(array.shape)]
        return array * (1 + NUDGE * changes)

    near = {n: moved(a) if a.dtype.kind == "f" else a for n, a in inputs.items()}
    return run(sequential, distributed, contract, near, Floats(), np.random.default_rng(0))


def _is_rounding(
    found: tuple[int, Array, Array],
    here: Pair,
    near: Pair,
) -> bool:
    """Whether a difference is no larger than what rounding of the inputs changes.

    A value that is 0 over the reals, as a gradient through a shift that cancels, is all rounding.
    """
    _, want, have = found
    if want.shape != have.shape:
        return False
    pairs = zip([here[0], *here[1]], [near[0], *near[1]], strict=True)
    change = max(_gap(a, b, 0.0) for a, b in pairs if a is not None and b is not None)
    return _gap(want, have, np.inf) <= ROUNDING * change


def _gap(a: Array, b: Array, undefined: float) -> float:
    with np.errstate(invalid="ignore"):
        gap = np.abs(np.asarray(a, dtype=np.float64) - np.asarray(b, dtype=np.float64))
    gap = np.where(np.isfinite(gap), gap, undefined)
    return float(np.max(gap, initial=0.0))


def _witness(
    key: str, rank: dict[str, int], want: Array, have: Array, inputs: Mapping[str, Array]
) -> Witness:
    if want.shape != have.shape:
        return Witness(key, rank, (), float(want.size), float(have.size))
    gap = np.abs(np.asarray(want, dtype=np.float64) - np.asarray(have, dtype=np.float64))
    where = np.unravel_index(int(np.argmax(np.nan_to_num(gap, nan=np.inf))), gap.shape)
    index = tuple(int(i) for i in where)
    shown: dict[str, Any] = {n: a.tolist() for n, a in inputs.items() if a.size <= 64}
    return Witness(key, rank, index, float(want[index]), float(have[index]), shown)


def _shrink(
    sequential: Program,
    distributed: Program,
    contract: Contract,
    inputs: dict[str, Array],
    found: Difference,
) -> Difference:
    """Simpler inputs that show the same, after at most `MAX_SHRINKS` runs."""
    left = MAX_SHRINKS
    for item in sequential.inputs:
        if not item.type.is_float:
            continue
        for simple in (np.zeros, np.ones, None):
            if not left:
                return found
            left -= 1
            value = simple(item.type.shape) if simple else np.round(inputs[item.name] * 2)
            trial = {**inputs, item.name: value}
            with np.errstate(all="ignore"):
                smaller = compare(sequential, distributed, contract, trial)
            if smaller is not None and found.witness.output in smaller.outputs:
                inputs, found = trial, smaller
                break
    return found
