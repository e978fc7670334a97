"""The ops: one declaration each. Importing this package fills the registry."""

from verifier.ops import (
    collectives,
    composites,
    control,
    create,
    indexing,
    linalg,
    map,
    movement,
    reduce,
    views,
)
from verifier.ops.registry import (
    REGISTRY,
    REQUIRED,
    Op,
    Operands,
    Placed,
    Refused,
    Site,
    infer_types,
    lookup,
    register,
)

__all__ = [
    "REGISTRY",
    "REQUIRED",
    "Op",
    "Operands",
    "Placed",
    "Refused",
    "Site",
    "collectives",
    "composites",
    "control",
    "create",
    "indexing",
    "infer_types",
    "linalg",
    "lookup",
    "map",
    "movement",
    "reduce",
    "register",
    "views",
]
