"""Random inputs of programs: what a difference is looked for on."""

from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np

from shardproof.verifier.analysis.sentinels import marks
from shardproof.verifier.domains.base import Array, Domain
from shardproof.verifier.domains.field import Field, P
from shardproof.verifier.domains.floats import Floats
from shardproof.verifier.kernel.program.program import Node, Program
from shardproof.verifier.kernel.program.registry import traits
from shardproof.verifier.ops import facets
from shardproof.verifier.refute.roots import under_roots

ROOTED = ((1.0, True), (0.03125, True), (0.25, True), (0.25, False), (1.0, False))
"""First inputs of a replay where one device takes roots of inputs, as of second moments, which are
not negative then: their size, and whether what is shaped like a parameter, as moments are, starts
from 0. Beside large moments and saturated functions, what a gradient adds is lost."""
EDGES, MAX_ALONE = 6, 6
"""Further inputs where a choice may guard a function without a value everywhere: how many with rows
of zeros and of equal numbers, and at most so many with one input all zeros."""
MARKED = 0.25


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
        size = node.number("size")
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


def edge_draws(*programs: Program) -> int:
    """How many inputs `to_edge` makes for programs: none where no choice can be a guard."""
    ops = {node.op for program in programs for _, node in program.distinct()}
    guarded = any(traits(op).needs for op in ops) and any(facets(op).picks for op in ops)
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


def bring_near(
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
