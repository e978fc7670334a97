"""Runs both programs on the same inputs, and says where they differ by more than rounding."""

import math
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from shardproof.verifier.analysis.definedness import in_scope
from shardproof.verifier.domains.base import Array, Domain
from shardproof.verifier.domains.floats import Floats
from shardproof.verifier.kernel.contract import output_key
from shardproof.verifier.kernel.program.program import Output, Program
from shardproof.verifier.kernel.program.where import EVERYWHERE, members
from shardproof.verifier.problem import Problem
from shardproof.verifier.refute.evaluate import Ranks, simulate
from shardproof.verifier.refute.premises import Premises
from shardproof.verifier.refute.scatter import copies, gather, piece, scatter
from shardproof.verifier.verdict import Location, Witness

Pair = tuple[Array, list[Array | None]]
"""What one device computes, and what each rank holds (None: nothing)."""
Judged = Callable[[Mapping[str, Array]], Collection[str]]
"""The outputs that are compared, by what one device computes: those of ranks are worked out where
there is one."""
TOLERANCE = 1e-6
NUDGE = 2.0**-46
"""Relative change of inputs that shows how much rounding matters."""
ROUNDING = 64.0
"""A difference up to this many such changes is rounding."""
FAR = 2.0**20
"""A difference of more than this many such changes is none."""
NUDGES = 6
"""Changes that are tried where a difference is not that far: what rounds up or down, as a sum that
cancels, does so at some of them."""


@dataclass(frozen=True)
class Difference:
    """Where the programs differ: an output key with the rank and element of the witness."""

    witness: Witness
    outputs: tuple[str, ...]
    inputs: Mapping[str, Array] = field(default_factory=dict[str, Array])
    """Of the one-device program, all of them."""
    rounding: float = 0.0
    """What rounding of the inputs changes in the output of the witness."""
    place: Location | None = None
    """What is wrong, where that is known for certain."""
    small: Problem | None = None
    """Smaller programs that show it, where those at hand are too large to run."""


class Simulate(Protocol):
    """Runs a program on all ranks of its mesh, as `evaluate.simulate` does."""

    def __call__(
        self,
        program: Program,
        ranks: Sequence[Mapping[str, Array]],
        domain: Domain,
        *,
        wanted: Collection[str],
    ) -> Ranks: ...


def run_both(
    problem: Problem,
    inputs: Mapping[str, Array],
    domain: Domain,
    rng: np.random.Generator,
    run: Simulate = simulate,
    keys: Collection[str] | None = None,
    judged: Judged | None = None,
) -> dict[str, Pair]:
    """For each output key, or each of `keys`: the one-device value and the value on every rank.

    With `judged`, which is told all that one device computes, nothing where it asks for none of it.
    """
    sequential, distributed = problem.sequential, problem.distributed
    mesh, names = distributed.mesh, [i.name for i in distributed.inputs]
    ours = {output_key(o): o.value for o in sequential.outputs if judged or _asked(o, keys)}
    theirs = {output_key(o): o.value for o in distributed.outputs if _asked(o, keys)}
    whole = run(sequential, [inputs], domain, wanted=set(ours.values()))[0]
    values = {key: whole[value] for key, value in ours.items()}
    if judged is not None and not judged(values):
        return {}
    pieces = {n: scatter(inputs[n], problem.contract.inputs[n], mesh, domain, rng) for n in names}
    given = [{n: pieces[n][r] for n in names} for r in range(mesh.size)]
    ranks = run(distributed, given, domain, wanted=set(theirs.values()))
    return {
        key: (values[key], [local.get(value) for local in ranks])
        for key, value in theirs.items()
        if key in values
    }


def _asked(output: Output, keys: Collection[str] | None) -> bool:
    return keys is None or output_key(output) in keys


def differs(
    pair: Pair, key: str, problem: Problem, domain: Domain
) -> tuple[int, Array, Array] | None:
    """(rank, expected piece, got piece) of the first rank whose piece is wrong."""
    expected, got = pair
    contract, mesh = problem.contract, problem.distributed.mesh
    layout = contract.outputs[key]
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


def compare(
    problem: Problem,
    inputs: Mapping[str, Array],
    run: Simulate = simulate,
    alike: bool = False,
    only: str | None = None,
    rounding: float = 0.0,
) -> Difference | None:
    """Where the programs differ on these inputs in float64, by more than rounding.

    How much rounding matters is seen on inputs that are moved a little; with `alike`, equal numbers
    of one input by the same, so that slices that repeat still do. With `only` no other output is
    compared, and where `rounding` is given, what changes it in programs alike, it is looked at only
    where a difference is not far larger. None too where the contract does not speak of the inputs.
    """
    floats, distributed = Floats(), problem.distributed
    if not Premises(problem.sequential, problem.contract, distributed.mesh).hold(inputs, floats):
        return None
    keys, scope = {output_key(o) for o in distributed.outputs}, set[str]()
    asked = keys if only is None else {only}

    def judged(values: Mapping[str, Array]) -> set[str]:
        scope.update(_in_scope(problem.sequential, values, keys) & asked)
        return scope

    rng = np.random.default_rng(0)
    pairs = run_both(problem, inputs, floats, rng, run, asked, judged)
    found = {k: differs(p, k, problem, floats) for k, p in pairs.items() if k in scope}
    differ = {k: at for k, at in found.items() if at is not None}
    if not differ:
        return None
    changes, sizes = dict.fromkeys(differ, rounding), {k: _size(at) for k, at in differ.items()}
    most = min(FAR * (rounding or math.inf), sys.float_info.max)
    close = {k for k, size in sizes.items() if size <= most}
    for seed in range(1, NUDGES + 1):
        if not close:
            break
        near, rng = _near(inputs, alike, seed), np.random.default_rng(0)
        moved = run_both(problem, near, floats, rng, run, close)
        least = changes if seed > 1 else dict.fromkeys(close, 0.0)
        changes |= {k: max(least[k], _change(pairs[k], moved[k])) for k in close}
        close = {k for k in close if ROUNDING * changes[k] < sizes[k] <= FAR * changes[k]}
    wrong = {k: at for k, at in differ.items() if sizes[k] > ROUNDING * changes[k]}
    if not wrong:
        return None
    key, (rank, want, have) = next(iter(wrong.items()))
    witness = _witness(key, distributed.mesh.coords()[rank], want, have, inputs)
    return Difference(witness, tuple(wrong), inputs, changes[key])


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


def _near(inputs: Mapping[str, Array], alike: bool, seed: int) -> dict[str, Array]:
    """Inputs that differ by a little more than rounding does."""
    rng = np.random.default_rng(seed)

    def moved(array: Array) -> Array:
        if not alike:
            return array * (1 + NUDGE * rng.standard_normal(array.shape))
        numbers, places = np.unique(array, return_inverse=True)
        changes = rng.standard_normal(numbers.shape)[places.reshape(array.shape)]
        return array * (1 + NUDGE * changes)

    return {n: moved(a) if a.dtype.kind == "f" else a for n, a in inputs.items()}


def _size(found: tuple[int, Array, Array]) -> float:
    """How much a piece differs from what is expected."""
    _, want, have = found
    return math.inf if want.shape != have.shape else _gap(want, have, math.inf)


def _change(here: Pair, near: Pair) -> float:
    """What rounding of the inputs changes in an output: differences no larger are rounding.

    A value that is 0 over the reals, as a gradient through a shift that cancels, is all rounding.
    """
    pairs = zip([here[0], *here[1]], [near[0], *near[1]], strict=True)
    return max(_gap(a, b, 0.0) for a, b in pairs if a is not None and b is not None)


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
