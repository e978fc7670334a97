"""What a rule reads off one node, and the numbers in offsets that count entries."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import cast

from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.kernel.program.program import Node
from shardproof.verifier.kernel.program.types import Affine, Attr, mesh_dims
from shardproof.verifier.refute.scale_down.kept_coordinates import RATIO
from shardproof.verifier.refute.scale_down.system import Declined, System

Dims = tuple[int, ...]
"""The unknowns of a shape."""
NEAR = 2
"""A number this close to an extent is that extent and a constant."""


@dataclass(frozen=True, slots=True)
class Offset:
    """A sum of unknowns: the constant part, then one coefficient for each mesh dim."""

    const: tuple[tuple[int, int], ...]
    """(factor, unknown)."""
    rest: int
    terms: tuple[tuple[str, tuple[tuple[int, int], ...], int], ...]


Sized = int | Dims | Offset


@dataclass(frozen=True, slots=True)
class Reading:
    """What a rule is given."""

    system: System
    mesh: Mapping[str, int]
    """The unknown of each mesh dim."""
    node: Node
    ins: tuple[Dims, ...]
    outs: tuple[Dims, ...]

    def number(self, name: str) -> int:
        value = lookup(self.node.op).with_defaults(self.node.attrs)[name]
        assert isinstance(value, int)
        return value

    def numbers(self, name: str) -> tuple[int, ...]:
        value = lookup(self.node.op).with_defaults(self.node.attrs)[name]
        assert isinstance(value, tuple)
        return cast(tuple[int, ...], value)

    def alike(self, a: Dims, b: Dims) -> None:
        if len(a) != len(b):
            raise Declined(f"{self.node.op} changes the number of dims")
        for x, y in zip(a, b, strict=True):
            self.system.same(x, y)

    def group(self) -> tuple[int, ...]:
        """The unknowns of the mesh dims of a collective."""
        value = cast(str | tuple[str, ...], self.node.attrs["mesh_dim"])
        return tuple(self.mesh[name] for name in mesh_dims(value))


def offset_of(r: Reading, extent: int) -> Offset:
    """An offset along a dim with this local extent: each of its numbers by the extent it counts."""
    given: Attr = lookup(r.node.op).with_defaults(r.node.attrs)["offset"]
    affine = given if isinstance(given, Affine) else Affine.of(int(str(given)))
    const, rest = _counted(r, extent, affine.const)
    terms: list[tuple[str, tuple[tuple[int, int], ...], int]] = []
    for name, coefficient in affine.terms:
        terms.append((name, *_counted(r, extent, coefficient)))
    return Offset(const, rest, tuple(terms))


def _counted(r: Reading, extent: int, number: int) -> tuple[tuple[tuple[int, int], ...], int]:
    """A number as multiples of unknowns and a constant: of the extent at hand, where it is one."""
    s = r.system
    local = s.values[extent]
    if abs(number) <= NEAR:
        return (), number
    readings: list[tuple[int, int, int, tuple[int, ...]]] = []
    for sizes in blocks(r):
        block = math.prod((local, *(s.values[v] for v in sizes)))
        times = round(Fraction(number, block)) if block else 0
        rest = number - times * block
        if 1 <= abs(times) <= RATIO and (rest == 0 or (abs(rest) <= NEAR and local > 4 * NEAR)):
            readings.append((abs(rest), abs(times), times, sizes))
    if readings and local > 1:
        rest, _, times, sizes = min(readings, key=lambda x: (x[0], x[1], len(x[3])))
        total = extent
        if sizes:
            total = s.new(math.prod((local, *(s.values[v] for v in sizes))))
            s.multiply((total,), (*sizes, extent))
        return ((times, total),), number - times * s.values[total]
    if local <= 4 * NEAR and abs(number) <= RATIO * 4 * NEAR and local > 1:
        s.pin(extent)
        return (), number
    alone = s.new(abs(number))
    s.loose.append(alone)
    return ((1 if number > 0 else -1, alone),), 0


def blocks(r: Reading) -> list[tuple[int, ...]]:
    """Mesh dims whose ranks may lie side by side between the extent and the number."""
    sizes = list(r.mesh.values())
    pairs = [(a, b) for i, a in enumerate(sizes) for b in sizes[i + 1 :]]
    return [(), *((v,) for v in sizes), *pairs]
