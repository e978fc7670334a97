"""Ops of PyTorch without a rule of ours are opened by PyTorch's own decompositions."""

# pyright: basic

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from shardproof.synthesis.frontends.torch.aten.complex_pairs import COMPLEX
from shardproof.synthesis.frontends.torch.aten.table import TABLE

_MORE = (
    *("addmv", "tan", "hardtanh", "leaky_relu", "elu", "isinf", "dist", "any"),
    *("grid_sampler_2d", "upsample_bicubic2d", "linalg_vector_norm"),
    "native_layer_norm",
)
"""Opened besides those that PyTorch lists for its core."""


@cache
def decompositions() -> dict[Any, Callable[..., Any]]:
    """Aten op -> what computes it by others, for those that no rule reads. None that is random, and
    none that makes or views a tensor without reading an entry."""
    from torch._decomp import core_aten_decompositions, decomposition_table

    more = {op: f for op, f in decomposition_table.items() if _name(op) in _MORE}
    table = {**more, **dict(core_aten_decompositions().items())}
    return {op: f for op, f in table.items() if _is_open(op)}


def _name(op: Any) -> str:
    return op.__name__.partition(".")[0] if isinstance(op, torch._ops.OpOverload) else ""


def _is_open(op: Any) -> bool:
    if not isinstance(op, torch._ops.OpOverload) or op.namespace != "aten":
        return False
    if op.__name__ in TABLE or op.__name__ in COMPLEX:
        return False
    schema = op._schema
    if torch.Tag.nondeterministic_seeded in op.tags or op.is_view:
        return False
    if schema.is_mutable:
        return False
    reads = any("Tensor" in str(a.type) for a in schema.arguments)
    return reads and not _name(op).startswith(("empty", "new_", "zeros", "ones", "full"))
