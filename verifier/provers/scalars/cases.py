"""The values of integer inputs that are tried: all of them, or none."""

import math
from collections.abc import Mapping
from fractions import Fraction
from itertools import product

import numpy as np

from shardproof.verifier.analysis.sentinels import marks
from shardproof.verifier.domains.base import Array
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.proof import MASKED_SCOPE, SCOPE
from shardproof.verifier.provers.scalars.answers import Undecided
from shardproof.verifier.refute.sampling import index_bounds

MAX_ELEMENTS = 60_000
"""Programs that hold more numbers than this are declined unread."""
MAX_CASES = 256
"""So many values of integer inputs are tried, all of them or none."""


def cases(
    program: Program, distributed: Program, indices: Mapping[str, Array], most: int
) -> list[dict[str, Array]] | Undecided:
    """Every value of the integer inputs, or why they are not tried.

    These are the rows that one device looks up, and the marks that it compares them with.
    """
    bounds, special = index_bounds(program), marks(program)
    fixed: dict[str, Array] = {}
    open_: list[tuple[str, tuple[int, ...], list[int], str]] = []
    used = {v for p in (program, distributed) for node in p.nodes for v in node.inputs}
    used |= {out.value for p in (program, distributed) for out in p.outputs}
    keys, unused = _mask_keys(program, distributed), _foreign(program, distributed)
    total = 1
    for item in program.inputs:
        if item.type.is_float:
            continue
        name, kind = item.name, item.type.dtype
        if name in indices:
            array = np.asarray(indices[name])
            fixed[name] = array.astype(bool if kind == "bool" else np.int64)
            continue
        if name not in used:
            fixed[name] = np.zeros(item.type.shape, bool if kind == "bool" else np.int64)
            continue
        if kind != "bool" and name not in bounds and keys.get(name):
            count = item.type.size
            fixed[name] = np.arange(unused, unused + count).reshape(item.type.shape)
            unused += count
            continue
        if kind != "bool" and name not in bounds:
            return Undecided(f"the integer input %{name} has no bound, so not all values are tried")
        values = {*range(2 if kind == "bool" else bounds[name]), *special.get(name, ())}
        total *= len(values) ** item.type.size
        open_.append((name, item.type.shape, sorted(values), kind))
        if total > most or total == 0:
            return Undecided(
                f"the integer inputs up to %{name} have {total} values, at most {most} are tried"
            )
    choices = product(*(vs for _, shape, vs, _ in open_ for _ in range(math.prod(shape))))
    out: list[dict[str, Array]] = []
    for values in choices:
        case, at = dict(fixed), 0
        for name, shape, _, kind in open_:
            count = math.prod(shape)
            entries = np.asarray(values[at : at + count], dtype=np.int64).reshape(shape)
            case[name], at = entries.astype(bool) if kind == "bool" else entries, at + count
        out.append(case)
    return out


def scope_of(
    sequential: Program, distributed: Program, indices: Mapping[str, Array], masked: bool
) -> tuple[str, ...]:
    """What a comparison of all elements covers, in words."""
    bounds, special = index_bounds(sequential), marks(sequential)

    def tried(name: str) -> str:
        top = bounds[name]
        outside = [v for v in sorted(special.get(name, ())) if not 0 <= v < top]
        return " or ".join((f"%{name} in [0, {top})", *map(str, outside)))

    integers = [
        f"%{i.name} as given" if i.name in indices else tried(i.name)
        for i in sequential.inputs
        if not i.type.is_float
        and i.type.dtype != "bool"
        and (i.name in indices or i.name in bounds)
    ]
    return (
        f"mesh {distributed.mesh or 'of one device'}",
        "these extents: " + ", ".join(f"{i.path or i.name} {i.type}" for i in sequential.inputs),
        *([f"integer inputs: {', '.join(integers)}"] if integers else []),
        MASKED_SCOPE if masked else SCOPE,
    )


def _mask_keys(*programs: Program) -> dict[str, bool]:
    """Inputs whether they do nothing but choose random masks.

    A mask is an unknown function of its key here, so one key that is no other key stands for all.
    """
    out: dict[str, bool] = {}
    for program in programs:
        returned = {o.value for o in program.outputs}
        for item in program.inputs:
            readers = [n for n in program.nodes if item.name in n.inputs]
            alone = all(n.op == "dropout_mask" and n.inputs == (item.name,) for n in readers)
            out[item.name] = out.get(item.name, True) and alone and item.name not in returned
    return out


def _foreign(*programs: Program) -> int:
    """An integer above all that the programs hold."""
    held = [
        abs(int(v))
        for program in programs
        for _, node in program.walk()
        for v in node.attrs.values()
        if isinstance(v, int | Fraction)
    ]
    sizes = [t.size for program in programs for t in program.types.values()]
    return max([*held, *sizes, 1 << 20]) * 2 + 1
