"""Types, meshes, source locations and attribute values. Data only."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

DTYPES = ("f64", "f32", "bf16", "f16", "i64", "i32", "u8", "bool")
FLOATS = frozenset({"f64", "f32", "bf16", "f16"})
ITEMSIZE = {"f64": 8, "f32": 4, "bf16": 2, "f16": 2, "i64": 8, "i32": 4, "u8": 1, "bool": 1}


@dataclass(frozen=True, slots=True)
class TensorType:
    """Shape (concrete extents) and dtype of one tensor on one rank."""

    shape: tuple[int, ...]
    dtype: str = "f32"

    @property
    def is_float(self) -> bool:
        return self.dtype in FLOATS

    @property
    def kind(self) -> str:
        """Floats are alike over the reals, and so are integers; bools are neither."""
        return "float" if self.is_float else "bool" if self.dtype == "bool" else "integer"

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return self.size * ITEMSIZE[self.dtype]

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True, slots=True)
class Source:
    """Where a node comes from in the owner's code."""

    file: str = ""
    line: int = 0
    module: str = ""
    """Module path, for example `model.layers.*.mlp.up_proj`."""
    text: str = ""
    """The source line itself, stripped."""
    calls: tuple[tuple[str, int], ...] = field(default=(), compare=False)
    """Files and lines of the owner's that called it, innermost first."""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.file else ""
        return "  ".join(part for part in (place, self.module) if part)


@dataclass(frozen=True, slots=True)
class Mesh:
    """A device mesh: named mesh dims with their sizes, outermost first. Size 1 is allowed."""

    dims: tuple[tuple[str, int], ...] = ()

    def __post_init__(self) -> None:
        names = [name for name, _ in self.dims]
        if len(set(names)) != len(names):
            raise ValueError(f"mesh dim named twice: {names}")
        for name, size in self.dims:
            if size < 1:
                raise ValueError(f"mesh dim {name} has size {size}, expected 1 or more")

    @classmethod
    def of(cls, **sizes: int) -> Mesh:
        return cls(tuple(sizes.items()))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.dims)

    @property
    def size(self) -> int:
        """Number of ranks."""
        return math.prod(size for _, size in self.dims)

    def __getitem__(self, name: str) -> int:
        for axis, size in self.dims:
            if axis == name:
                return size
        raise KeyError(f"mesh has no dim {name!r}; it has {', '.join(self.names) or 'none'}")

    def __contains__(self, name: object) -> bool:
        return any(axis == name for axis, _ in self.dims)

    def coords(self) -> list[dict[str, int]]:
        """Coordinates of every rank, in rank order (last dim fastest)."""
        out: list[dict[str, int]] = [{}]
        for name, size in self.dims:
            out = [{**c, name: i} for c in out for i in range(size)]
        return out

    def __str__(self) -> str:
        return ",".join(f"{name}={size}" for name, size in self.dims)


NOWHERE = Source()
NO_MESH = Mesh()


@dataclass(frozen=True, slots=True)
class Affine:
    """`const + sum(coeff * coordinate)`: an attribute that differs by rank in a stated way."""

    const: int = 0
    terms: tuple[tuple[str, int], ...] = ()
    """(mesh dim, coefficient), sorted by mesh dim, no zero coefficient."""

    @classmethod
    def of(cls, const: int = 0, coeffs: Mapping[str, int] | None = None) -> Affine:
        return cls(const, tuple(sorted((a, c) for a, c in (coeffs or {}).items() if c)))

    def at(self, coords: Mapping[str, int]) -> int:
        return self.const + sum(c * coords[a] for a, c in self.terms)

    def __str__(self) -> str:
        parts = [f"{c}*{a}" for a, c in self.terms]
        if self.const or not parts:
            parts.append(str(self.const))
        return "+".join(parts)


Attr = int | str | bool | Fraction | Affine | tuple[int, ...] | tuple[str, ...]


def mesh_dims(value: str | Sequence[str]) -> tuple[str, ...]:
    """The `mesh_dim` attribute as a tuple of names, outermost first."""
    return (value,) if isinstance(value, str) else tuple(value)
