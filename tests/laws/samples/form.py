"""What a sample of an op says: whole shapes and dtypes, and attributes to try."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from shardproof.verifier.kernel.program.types import Affine, Attr, Mesh

Shape = tuple[int, ...]
Attrs = Mapping[str, Attr]


@dataclass(frozen=True, slots=True)
class Form:
    """Whole shapes and dtypes of operands, and the attributes to try on given local shapes."""

    shapes: tuple[Shape, ...]
    dtypes: tuple[str, ...]
    attrs: Callable[[tuple[Shape, ...], Mesh], Iterator[Attrs]]


Forms = Callable[[int, int], Iterator[Form]]
"""Forms of an op from two extents: twice the number of ranks, and the number of ranks."""


def fixed(*attrs: Attrs) -> Callable[[tuple[Shape, ...], Mesh], Iterator[Attrs]]:
    return lambda local, mesh: iter(attrs)


def offsets(extent: int, mesh: Mesh) -> Iterator[int | Affine]:
    """Window starts of pieces of an extent: right ones, and ones of another size or rank."""
    yield 0
    yield 1
    for name in mesh.names:
        yield Affine.of(0, {name: extent})
        yield Affine.of(1, {name: extent})
        yield Affine.of(0, {name: extent + 1})
    yield Affine.of(0, dict.fromkeys(mesh.names, extent))
    inner = extent
    steps: dict[str, int] = {}
    for name, size in reversed(mesh.dims):
        steps[name] = inner
        inner *= size
    yield Affine.of(0, steps)
