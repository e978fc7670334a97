"""Types, meshes, source locations and attribute values: data only. What each attribute name may
hold is the same for every op that has it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TypeGuard, cast

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


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of attribute value."""

    name: str
    says: str
    """What is expected, for an error message."""
    holds: Callable[[object], bool]


def _int(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**62


def _count(value: object) -> bool:
    return _int(value) and value >= 0


def _counts(value: object) -> bool:
    if not isinstance(value, tuple):
        return False
    return all(map(_count, cast(tuple[object, ...], value)))


def _names(value: object) -> bool:
    if isinstance(value, tuple):
        return value != () and all(isinstance(v, str) for v in cast(tuple[object, ...], value))
    return isinstance(value, str)


FOLDS = ("sum", "avg", "max", "min")
FORMATS = ("f16", "bf16", "tf32", "f8e4m3", "f8e5m2", "e8m0")
ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "silu", "tanh", "sigmoid")
COUNT = Kind("count", "an integer, 0 or more", _count)
COUNTS = Kind("counts", "a list of integers, 0 or more, such as [2, 4]", _counts)
INTEGER = Kind("integer", "an integer", _int)
FLAG = Kind("flag", "true or false", lambda v: isinstance(v, bool))
RATIONAL = Kind(
    "rational",
    "a number such as 2, 0.5 or 1/3",
    lambda v: isinstance(v, int | Fraction) and not isinstance(v, bool),
)
OFFSET = Kind(
    "offset",
    "an integer, or one affine in mesh coordinates such as 4*tp+1",
    lambda v: (
        _int(v) or (isinstance(v, Affine) and _int(v.const) and all(_int(c) for _, c in v.terms))
    ),
)
DTYPE = Kind("dtype", f"one of {', '.join(DTYPES)}", lambda v: v in DTYPES)
FOLD = Kind("fold", f"one of {', '.join(FOLDS)}", lambda v: v in FOLDS)
FORMAT = Kind("format", f"one of {', '.join(FORMATS)}", lambda v: v in FORMATS)
ACTIVATION = Kind("activation", f"one of {', '.join(ACTIVATIONS)}", lambda v: v in ACTIVATIONS)
MESH_DIMS = Kind("mesh_dims", "a mesh dim, or several such as [dp, tp]", _names)

KINDS: dict[str, Kind] = {
    **dict.fromkeys(("dim", "split_dim", "concat_dim", "start", "stop", "step"), COUNT),
    **dict.fromkeys(("lo", "hi", "size", "index", "length", "carry", "xs"), COUNT),
    **dict.fromkeys(("dims", "shape"), COUNTS),
    **dict.fromkeys(("keepdim", "causal", "reverse"), FLAG),
    **dict.fromkeys(("eps", "scale", "value", "exponent"), RATIONAL),
    **dict.fromkeys(("src", "dst"), COUNT),
    **dict.fromkeys(("k", "capacity", "stream", "margin"), COUNT),
    **dict.fromkeys(("exclusive", "renormalize", "over_chosen", "ste", "nesterov"), FLAG),
    **dict.fromkeys(("p", "smoothing", "momentum", "weight_decay"), RATIONAL),
    **dict.fromkeys(("beta1", "beta2", "lr", "max_norm"), RATIONAL),
    **dict.fromkeys(("offset", "q_offset", "k_offset"), OFFSET),
    "strides": COUNTS,
    **dict.fromkeys(("ignore_index", "shift"), INTEGER),
    "format": FORMAT,
    "activation": ACTIVATION,
    "dtype": DTYPE,
    "reduce": FOLD,
    "mesh_dim": MESH_DIMS,
}
"""Attribute name -> kind."""


def named_mesh_dims(name: str, value: Attr) -> tuple[str, ...]:
    """The mesh dims that an attribute refers to."""
    if isinstance(value, Affine):
        return tuple(mesh_dim for mesh_dim, _ in value.terms)
    if name == "mesh_dim":
        return (value,) if isinstance(value, str) else tuple(map(str, _tuple(value)))
    return ()


def _tuple(value: Attr) -> tuple[int | str, ...]:
    return value if isinstance(value, tuple) else ()


def stray_mesh_dim(name: str, value: Attr, mesh: Mesh) -> str | None:
    """A mesh dim that the attribute names and the mesh does not have."""
    return next((n for n in named_mesh_dims(name, value) if n not in mesh), None)
