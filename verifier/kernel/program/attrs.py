"""Kinds of attributes: what each attribute name may hold, the same for every op that has it."""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeGuard, cast

from shardproof.verifier.kernel.program.types import DTYPES, Affine, Attr, Mesh


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
