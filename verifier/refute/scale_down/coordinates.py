"""Which coordinates of a mesh a program tells apart, and those that a smaller mesh keeps.

Ranks that are in the same `on(...)` everywhere, and that no op names, run the same text: of each
such class of coordinates of a mesh dim some are kept, in order. A number may follow a coordinate
(`4*tp`) wherever it follows the one that is left too.
"""

from collections.abc import Mapping
from typing import cast

from shardproof.verifier.kernel.contract import Contract
from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.kernel.program.types import Affine, Attr, Mesh
from shardproof.verifier.kernel.program.where import Where
from shardproof.verifier.ops.classes import PIECES
from shardproof.verifier.refute.scale_down.system import Declined

COORDINATES = ("index", "src", "dst")
"""Attributes of collectives that name a coordinate."""
NO_COORDINATES = frozenset({"mesh_dim", "dim", "split_dim", "concat_dim", "reduce", *COORDINATES})
OFFSETS = ("offset", "q_offset", "k_offset")
Kept = Mapping[str, tuple[int, ...]]
"""By mesh dim the coordinates that are left, in order: the first becomes 0."""


def told_apart(program: Program, contract: Contract) -> dict[str, list[int]]:
    """For each mesh dim the first coordinate of each class of those that are not told apart."""
    sets: dict[str, set[tuple[int, ...]]] = {name: set() for name in program.mesh.names}
    follows: dict[str, set[str]] = {name: set() for name in program.mesh.names}
    fixed: dict[str, set[str]] = {name: set() for name in program.mesh.names}
    whole: set[str] = set()
    layouts = (*contract.inputs.values(), *contract.outputs.values())
    pieces = {name for layout in layouts for name in layout.sharded}
    """Mesh dims whose ranks hold a piece by their coordinate."""
    counted: dict[str, set[str]] = {name: set() for name in program.mesh.names}
    """Ops that on some ranks count an index from a number which their coordinate may have given."""
    wheres: list[Where] = [i.where for i in program.inputs]
    wheres += [*contract.held.values(), *contract.wanted.values()]
    for _, node in program.distinct():
        wheres.append(node.where)
        if node.body is not None:
            wheres += [i.where for i in node.body.inputs]
        numbers = [v for v in node.attrs.values() if isinstance(v, Affine)]
        terms = {name for v in numbers for name, _ in v.terms}
        for name in terms:
            follows[name].add(node.op)
        for name, coords in node.where:
            if name not in terms:
                fixed[name].add(node.op)
                if any(_stands_for(node.attrs.get(k, 0), coords) for k in OFFSETS):
                    counted[name].add(node.op)
        over = node.attrs.get("mesh_dim")
        if over is None:
            continue
        for name in (over,) if isinstance(over, str) else cast(tuple[str, ...], over):
            sets[name] |= {(c,) for c in _named(node.op, node.attrs)}
            pieces |= {name} if node.op in PIECES else set()
            if not set(node.attrs) <= NO_COORDINATES:
                whole.add(name)
    for where in wheres:
        for name, coords in where:
            sets[name].add(coords)
    followed = {op for ops in follows.values() for op in ops}
    return {
        name: list(range(size))
        if name in whole
        else _upto(sets[name], size)
        if follows[name] & fixed[name] or (name in pieces and counted[name] - followed)
        else _classes(sets[name], size)
        for name, size in program.mesh.dims
    }


def _stands_for(number: Attr, coords: tuple[int, ...]) -> bool:
    """Whether a number may be where the piece of one of these coordinates begins."""
    const = number.const if isinstance(number, Affine) else number
    return isinstance(const, int) and const != 0 and any(c and const % c == 0 for c in coords)


def _named(op: str, attrs: Mapping[str, Attr]) -> list[int]:
    """The coordinates that an op names."""
    declared = lookup(op).with_defaults(attrs)
    return [int(str(declared[key])) for key in COORDINATES if key in declared]


def _classes(sets: set[tuple[int, ...]], size: int) -> list[int]:
    members: list[list[int]] = [[] for _ in range(size)]
    for k, coords in enumerate(sorted(sets)):
        for c in coords:
            members[c].append(k)
    first: dict[tuple[int, ...], int] = {}
    for c, of in enumerate(members):
        first.setdefault(tuple(of), c)
    return list(first.values())


def _upto(sets: set[tuple[int, ...]], size: int) -> list[int]:
    """All coordinates up to the last that is named, so that each keeps its number.

    Ranks from a coordinate on to the last one name that coordinate alone.
    """
    last = 0
    for coords in sets:
        first = max(coords)
        while first - 1 in coords and max(coords) == size - 1:
            first -= 1
        last = max(last, first)
    return list(range(last + 1))


def kept_coordinates(
    program: Program, contract: Contract, mesh: Mesh
) -> dict[str, tuple[int, ...]]:
    """The coordinates that a mesh of these sizes keeps.

    Raises:
        Declined: it is smaller than what the program tells apart.
    """
    told = told_apart(program, contract)
    out: dict[str, tuple[int, ...]] = {}
    for name, size in mesh.dims:
        whole = program.mesh[name]
        if size != whole and size < max(len(told[name]), 2):
            raise Declined(f"{name}={size} has not every coordinate that the program tells apart")
        more = [c for c in range(whole) if c not in set(told[name])]
        out[name] = tuple(sorted([*told[name], *more[: size - len(told[name])]]))
    return out


def present(where: Where, kept: Kept) -> Where:
    """The ranks by the coordinates that are left."""
    return tuple(
        (name, tuple(i for i, c in enumerate(kept[name]) if c in coords)) for name, coords in where
    )


def renamed(attrs: Mapping[str, Attr], kept: Kept) -> dict[str, Attr]:
    """Attributes with the coordinates that they name as those that are left."""
    over = attrs.get("mesh_dim")
    if not isinstance(over, str):
        return dict(attrs)
    place = {c: i for i, c in enumerate(kept[over])}
    return {
        k: place.get(v, v) if k in COORDINATES and isinstance(v, int) else v
        for k, v in attrs.items()
    }
