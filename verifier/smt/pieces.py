"""What an instance says, tried on values: cut the operands, run the ranks, join the results.

The values are numbers, elements of a prime field or symbols; over symbols a law that holds is a
proof at these extents.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from shardproof.verifier.domains.base import Array, Domain, is_index
from shardproof.verifier.domains.floats import Floats
from shardproof.verifier.domains.symbolic import Symbolic, is_truth, number, term
from shardproof.verifier.kernel.instance import JOINED, Instance, Piece
from shardproof.verifier.kernel.program.program import Node
from shardproof.verifier.kernel.program.types import FLOATS, Mesh
from shardproof.verifier.kernel.program.where import Where, contains, members
from shardproof.verifier.kernel.rank_sets import Regions
from shardproof.verifier.refute.evaluate import Values, run_node
from shardproof.verifier.refute.scatter import copies, gather, piece, scatter
from shardproof.verifier.smt import solver as smt


@dataclass
class Asked:
    """What was asked of Z3's solver; a goal that its simplifier closes is no query."""

    queries: int = 0
    undecided: str = ""
    """Why a goal was left open."""
    opaque: bool = False
    """Whether a goal that fails is about functions of which the solver knows nothing: then its
    model refutes nothing."""


Wholes = Callable[[Sequence[Array], Sequence[Sequence[Array]]], Array]
"""The whole result, from the whole operands and their pieces in rank order."""


def broken(
    instance: Instance,
    wholes: Sequence[Array],
    expected: Wholes,
    domain: Domain,
    rng: np.random.Generator,
    asked: Asked | None = None,
) -> str | None:
    """Why the instance does not hold of these whole operands; None where it holds."""
    parts = [
        _cut(x, p, instance.mesh, domain, rng) for x, p in zip(wholes, instance.given, strict=True)
    ]
    said = expected(wholes, parts)
    results = run(instance, parts, domain)
    layout, region, mesh = instance.made.layout, instance.made.where, instance.mesh
    made = [results[rank] for rank in members(region, mesh)]
    if wrong := [r for r in made if r.shape != layout.local_shape]:
        held, wanted = list(wrong[0].shape), list(layout.local_shape)
        return f"a rank holds shape {held}, the layout says {wanted}"
    for rank, origin in copies(layout, mesh, region):
        if why := differs(results[rank], results[origin], domain, asked):
            return f"ranks {rank} and {origin} hold one piece and disagree: {why}"
    if not layout.sharded.isdisjoint(name for name, _ in region):
        if said.shape != layout.global_shape:
            return f"shape {list(layout.global_shape)}, expected {list(said.shape)}"
        for rank, at in enumerate(mesh.coords()):
            if not contains(region, at):  # nothing is said of the entries that it would hold
                results[rank] = piece(said, layout, at)
    joined = gather(results, layout, mesh, domain, region)
    return differs(joined, said, domain, asked)


def zeros(shape: tuple[int, ...], dtype: str, domain: Domain) -> Array:
    if dtype in FLOATS:
        return domain.full(shape, Fraction(0))
    return np.zeros(shape, dtype=bool if dtype == "bool" else np.int64)


def _cut(
    whole: Array, piece: Piece, mesh: Mesh, domain: Domain, rng: np.random.Generator
) -> list[Array]:
    parts = scatter(whole, piece.layout, mesh, domain, rng)
    return [zeros(p.shape, piece.dtype, domain) for p in parts] if piece.zero else parts


def run(instance: Instance, parts: Sequence[Sequence[Array]], domain: Domain) -> list[Array]:
    """The op on every rank; `parts` holds the pieces of each operand in rank order.

    A rank that the result does not reach has an array of no entries.
    """
    mesh, coords = instance.mesh, instance.mesh.coords()
    if instance.op == JOINED:
        return [_held(instance, parts, rank, at) for rank, at in enumerate(coords)]
    names = tuple(f"i{k}" for k in range(len(parts)))
    held = [p.where for p in instance.given]
    state: list[Values] = [
        {
            name: piece[rank]
            for name, piece, where in zip(names, parts, held, strict=True)
            if contains(where, coords[rank])
        }
        for rank in range(mesh.size)
    ]
    node = Node(instance.op, names, ("out",), dict(instance.attrs))
    places: dict[str, Where] = {**dict(zip(names, held, strict=True)), "out": instance.made.where}
    run_node(node, state, mesh, coords, domain, Regions(places))
    return [local.get("out", np.zeros(0)) for local in state]


def _held(
    instance: Instance, parts: Sequence[Sequence[Array]], rank: int, at: Mapping[str, int]
) -> Array:
    """What a rank holds of a value of which its operands are claims about some ranks each."""
    pairs = zip(instance.given, parts, strict=True)
    return next((p[rank] for piece, p in pairs if contains(piece.where, at)), np.zeros(0))


def differs(a: Array, b: Array, domain: Domain, asked: Asked | None = None) -> str | None:
    """Why two arrays are not shown to be equal; None where they are."""
    if a.shape != b.shape:
        return f"shape {list(a.shape)}, expected {list(b.shape)}"
    if is_index(a) != is_index(b):
        a, b = domain.lift(a), domain.lift(b)
    if isinstance(domain, Symbolic) and not is_index(a):
        return _unproved(equations(a, b), domain, asked or Asked())
    if isinstance(domain, Floats) and not is_index(a):
        told = np.isfinite(np.asarray(b, float))
        same = np.allclose(a[told], b[told], rtol=1e-9, atol=1e-9)
    else:
        same = np.array_equal(a, b)
    return None if same else f"got {a.tolist()}, expected {b.tolist()}"


def _unproved(goals: Sequence[smt.Term], domain: Symbolic, asked: Asked) -> str | None:
    if not goals:
        return None
    asked.queries += 1
    answer = smt.prove(smt.conj(*goals), domain.facts, timeout_ms=0)
    if isinstance(answer, smt.Undecided):
        asked.undecided = answer.reason
    elif isinstance(answer, smt.Invalid):
        asked.opaque = domain.opaque or any(map(smt.applies, goals))
    return None if isinstance(answer, smt.Valid) else str(answer)[:300]


def equations(a: Array, b: Array) -> list[smt.Term]:
    """What is left to prove for two arrays of one shape to be equal: entries that differ as terms,
    and that Z3's simplifier does not show to be equal polynomials.

    Raises:
        ValueError: the shapes differ.
    """
    if a.shape != b.shape:
        raise ValueError(f"shapes {a.shape} and {b.shape}")
    out: list[smt.Term] = []
    for x, y in zip(a.reshape(-1), b.reshape(-1), strict=True):
        if is_truth(x) or is_truth(y):
            left, right = (smt.truth(v) for v in (x, y))
        else:
            left, right = term(number(x)), term(number(y))
        goal = left == right
        if not (left.eq(right) or (not smt.is_truth(left) and smt.simplifies(goal))):
            out.append(goal)
    return out
